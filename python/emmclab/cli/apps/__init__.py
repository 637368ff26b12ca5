"""`emmclab apps`: applications in closed loop, one file per command.

`run_options` has the options and the output of commands that run applications.
"""

import typer

from emmclab.cli.command_groups import add_group
from emmclab.cli.help_format import examples

#: The commands in the order of the help.
COMMANDS = ("list", "show", "hosts", "schema", "run", "compare", "solutions", "live", "learn")


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    add_group(app, __name__, COMMANDS, apps, examples("emmclab apps", "emmclab apps run facebook"))


def apps() -> None:
    """Run applications in closed loop on a simulated device and show where their users' time goes.

    Without a command: lists the applications.
    """
