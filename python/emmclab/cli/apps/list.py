"""`emmclab apps list`."""

import typer

from emmclab.apps.closed_loop import applications
from emmclab.cli.console import print_json, stdout
from emmclab.cli.help_format import examples
from emmclab.cli.options import AsJson


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("list", epilog=examples("emmclab apps list --json"))(list_applications)


def list_applications(as_json: AsJson = False) -> None:
    """List the applications that come with emmclab."""
    rows = applications()
    if as_json:
        print_json(rows)
        return
    from emmclab.cli.apps.show_applications import show_applications

    show_applications(stdout(), rows)
