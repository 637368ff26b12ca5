"""The command line: one file per command.

Only the command that runs is imported, and of slow imports (tables, charts, SQL, studies) only those that
it needs; so commands import rooms inside their functions, which no other room does. This room may import
all others, and none imports it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Annotated, Any

import typer

from emmclab import __version__
from emmclab.cli import failures
from emmclab.cli.console import put, stdout
from emmclab.cli.helping import examples, paragraphs
from emmclab.cli.spelling import spelled_out

#: The commands in the order of the help; each is registered by the module of its name.
COMMANDS = (
    "demo",
    "profile",
    "journal",
    "record",
    "top",
    "convert",
    "head",
    "explain",
    "formats",
    "simulate",
    "compare",
    "apps",
    "serve",
    "control",
    "crash",
    "advise",
    "devices",
    "calibrate",
    "layers",
    "probe",
    "published",
    "synth",
    "fit",
    "compare-profiles",
    "fleet",
    "run",
    "collect",
    "search",
    "query",
    "report",
    "papers",
    "claims",
    "reproduce",
)
#: Set by the scripts of `--show-completion` when a shell asks for completion.
_COMPLETING = "_EMMCLAB_COMPLETE"


def application(commands: Iterable[str] = COMMANDS) -> typer.Typer:
    """Make the application with these commands; with all commands it also has the completion options."""
    app = typer.Typer(
        name="emmclab",
        rich_markup_mode="rich",
        add_completion=commands is COMMANDS or _COMPLETING in os.environ,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(
        invoke_without_command=True, epilog=examples("emmclab profile trace.txt --html report.html")
    )(emmclab)
    for name in commands:
        import_module(f"{__name__}.{name.replace('-', '_')}").register(app)
    for command in app.registered_commands:
        if command.callback is not None:
            command.help = paragraphs(command.callback)
    return app


def emmclab(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)
    ] = False,
) -> None:
    """A laboratory for the flash storage of phones and boards: record, characterise and simulate its I/O."""
    if version:
        put(f"emmclab {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        stdout().print(context.get_help(), end="", markup=False)


def prepared(words: list[str]) -> Callable[..., Any]:
    """Make an application for these words: with their command only, or with all commands for help."""
    if words == ["--version"]:
        return typer.main.get_command(application([]))
    if _COMPLETING in os.environ:
        # A shell asks for completion; the words before the one that is completed are in the environment.
        words = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()[1:-1]
    return typer.main.get_command(application(words[:1] if words and words[0] in COMMANDS else COMMANDS))


def main(words: list[str]) -> int:
    """Run the command line; return the exit code (see `failures`)."""
    return failures.run(prepared(words), spelled_out(words))
