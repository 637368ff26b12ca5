"""`emmclab apps hosts`."""

import typer

from emmclab.apps.closed_loop import hosts as all_hosts
from emmclab.cli.console import print_json, stdout
from emmclab.cli.help_format import examples
from emmclab.cli.options import AsJson


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=examples("emmclab apps hosts"))(hosts)


def hosts(as_json: AsJson = False) -> None:
    """List the hosts of applications, with their partitions and networks."""
    rows = all_hosts()
    if as_json:
        print_json(rows)
        return
    from emmclab.cli.apps.show_applications import show_hosts

    show_hosts(stdout(), rows)
