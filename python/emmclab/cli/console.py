"""Data to stdout, words to stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

#: Columns of output that goes to a file or a pipe, where nothing says how wide the reader's window is.
_PIPE_WIDTH = 160


class ClosedPipe(Exception):  # noqa: N818 - not an error: whoever reads has seen enough.
    """Nobody reads stdout any more. Not a `BrokenPipeError`, of which typer would make its own exit code."""


def stdout() -> Console:
    """Give the console for data; colours only on a terminal and without NO_COLOR."""
    from emmclab.cli.data_console import DataConsole

    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
    return DataConsole(file=sys.stdout, highlight=False, width=wide, soft_wrap=False, emoji=False)


def stderr() -> Console:
    """Give the console for words."""
    from rich.console import Console

    return Console(file=sys.stderr, highlight=False, emoji=False)


def say(text: str) -> None:
    """Say a line on stderr, where nobody may be listening."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def put(text: str) -> None:
    """Put text and the end of its line on stdout as they are, without the time that tables take to import."""
    try:
        sys.stdout.write(f"{text}\n")
    except BrokenPipeError:
        raise ClosedPipe from None


def print_json(value: Any) -> None:
    """Print a value as JSON; the same value gives the same bytes."""
    put(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))
