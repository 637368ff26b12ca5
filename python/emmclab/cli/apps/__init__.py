"""`emmclab apps`: applications in closed loop, one file per command.

`running` has the options and the output of commands that run applications.
"""

from __future__ import annotations

import typer

from emmclab.cli.helping import examples, paragraphs
from emmclab.cli.listing import ListsByDefault, add_commands

#: The commands in the order of the help.
COMMANDS = ("list", "show", "hosts", "schema", "run", "compare", "solutions", "live", "learn")


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(cls=ListsByDefault, epilog=examples("emmclab apps", "emmclab apps run facebook"))
    group.callback(help=paragraphs(apps))(apps)
    add_commands(group, __name__, COMMANDS)
    app.add_typer(group, name="apps")


def apps() -> None:
    """Run applications in closed loop on a simulated device and show where their users' time goes.

    Without a command: lists the applications.
    """
