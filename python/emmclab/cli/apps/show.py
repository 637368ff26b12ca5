"""`emmclab apps show NAME`."""

import typer

from emmclab.apps.closed_loop import application_text
from emmclab.cli.apps.run_options import Application
from emmclab.cli.console import print_stdout
from emmclab.cli.help_format import examples


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=examples("emmclab apps show email"))(show)


def show(application: Application) -> None:
    """Print the file of an application, with its sources and assumptions."""
    print_stdout(application_text(application).rstrip("\n"))
