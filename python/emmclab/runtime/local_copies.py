"""Files that cells read, as they lie on this machine: where a study names them, or as copies on a node."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from emmclab.errors import InputError

#: Copies by the path that a study names.
_copies: dict[str, str] = {}


def located(path: str) -> str:
    """Return where a file is on this machine; what is no file, as the name of a preset, stays as it is.

    >>> located("nexus5")
    'nexus5'
    """
    return _copies.get(path, path)


def use_copies(copies: Mapping[str, str]) -> None:
    """Let cells of this process read these copies."""
    _copies.clear()
    _copies.update(copies)


@functools.cache
def file_digest(path: str) -> str:
    """SHA-256 of a file's bytes, first 16 digits.

    Raises:
        InputError: it cannot be read.
    """
    place = Path(located(path))
    if place.exists() and not place.is_file():
        raise InputError(
            f"{path}: this is not a regular file",
            kind="io",
            file=path,
            hint="name a file: it is read again and again",
        )
    try:
        with place.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        hint = "name a workload (`emmclab synth` lists them) or the path of a trace"
        raise InputError.of(error, path, hint) from error


def scratch() -> Path:
    """Make the folder of this user for what is only kept on this machine to save time.

    It lies where every user can make files, and is swept: a link that another user put in its place would
    have this user remove files elsewhere.

    Raises:
        InputError: what has its name is no folder that only this user can write to.
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
            f"{folder}: what is kept to save time would lie here, but this {problem}",
            kind="io",
            file=str(folder),
            hint="let TMPDIR name a folder of your own, as one below your home",
        )
    return folder
