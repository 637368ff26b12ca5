"""The recordings of a fleet: files below a folder, and what the names of folders say of them."""

from __future__ import annotations

import os
import re
import stat
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from emmclab.errors import ConfigError, InputError

#: A folder that says something of the recordings below it: `model=Pixel 6a`, as Hive, DuckDB and Spark do.
_KEY_AND_VALUE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
#: What these tools write where a value is missing.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
#: blktrace writes a file for each processor; all belong to one recording.
_BLKTRACE = re.compile(r"(.+\.blktrace)\.(\d+)$", re.DOTALL)


class Recording(NamedTuple):
    """A file of a fleet."""

    #: Below the folder of the fleet, with `/` between folders.
    path: str
    bytes: int
    mtime_ns: int


def recordings(folder: Path, files: str = "*") -> list[Recording]:
    """Find the recordings of a fleet, in the order of their paths; files that begin with a dot are none.

    Args:
        folder: searched with all folders below it; links to folders are not followed.
        files: pattern of the file names, with `*` and `?`.

    Raises:
        InputError: a folder cannot be read.
    """
    found: list[Recording] = []

    def refuse(error: OSError) -> None:
        raise InputError.of(error)

    if not folder.is_dir():
        folder.stat()
        raise InputError.of(NotADirectoryError(20, "Not a directory", str(folder)))
    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.startswith(".") or not fnmatch(name, files):
                continue
            path = os.path.relpath(os.path.join(place, name), folder)  # noqa: PTH118 - a Path for each file is slow
            if (recording := _recording(folder, path)) is not None:
                found.append(recording)
    return _whole(sorted(found))


def _recording(folder: Path, path: str) -> Recording | None:
    try:
        there = (folder / path).stat()
    except OSError:
        # A link to nothing: reading it says so.
        return Recording(path.replace(os.sep, "/"), 0, 0)
    if not stat.S_ISREG(there.st_mode):
        return None
    return Recording(path.replace(os.sep, "/"), there.st_size, there.st_mtime_ns)


def _whole(found: list[Recording]) -> list[Recording]:
    """Take the files of one blktrace recording together, under the name of the first."""
    whole: dict[str, Recording] = {}
    for one in found:
        match = _BLKTRACE.match(one.path)
        name = match[1] if match else one.path
        first = whole.setdefault(name, one)
        if first is not one:
            changed_ns = max(first.mtime_ns, one.mtime_ns)
            whole[name] = first._replace(bytes=first.bytes + one.bytes, mtime_ns=changed_ns)
    return list(whole.values())


def metadata(path: str) -> dict[str, str | None]:
    """Read what the folders of a path say of it; of two folders with one key, the inner one counts.

    >>> metadata("model=Pixel%206a/build=B1/2024/boot.parquet")
    {'model': 'Pixel 6a', 'build': 'B1'}
    """
    matches = (_KEY_AND_VALUE.fullmatch(part) for part in path.split("/")[:-1])
    return {
        match[1]: None if match[2] in ("", _NO_VALUE) else unquote(match[2]) for match in matches if match
    }


def metadata_keys(found: list[Recording]) -> list[str]:
    """Name the keys of the folders of a fleet, sorted.

    Raises:
        ConfigError: two keys differ by the case of their letters only, which SQL does not tell apart.
    """
    first: dict[str, tuple[str, str]] = {}
    for recording in found:
        for key in metadata(recording.path):
            known, path = first.setdefault(key.lower(), (key, recording.path))
            if key != known:
                raise ConfigError(
                    f"{recording.path}: the key `{key}` is `{known}` in {path}",
                    kind="config",
                    file=recording.path,
                    field=key,
                    hint="spell the key the same in the names of all folders",
                )
    return sorted(key for key, _ in first.values())
