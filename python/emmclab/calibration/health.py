"""Health reports of vendors: erase counts, spare and bad blocks of parts whose formats are public."""

from os import PathLike
from pathlib import Path

from emmclab import _core
from emmclab.core_types import HealthFormat, HealthReport
from emmclab.errors import ConfigError, InputError

#: Maximum size of a dump of a report, in bytes.
_MOST_BYTES = 1 << 16


def health_formats() -> list[HealthFormat]:
    """Return all formats, with their parts, sources and commands."""
    return [HealthFormat(row) for row in _core.health_formats()]


def split_format(source: str | PathLike[str]) -> tuple[Path, str | None]:
    """Split FILE@FORMAT; the format is None if it is not given.

    >>> split_format("report.bin@hynix-v1")[1], split_format("report.bin")[1]
    ('hynix-v1', None)
    """
    path, mark, name = str(source).rpartition("@")
    return (Path(path), name) if mark and not Path(source).exists() else (Path(source), None)


def health(source: str | PathLike[str]) -> HealthReport:
    """Read a health report: 512 bytes or a hexadecimal dump of them, as FILE or FILE@FORMAT.

    Raises:
        EmmclabError: the file is no report, or not one of this format.

    >>> health("no-such-report@hynix-v1")
    Traceback (most recent call last):
    ...
    emmclab.errors.InputError: no-such-report: file not found
    """
    path, name = split_format(source)
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES)
    except OSError as error:
        raise InputError.of(error, path) from error
    return decode_health(content, str(path), name)


def decode_health(content: bytes, path: str, name: str | None) -> HealthReport:
    """Return what a report states; `name` is that of its format, None to recognise it by its signature."""
    return HealthReport(_core.read_health(path, content, name))


def format_named(name: str | None) -> HealthFormat:
    """Return the format of this name. Raises: ConfigError if there is none."""
    formats = {one.name: one for one in health_formats()}
    if name not in formats:
        raise ConfigError(
            f"there is no format `{name}` of health reports" if name else "the format of the health report is missing",
            field="--read-health",
            hint=f"write DEVICE@FORMAT; the formats are {', '.join(formats)}",
        )
    return formats[name]
