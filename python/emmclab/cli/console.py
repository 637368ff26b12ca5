"""Results to stdout, messages to stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

#: Columns of output to a file or a pipe, which have no width.
_PIPE_WIDTH = 160


class ClosedPipe(Exception):  # noqa: N818 - not an error: the reader has seen enough.
    """The reader of stdout has closed it. Not a `BrokenPipeError`: typer has an exit code for that."""


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
    """Print a line on stderr, which may be closed."""
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
