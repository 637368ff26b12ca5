"""Writes the files that a wheel installs besides its Python package: `wheel_data.py DIR`."""

import re
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import click_man.core
from typer.core import TyperOption

import notices
from emmclab import __version__
from emmclab.cli import application
from emmclab.cli.command import walk_commands
from emmclab.cli.failures import EXIT_CODES

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"


def write(folder: Path) -> None:
    """Write the manual pages, and the notices of the crates in the core to `share/doc/emmclab`."""
    write_manual(folder)
    notices.write(folder / "share" / "doc" / "emmclab" / "NOTICES-OF-CRATES.txt")


def write_manual(folder: Path) -> None:
    """Write a manual page for each command and one for the whole program to `share/man/man1`."""
    pages = folder / "share" / "man" / "man1"
    pages.mkdir(parents=True, exist_ok=True)
    group: Any = application()
    codes = ", ".join(f"{code} {about}" for code, about in EXIT_CODES.items())
    group.help += f"\n\nExit status: {codes}."
    for command in (group, *(command for _, command in walk_commands(group))):
        command.short_help = command.help.partition("\n")[0].rstrip(".")
        if command.epilog:
            command.help += "\n\n" + re.sub(r"\[/?\w*\]", "", command.epilog)
    # Typer contains its own copy of click, whose options have another class.
    with mock.patch.object(click_man.core.click, "Option", TyperOption):
        click_man.core.write_man_pages("emmclab", group, version=__version__, target_dir=str(pages), date=_released())


def _released() -> str:
    """Return the day of the newest version in CHANGELOG.md."""
    match = re.search(r"^## \[\d[^\]]*\] - (\S+)$", CHANGELOG.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if match is None:
        raise SystemExit("error: CHANGELOG.md has no `## [VERSION] - YYYY-MM-DD`\nhint: add the released version")
    return match[1]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("error: name the folder to write to\nhint: wheel_data.py FOLDER")
    write(Path(sys.argv[1]))
