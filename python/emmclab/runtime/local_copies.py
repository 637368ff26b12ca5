"""Paths of the files that cells read on this machine: as a study names them, or copies on a cluster node."""

import contextlib
import functools
import hashlib
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from emmclab.errors import InputError

#: Paths of copies, by the path in the study.
_copies: dict[str, str] = {}


def local_path(path: str) -> str:
    """Return the local path of a file; any other text, such as the name of a preset, is returned unchanged.

    >>> local_path("nexus5")
    'nexus5'
    """
    return _copies.get(path, path)


def use_copies(copies: Mapping[str, str]) -> None:
    """Make cells of this process read these copies."""
    _copies.clear()
    _copies.update(copies)


@functools.cache
def file_digest(path: str) -> str:
    """Return the SHA-256 of a file's bytes, first 16 digits."""
    place = Path(local_path(path))
    if place.exists() and not place.is_file():
        raise InputError(
            f"{path}: this is not a regular file", file=path, hint="name a file, because it is read more than once"
        )
    try:
        with place.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        hint = "name a workload (`emmclab synth` lists them) or the path of a trace"
        raise InputError.of(error, path, hint) from error


def scratch() -> Path:
    """Make the folder of this user for temporary data that saves time on this machine.

    It is in a folder that is writable for every user, and is swept. A link that another user put in its place
    would make this user remove files elsewhere, so links are rejected.
    """
    user = os.geteuid() if hasattr(os, "geteuid") else 0
    folder = Path(tempfile.gettempdir()) / f"emmclab-{user}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    problem = None
    if stat.S_ISLNK(found.st_mode):
        problem = "is a symbolic link"
    elif not stat.S_ISDIR(found.st_mode):
        problem = "is not a folder"
    elif hasattr(os, "geteuid") and found.st_uid != user:
        problem = f"belongs to another user ({found.st_uid})"
    elif hasattr(os, "geteuid") and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        problem = f"can be written to by other users (mode {stat.S_IMODE(found.st_mode):o})"
    if problem is not None:
        raise InputError(
            f"{folder}: temporary data would be stored here, but this path {problem}",
            file=str(folder),
            hint="set TMPDIR to a folder of your own, as one below your home",
        )
    return folder
