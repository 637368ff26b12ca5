"""`emmclab apps schema`."""

import typer

from emmclab.apps.closed_loop import application_schema
from emmclab.cli.console import print_json
from emmclab.cli.help_format import examples


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=examples("emmclab apps schema"))(schema)


def schema() -> None:
    """Print the JSON Schema of the files of applications."""
    print_json(application_schema())
