"""`emmclab papers`: reproduced papers and their tables, one file per command.

The results of their studies are judged by `emmclab reproduce` and `emmclab claims`.
"""

from __future__ import annotations

import typer

from emmclab.cli.helping import examples, paragraphs
from emmclab.cli.listing import ListsByDefault, add_commands

#: The commands in the order of the help.
COMMANDS = ("list", "tables")


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(cls=ListsByDefault, epilog=examples("emmclab papers", "emmclab papers tables"))
    group.callback(help=paragraphs(papers))(papers)
    add_commands(group, __name__, COMMANDS)
    app.add_typer(group, name="papers")


def papers() -> None:
    """List the papers with their studies and claims, or print their published tables.

    Without a command: lists the papers.
    """
