"""Tutorials are followed: each command runs as it is printed, and prints what the page shows."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from conftest import ROOT, missing
from pages import File, Step, follow, parts
from test_house_rules import complain

TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))
#: Programs that a page starts beside emmclab and a shell.
NEEDS = {
    "android-platform-engineer": ("jq", "sqlite3", "strace"),
    "firmware-engineer": ("jq", "qemu-io"),
    "storage-researcher": ("jq",),
}


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_every_command_of_a_tutorial_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    for tool in NEEDS[page.stem]:
        if shutil.which(tool) is None:
            missing(tool)
    as_root = os.geteuid() == 0 and Path("/dev/fuse").exists() and Path("/dev/loop-control").exists()
    complain(follow(page, tmp_path, as_root=as_root), "show what the command prints, or mend the command")
    if not as_root and any(isinstance(part, Step) and part.as_root for part in parts(page)):
        missing("root with FUSE and loop devices, for some of its commands")


def test_a_page_gives_files_and_commands_with_their_output(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```toml\n# a.toml\nx = 1\n```\n\n"
        "```console\n$ cat \\\n  a.toml\nx = 1\n$ true\n```\n```toml\ny = 1\n```\n"
    )
    given = parts(page)
    assert given[0] == File("a.toml", "# a.toml\nx = 1\n")
    assert given[1:] == [Step("cat \\\n  a.toml", ("x = 1",)), Step("true", ())]
    (fault,) = follow(page, tmp_path)
    assert "# a.toml" in fault


def test_what_root_gives_stands_behind_a_prompt_of_root_and_is_left_out_for_others(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n# emmclab no-such-command\n$ true\n```\n")
    steps = parts(page)
    assert [step.as_root for step in steps if isinstance(step, Step)] == [True, False]
    assert follow(page, tmp_path, as_root=False) == []
    with pytest.raises(AssertionError, match="exit status 2"):
        follow(page, tmp_path)


def test_dots_stand_for_text_and_for_lines_and_nothing_else_is_passed_over() -> None:
    step = Step("x", ("a ... c", "...", "end"))
    assert step.agrees("a b c\nend\n") and step.agrees("a b c\n1\n2\nend  \n")
    assert not step.agrees("a b\nend\n") and not step.agrees("a b c\nend\nmore\n")
    assert not Step("x", ()).agrees("printed\n") and Step("x", ()).agrees("")
    progress = (
        "simulate x on y, 9 s simulated: 41 %, 8,192 requests, 0.0 M/s\nz: 8 of 17 cells, about 2 s left\n"
    )
    assert Step("x", ("end",)).agrees(progress + "end\n")
