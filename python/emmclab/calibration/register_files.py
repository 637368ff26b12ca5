"""Finds register dumps in a single file, a sysfs folder, or an archive of such a folder."""

import io
import os
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from emmclab import _core
from emmclab.errors import ConfigError, FormatError, InputError
from emmclab.traces.reading import read
from emmclab.traces.recorded_registers import recorded_devices

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: Maximum size of a single register file, in bytes; logs that contain a register dump are smaller.
_MOST_BYTES = 4 << 20
#: Maximum size of a file in a folder, in bytes; files of sysfs have at most one page.
_MOST_BYTES_IN_TREE = 64 << 10
#: Maximum number of files in a folder; the sysfs folder of a UFS has some thousands.
_MOST_FILES = 100_000
#: Maximum size of the content of an archive, in bytes; all of /sys has some tens of megabytes.
_MOST_BYTES_UNPACKED = 256 << 20
#: Number of bytes at the start of a file that are searched for registers.
_HEAD_BYTES = 1 << 16
_HINT = (
    "give the file ext_csd of debugfs, the output of `mmc extcsd read`, or the folder of a UFS in sysfs "
    "(/sys/devices/platform/*/*.ufshc)"
)
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")

#: The first bytes of a Parquet file, the format of recordings.
_PARQUET = b"PAR1"

#: Path of a register file, for messages, and content of the file.
RegisterFile = tuple[str, bytes]


def is_recording(source: Path) -> bool:
    """Return whether a file has the format of an emmclab recording."""
    if not source.is_file():
        return False
    with source.open("rb") as file:
        return file.read(len(_PARQUET)) == _PARQUET


def register_files(source: Path) -> list[RegisterFile]:
    """Read all files with registers: the file itself, or those of a folder, an archive or a recording.

    `-` is stdin.
    """
    if str(source) == "-":
        return [("-", _bounded(sys.stdin.buffer.read(_MOST_BYTES + 1), source))]
    contained = _files_in(source)
    if contained is None:
        try:
            with source.open("rb") as file:
                content = file.read(_MOST_BYTES + 1)
        except OSError as error:
            raise InputError.of(error, source) from error
        if content.startswith(_PARQUET):
            return _of_recording(source)
        return [(str(source), _bounded(content, source))]
    files = list(contained)
    if not files:
        raise FormatError(
            f"{source}: contains neither an EXT_CSD register nor a descriptor of a UFS device",
            kind="unknownformat",
            file=str(source),
            hint=_HINT,
        )
    return files


def holds_registers(source: Path) -> bool:
    """Return whether a file begins with a register dump, or a folder or archive contains one."""
    try:
        if not (source.is_dir() or source.is_file()):
            return False
        if (contained := _files_in(source)) is not None:
            return next(contained, None) is not None
        with source.open("rb") as file:
            return _core.are_registers(file.read(_HEAD_BYTES))
    except (OSError, FormatError, ConfigError):
        return False


def _of_recording(source: Path) -> list[RegisterFile]:
    devices = recorded_devices(read(source).header, str(source))
    if not devices:
        raise FormatError(
            f"{source}: the trace has no registers of a device: `emmclab record` did not record it, its "
            "disk is not an eMMC or UFS, or its version did not store registers",
            kind="unknownformat",
            file=str(source),
            hint="record the device again, or give its registers with --ext-csd or --ufs",
        )
    if len(devices) > 1:
        names = "; ".join(device.name for device in devices)
        raise ConfigError(
            f"{source}: the recording has the registers of several devices ({names})",
            file=str(source),
            hint="record only one of these devices, with `emmclab record --device`",
        )
    (device,) = devices
    if not device.files:
        raise FormatError(
            f"{source}: {device.line()}",
            kind="unknownformat",
            file=str(source),
            hint="make the registers readable, and record again",
        )
    return device.files


def _bounded(content: bytes, source: Path) -> bytes:
    if len(content) > _MOST_BYTES:
        raise InputError(
            f"{source}: the file is larger than {_MOST_BYTES >> 20} MB, so it is not a dump of a register",
            file=str(source),
            hint=_HINT,
        )
    return content


def _files_in(source: Path) -> Iterator[RegisterFile] | None:
    """Return the register files of a folder or an archive; None for any other file."""
    if os.path.isdir(source):  # noqa: PTH112 - `Path.is_dir` fails for a name that is too long
        return _of_folder(source)
    return _of_archive(source) if source.name.lower().endswith(_ARCHIVES) else None


def _of_folder(folder: Path) -> Iterator[RegisterFile]:
    """Yield the register files of a folder in order, except files that the kernel refuses to read."""
    # A path without a final name, such as `.`, may be a folder of descriptors.
    root = folder.resolve() if folder.name in ("", "..") else folder
    count = 0
    for parent, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            count += 1
            if count > _MOST_FILES:
                raise _too_many(folder)
            path = Path(parent) / name
            if not _core.is_register_file(path) or not path.is_file():
                continue
            try:
                with path.open("rb") as file:
                    content = file.read(_MOST_BYTES_IN_TREE)
            except OSError:
                # The kernel returns an error for descriptors that a device does not have.
                continue
            yield str(path), content


class _Content(io.RawIOBase):
    """A stream of the decompressed content of an archive, from which `tarfile` reads."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self._unpacked = _core.Unpacked(source)
        self._left = _MOST_BYTES_UNPACKED

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer)
        self._left -= len(view)
        if self._left < 0:
            raise InputError(
                f"{self._source}: the archive unpacks to more than {_MOST_BYTES_UNPACKED >> 20} MB, more than any "
                "folder of registers has",
                file=str(self._source),
                hint="unpack the archive yourself, and give the folder with the registers",
            )
        content = self._unpacked.read(len(view))
        view[: len(content)] = content
        return len(content)


def _of_archive(source: Path) -> Iterator[RegisterFile]:
    try:
        with tarfile.open(fileobj=_Content(source), mode="r|") as archive:
            for count, member in enumerate(archive):
                if count > _MOST_FILES:
                    raise _too_many(source)
                if not member.isfile() or not _core.is_register_file(member.name):
                    continue
                file = archive.extractfile(member)
                if file is not None:
                    yield f"{source}/{member.name}", file.read(_MOST_BYTES_IN_TREE)
    except (tarfile.TarError, EOFError) as error:
        raise _damaged(source, error) from error


def _damaged(source: Path, error: Exception) -> FormatError:
    return FormatError(
        f"{source}: the archive is damaged: {error}",
        kind="syntax",
        file=str(source),
        hint="pack the folder of registers again, for example `tar -cf ufs.tar --ignore-failed-read -C FOLDER .`",
    )


def _too_many(source: Path) -> ConfigError:
    return ConfigError(f"{source}: the archive contains more than {_MOST_FILES:,} files", file=str(source), hint=_HINT)
