"""Finds the recordings of a fleet in a folder and its subfolders. Names of folders contain metadata."""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from emmclab.errors import ConfigError, InputError

#: Matches a folder name that is metadata of the recordings below it: `model=Pixel 6a`, as in Hive, DuckDB and Spark.
_KEY_AND_VALUE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
#: Text that Hive, DuckDB and Spark write for a missing value.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
#: Matches the name of one of blktrace's files; it writes one for each processor, and all belong to one recording.
_BLKTRACE = re.compile(r"(.+\.blktrace)\.(\d+)$", re.DOTALL)


class Recording(NamedTuple):
    """A recording of a fleet: path, size and version of the file."""

    #: Path below the folder of the fleet, with `/` between folders.
    path: str
    bytes: int
    #: Modification time of the file in nanoseconds; 0 for an object in an object store.
    mtime_ns: int
    #: The version tag of an object store; for a local file the change time of the inode (ctime).
    version: str = ""


def recordings(folder: Path, files: str = "*") -> list[Recording]:
    """Find the recordings of a fleet, in the order of their paths; names that begin with a dot are ignored.

    Args:
        folder: searched with all folders below it; links to folders are not followed.
        files: pattern of the file names, with `*` and `?`.
    """
    paths: list[Recording] = []

    def refuse(error: OSError) -> None:
        raise InputError.of(error)

    if not folder.is_dir():
        if not folder.exists():
            raise InputError("folder not found", hint="check the path").in_file(str(folder))
        raise InputError.of(NotADirectoryError(20, "Not a directory", str(folder)))
    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not _matches(name, files):
                continue
            path = os.path.relpath(os.path.join(place, name), folder)  # noqa: PTH118 - a Path for each file is slow
            if (recording := _recording(folder, path)) is not None:
                paths.append(recording)
    return _group_blktrace(sorted(paths))


def among(objects: Iterable[Recording], files: str = "*") -> list[Recording]:
    """Return the objects of an object store that are recordings, by the rules and in the order of `recordings`.

    An empty object is ignored if its name is the folder of other objects, because tools create such objects.

    >>> [recording.path for recording in among([Recording(path, 0, 0) for path in ("b/x", "a", ".c/d", "b")])]
    ['a', 'b/x']
    """
    recordings = list(objects)
    folders = {folder for recording in recordings for folder in _folders(recording.path)}
    return _group_blktrace(
        sorted(
            recording
            for recording in recordings
            if _matches(recording.path.rpartition("/")[2], files)
            and not any(folder.rpartition("/")[2].startswith(".") for folder in _folders(recording.path))
            and (recording.bytes or recording.path not in folders)
        )
    )


def parts_of(path: str, names: Iterable[str]) -> list[str]:
    """Return the files of a folder that belong to the recording of this path.

    >>> parts_of("x/a.blktrace.0", ["x/a.blktrace.0", "x/a.blktrace.11", "x/b.blktrace.0"])
    ['x/a.blktrace.0', 'x/a.blktrace.11']
    """
    match = _BLKTRACE.match(path)
    if match is None:
        return [path]
    return sorted(name for name in names if (name_match := _BLKTRACE.match(name)) and name_match[1] == match[1])


def is_in_parts(path: str) -> bool:
    """Whether a recording with this path may consist of several files, as with blktrace."""
    return _BLKTRACE.match(path) is not None


def _matches(name: str, files: str) -> bool:
    return not name.startswith(".") and fnmatch(name, files)


def _folders(path: str) -> Iterator[str]:
    """Yield each parent folder of a path."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _recording(folder: Path, path: str) -> Recording | None:
    try:
        status = (folder / path).stat()
    except OSError:
        # A broken symbolic link: the error is reported when the file is read.
        return Recording(path.replace(os.sep, "/"), 0, 0)
    if not stat.S_ISREG(status.st_mode):
        return None
    # The change time is added, because copies may preserve the modification time (`cp -p`, rsync).
    return Recording(path.replace(os.sep, "/"), status.st_size, status.st_mtime_ns, str(status.st_ctime_ns))


def _group_blktrace(recordings: list[Recording]) -> list[Recording]:
    """Group the files of each blktrace recording under the name of its first file."""
    groups: dict[str, Recording] = {}
    for recording in recordings:
        match = _BLKTRACE.match(recording.path)
        name = match[1] if match else recording.path
        first = groups.setdefault(name, recording)
        if first is not recording:
            changed_ns = max(first.mtime_ns, recording.mtime_ns)
            version = ",".join(filter(None, (first.version, recording.version)))
            size = first.bytes + recording.bytes
            groups[name] = first._replace(bytes=size, mtime_ns=changed_ns, version=version)
    return list(groups.values())


def metadata(path: str) -> dict[str, str | None]:
    """Read the metadata (`key=value`) in the folder names of a path; inner folders override outer ones.

    >>> metadata("model=Pixel%206a/build=B1/2024/boot.parquet")
    {'model': 'Pixel 6a', 'build': 'B1'}
    """
    matches = (_KEY_AND_VALUE.fullmatch(part) for part in path.split("/")[:-1])
    return {match[1]: None if match[2] in ("", _NO_VALUE) else unquote(match[2]) for match in matches if match}


def metadata_keys(recordings: list[Recording]) -> list[str]:
    """Return the metadata keys in the folder names of a fleet, sorted."""
    keys: dict[str, tuple[str, str]] = {}
    for recording in recordings:
        for key in metadata(recording.path):
            first_key, path = keys.setdefault(key.lower(), (key, recording.path))
            if key != first_key:
                raise ConfigError(
                    f"the key `{key}` is spelt `{first_key}` in {path}",
                    field=key,
                    hint="use the same upper and lower case letters for the key in the names of all folders",
                ).in_file(recording.path)
    return sorted(key for key, _ in keys.values())
