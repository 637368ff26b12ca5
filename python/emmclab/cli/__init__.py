"""The command line: one file per command.

Each is imported whatever runs, so what takes long to import (charts, SQL, studies) is imported inside the
command that needs it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from emmclab import __version__
from emmclab.cli import (
    advise,
    calibrate,
    claims,
    compare,
    compare_profiles,
    convert,
    demo,
    devices,
    explain,
    fit,
    formats,
    head,
    layers,
    probe,
    profile,
    published,
    query,
    record,
    report,
    reproduce,
    run,
    simulate,
    synth,
    top,
)
from emmclab.cli.console import stdout
from emmclab.cli.failures import run as run_command

app = typer.Typer(
    name="emmclab",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    demo,
    profile,
    record,
    top,
    convert,
    head,
    explain,
    formats,
    simulate,
    compare,
    advise,
    devices,
    calibrate,
    layers,
    probe,
    published,
    synth,
    fit,
    compare_profiles,
    run,
    query,
    report,
    claims,
    reproduce,
):
    command.register(app)


@app.callback(
    invoke_without_command=True, epilog="Example: [cyan]emmclab profile trace.txt --html report.html[/]"
)
def emmclab(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)
    ] = False,
) -> None:
    """A laboratory for the flash storage of phones and boards: what a workload asks, and what that means."""
    if version:
        stdout().print(f"emmclab {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        stdout().print(context.get_help(), end="", markup=False)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code: 2 bad input, 1 failed run, 130 Ctrl-C, 141 closed pipe."""
    return run_command(typer.main.get_command(app), arguments)
