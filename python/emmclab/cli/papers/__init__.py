"""`emmclab papers`: reproduced papers and their tables, one file per command.

The results of their studies are judged by `emmclab reproduce` and `emmclab claims`.
"""

import typer

from emmclab.cli.command_groups import add_group
from emmclab.cli.help_format import examples

#: The commands in the order of the help.
COMMANDS = ("list", "tables")


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    add_group(app, __name__, COMMANDS, papers, examples("emmclab papers", "emmclab papers tables"))


def papers() -> None:
    """List the papers with their studies and claims, or print their published tables.

    Without a command: lists the papers.
    """
