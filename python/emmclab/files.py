"""Writing files whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_whole(path: str | Path, text: str) -> None:
    """Write `text` beside `path`, then put it in place; on any failure nothing is left behind.

    A device or a pipe is written directly.
    """
    path = Path(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_text(text, encoding="utf-8")
        return
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with aside.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            aside.unlink()
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise
