"""`emmclab papers`: reproduced papers and their tables, one file per command."""

from emmclab.cli.command import command

#: Modules of the commands of `emmclab papers`, in the order of the help.
MODULES = ("list", "tables")


@command("emmclab papers", "emmclab papers tables")
def papers() -> None:
    """List the papers with their studies and claims, or print their published tables.

    Without a command: lists the papers.
    """
