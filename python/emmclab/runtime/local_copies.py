"""Paths and digests of the files that a study's simulations read: the original files, or copies on a cluster node."""

import contextlib
import functools
import hashlib
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from emmclab import _core
from emmclab.errors import InputError

#: Paths of local copies of files, by the path that the study names.
_copies: dict[str, str] = {}


def local_path(path: str) -> str:
    """Return the local path of a file or of its copy; return other texts, such as preset names, unchanged.

    >>> local_path("nexus5")
    'nexus5'
    """
    return _copies.get(path, path)


def use_copies(copies: Mapping[str, str]) -> None:
    """Set the local copies of files that simulations in this process read."""
    _copies.clear()
    _copies.update(copies)


@functools.cache
def file_digest(path: str) -> str:
    """Return the SHA-256 of a file's bytes, first 16 digits."""
    local = Path(local_path(path))
    if local.exists() and not local.is_file():
        raise InputError("this is not a regular file", hint="use a regular file: it is read more than once").in_file(
            path
        )
    try:
        with local.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        hint = "use the name of a workload (`emmclab synth` lists them) or the path of a trace"
        raise InputError.of(error, path, hint) from error


def build_digest() -> str:
    """Return the digest of the compiled Rust core; stored results of other builds are not reused."""
    return file_digest(_core.__file__)


def scratch() -> Path:
    """Return this user's folder for cached and temporary data on this machine; create it if it is missing.

    A link in its place is an error: another user could have created it, and emmclab removes old files in the folder.
    """
    user = os.geteuid() if hasattr(os, "geteuid") else 0
    folder = Path(tempfile.gettempdir()) / f"emmclab-{user}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    problem = None
    if stat.S_ISLNK(status.st_mode):
        problem = "is a symbolic link"
    elif not stat.S_ISDIR(status.st_mode):
        problem = "is not a folder"
    elif hasattr(os, "geteuid") and status.st_uid != user:
        problem = f"belongs to another user ({status.st_uid})"
    elif hasattr(os, "geteuid") and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        problem = f"can be written to by other users (mode {stat.S_IMODE(status.st_mode):o})"
    if problem is not None:
        raise InputError(
            f"temporary data cannot be stored here, because this path {problem}",
            hint="set TMPDIR to a folder that only you can write to, such as one in your home folder",
        ).in_file(str(folder))
    return folder
