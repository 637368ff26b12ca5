"""Files that cells read, as they lie on this machine: where a study names them, or as copies on a node."""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from emmclab.errors import InputError

#: Copies by the path that a study names.
_copies: dict[str, str] = {}


def located(path: str) -> str:
    """Give where a file is on this machine; what is no file, as the name of a preset, stays as it is.

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
    try:
        with Path(located(path)).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        hint = "name a workload (`emmclab synth` lists them) or the path of a trace"
        raise InputError.of(error, path, hint) from error


def scratch() -> Path:
    """Make the folder of this user for what is only kept on this machine to save time.

    Raises:
        InputError: another user has a folder of its name.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"emmclab-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid") and folder.stat().st_uid != user:
        raise InputError(
            f"{folder}: this folder belongs to another user",
            kind="io",
            file=str(folder),
            hint="let TMPDIR name a folder of your own",
        )
    return folder
