"""Results to stdout, messages to stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

#: Control characters, which a terminal would obey: the first 32 but tab and line feed, and those above ASCII.
_CONTROLS = {
    number: chr(0x2400 + number) if number < 0x20 else "\N{REPLACEMENT CHARACTER}"
    for number in (*range(9), *range(0x0B, 0x20), *range(0x7F, 0xA0))
}
#: Marks that change the direction of the text behind them.
_CONTROLS |= dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\N{REPLACEMENT CHARACTER}")

#: Columns of output to a file or a pipe, which have no width.
_PIPE_WIDTH = 160


class ClosedPipe(Exception):  # noqa: N818 - not an error: the reader has seen enough.
    """The reader of stdout has closed it. Not a `BrokenPipeError`: typer has an exit code for that."""


def harmless(text: str) -> str:
    r"""Give a text that moves no cursor and changes no colour: names in traces may hold any character.

    Everything that is printed for people passes through here; colours are added behind it.

    >>> harmless("a\x1b[31mb\tc")
    'a␛[31mb\tc'
    """
    return text.translate(_CONTROLS)


def stdout() -> Console:
    """Return the console for data; colours only on a terminal and without NO_COLOR."""
    from emmclab.cli.data_console import DataConsole

    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
    return DataConsole(file=sys.stdout, highlight=False, width=wide, soft_wrap=False, emoji=False)


def stderr() -> Console:
    """Return the console for messages."""
    from emmclab.cli.data_console import HarmlessConsole

    return HarmlessConsole(file=sys.stderr, highlight=False, emoji=False)


def say(text: str) -> None:
    """Print a line on stderr, which may be closed."""
    with contextlib.suppress(OSError, ValueError):
        print(harmless(text), file=sys.stderr, flush=True)


def put(text: str) -> None:
    """Put text and the end of its line on stdout, without the time that tables take to import."""
    try:
        sys.stdout.write(f"{harmless(text)}\n")
    except BrokenPipeError:
        raise ClosedPipe from None


def print_json(value: Any) -> None:
    """Print a value as JSON; the same value gives the same bytes."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    # JSON escapes the control characters of ASCII itself; the others are escaped here: none is lost.
    put(text.translate({number: f"\\u{number:04x}" for number in _CONTROLS if number >= 0x7F}))
