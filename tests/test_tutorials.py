"""Tutorials are executed: each command runs as printed, and its output is what the page shows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import ROOT, missing, need
from pages import Step, follow, parts
from repository import complain

pytestmark = pytest.mark.slow

TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))
#: Programs that a page uses in addition to emmclab and a shell.
NEEDS = {
    "android-platform-engineer": ("jq", "sqlite3", "strace"),
    "firmware-engineer": ("jq", "qemu-io"),
    "storage-researcher": ("jq",),
}


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_every_command_of_a_tutorial_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    need(*NEEDS[page.stem])
    as_root = os.geteuid() == 0 and Path("/dev/fuse").exists() and Path("/dev/loop-control").exists()
    complain(follow(page, tmp_path, as_root=as_root), "show what the command prints, or mend the command")
    if not as_root and any(isinstance(part, Step) and part.as_root for part in parts(page)):
        missing("root, for some of the commands of a page,", "run the tests with sudo")
