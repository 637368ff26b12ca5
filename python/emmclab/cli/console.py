"""Outputs of commands: results on stdout or in files, and messages on stderr.

The extension of an output file selects its format and compression; `-` means stdout.
"""

import contextlib
import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emmclab.cli.name_completion import writable_format_names
from emmclab.errors import CONTROLS, ConfigError, InputError, harmless
from emmclab.runtime.files import write_atomically

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


#: The name that means stdout.
STDOUT = Path("-")


To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="NAME",
        help="Format of the output, for example csv.gz; default: from the extension of the output file.",
        autocompletion=writable_format_names,
    ),
]


def in_a_folder(path: Path | None) -> Path | None:
    """Return the path of an output file; reject it before any work is done if its folder is missing."""
    if path == STDOUT:
        raise ConfigError("this output cannot go to stdout (`-`)", hint="give a file name")
    return in_a_folder_or_stdout(path)


def in_a_folder_or_stdout(path: Path | None) -> Path | None:
    """Return the path of an output, which may be `-`; reject it if its folder is missing."""
    if path is not None and not path.absolute().parent.is_dir():
        raise InputError.of(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)))
    return path


def output_option(
    help_: str, *, metavar: str = "FILE", callback: Callable[[Path | None], Path | None] | None = in_a_folder
) -> Any:
    """Create the option `--output` for the output file of a command."""
    return typer.Option("--output", "-o", metavar=metavar, callback=callback, help=help_)


#: Option for the output file of a device preset.
PresetFile = Annotated[Path | None, output_option("Output file for the preset; default: stdout.")]
PresetName = Annotated[
    str | None, typer.Option(metavar="NAME", help="Name of the preset; default: the name of the output file.")
]


def to_stdout(output: Path, as_json: bool = False) -> None:
    """Reject stdout as an output if it is closed, or if the report in JSON also goes to stdout."""
    if output != STDOUT:
        return
    if as_json:
        raise ConfigError(
            "the trace and the report in JSON would both go to stdout",
            field="--json",
            hint="give an output file, or leave out --json",
        )
    # If stdout was closed when emmclab started, its replacement object has no `buffer`.
    if not hasattr(sys.stdout, "buffer"):
        raise InputError("the standard output is closed", file="-", hint="give an output file")


def note_picture(output: Path, to: str | None = None) -> None:
    """Print a note if the output is a timeline for the Perfetto viewer, which cannot be read as a trace."""
    has_extension = {".pftrace", ".perfetto-trace"} & {suffix.lower() for suffix in output.suffixes[-2:]}
    if to.partition(".")[0] == "perfetto" if to else has_extension:
        print_stderr("note: this is a picture for ui.perfetto.dev, which cannot be read as a trace")


def report(output: Path, text: str) -> None:
    """Print a summary of the output on stdout, or on stderr if the output itself went to stdout."""
    (print_stderr if output == STDOUT else print_stdout)(text)


def write_page(path: Path, page: str) -> None:
    """Write a page atomically, and print its name."""
    write_atomically(path, page)
    print_stderr(f"report: {path}")


def write_text(output: Path | None, text: str) -> None:
    """Write a text atomically to a file, or to stdout for `-` or None."""
    if output is None or output == STDOUT:
        print_stdout(text.removesuffix("\n"))
    else:
        write_atomically(output, text)
