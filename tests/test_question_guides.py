"""Guides that answer a question are executed: each command prints what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import ROOT, missing, need
from pages import follow
from repository import complain

pytestmark = pytest.mark.slow

#: The guides, and the programs that each uses in addition to emmclab and a shell.
GUIDES = {
    "database-commits": ("setpriv",),
    "empty-configuration": (),
    "mount-options": (),
    "sqlite-safe": (),
}
POSTGRESQL = Path("/usr/lib/postgresql/15/bin/initdb")


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("guide", GUIDES)
def test_every_command_of_a_guide_prints_what_it_shows(guide: str, tmp_path: Path) -> None:
    need("mkfs.ext4", *GUIDES[guide])
    if guide == "database-commits" and not POSTGRESQL.exists():
        missing("PostgreSQL 15", "apt-get install postgresql-15")
    complain(follow(_page(guide), tmp_path), "show what the command prints, or mend the command")


def test_the_rehearsal_of_a_device_that_lies_prints_what_the_guide_shows(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    complain(follow(_page("sd-card-lies"), tmp_path), "show what the command prints, or mend the command")


def _page(guide: str) -> Path:
    return ROOT / f"docs/guides/{guide}.md"
