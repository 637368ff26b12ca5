"""Prints results on stdout, and messages on stderr."""

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from emmclab.errors import CONTROLS, harmless

if TYPE_CHECKING:
    from rich.console import Console

#: Tab and line feed, with their visible replacements.
_BREAKS = {number: chr(0x2400 + number) for number in map(ord, "\t\n")}

#: Width of output to a file or a pipe, in columns.
_PIPE_WIDTH = 160


class ClosedPipe(Exception):  # noqa: N818 - not an error: the reader needs no more output.
    """Raised when the reader closes stdout; not a `BrokenPipeError`, for which typer would set its own exit code."""


def one_line(text: str) -> str:
    r"""Replace line breaks and tabs by visible symbols: in names of traces they would break a row.

    >>> one_line("a\nb\tc")
    'a␊b␉c'
    """
    return harmless(text).translate(_BREAKS)


def stdout() -> "Console":
    """Return the console for data; colours only on a terminal and without NO_COLOR."""
    from emmclab.cli.tables import DataConsole

    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
    return DataConsole(file=sys.stdout, highlight=False, width=wide, soft_wrap=False, emoji=False)


def stderr() -> "Console":
    """Return the console for messages."""
    from emmclab.cli.tables import HarmlessConsole

    return HarmlessConsole(file=sys.stderr, highlight=False, emoji=False)


def print_stderr(text: str) -> None:
    """Print a line on stderr; ignore errors, for example if stderr is closed."""
    with contextlib.suppress(OSError, ValueError):
        print(harmless(text), file=sys.stderr, flush=True)


def print_note(text: str, *, aside: bool) -> None:
    """Print a note on stdout, or on stderr if `aside` is set (for JSON on stdout); print nothing if it is empty."""
    if text and aside:
        print_stderr(f"note: {text}")
    elif text:
        from rich.text import Text

        stdout().print(Text(f"note: {text}"), soft_wrap=True)


def print_stdout(text: str) -> None:
    """Print a line on stdout without importing rich, which takes time."""
    try:
        sys.stdout.write(f"{harmless(text)}\n")
    except BrokenPipeError:
        raise ClosedPipe from None


def json_text(value: Any) -> str:
    """Return a value as JSON; equal values result in equal bytes."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=dict)  # Records are mappings.
    # `json.dumps` escapes the control characters of ASCII; the others are escaped here, so that none is lost.
    return text.translate({number: f"\\u{number:04x}" for number in CONTROLS if number >= 0x7F})


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print_stdout(json_text(value))
