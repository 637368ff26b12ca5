"""The command line: one file per command.

Only the command that runs is imported, and of slow imports (tables, charts, SQL, studies) only those that it
needs.
"""

from __future__ import annotations

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


def application(commands: Iterable[str] = COMMANDS) -> typer.Typer:
    """Make the application with these commands."""
    app = typer.Typer(
        name="emmclab",
        rich_markup_mode="rich",
        # Scripts of our own start no process for each word that is completed.
        add_completion=False,
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
    completion: Annotated[
        str | None,
        typer.Option(
            "--show-completion",
            metavar="bash|zsh|fish",
            help="Print the script that completes emmclab's command line in a shell.",
            is_eager=True,
        ),
    ] = None,
) -> None:
    """A laboratory for the flash storage of phones and boards: record, characterise and simulate its I/O."""
    if version:
        put(f"emmclab {__version__}")
        raise typer.Exit
    if completion is not None:
        from emmclab.cli.completion import script

        put(script(completion).rstrip("\n"))
        raise typer.Exit
    if context.invoked_subcommand is None:
        stdout().print(context.get_help(), end="", markup=False)


def prepared(words: list[str]) -> Callable[..., Any]:
    """Make what runs these words: with the command that they begin with, or with all for a page of help."""
    if words == ["--version"]:
        return typer.main.get_command(application([]))
    return typer.main.get_command(application(words[:1] if words and words[0] in COMMANDS else COMMANDS))


def main(words: list[str]) -> int:
    """Run the command line; return the exit code, whose numbers stand in `failures`."""
    return failures.run(prepared(words), spelled_out(words))
