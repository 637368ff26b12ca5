"""Outputs of commands: a file, whose extension selects format and compression, or `-` for stdout."""

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from emmclab.cli.console import print_stderr, print_stdout
from emmclab.cli.name_completion import writable_format_names
from emmclab.errors import ConfigError, InputError
from emmclab.runtime.files import write_atomically

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
