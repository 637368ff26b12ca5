"""Tutorials are followed: each command runs as it is printed, and prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import ROOT
from pages import File, Step, follow, parts
from test_house_rules import complain

TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_every_command_of_a_tutorial_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    complain(follow(page, tmp_path), "show what the command prints, or mend the command")


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


def test_dots_stand_for_text_and_for_lines_and_nothing_else_is_passed_over() -> None:
    step = Step("x", ("a ... c", "...", "end"))
    assert step.agrees("a b c\nend\n") and step.agrees("a b c\n1\n2\nend  \n")
    assert not step.agrees("a b\nend\n") and not step.agrees("a b c\nend\nmore\n")
    assert not Step("x", ()).agrees("printed\n") and Step("x", ()).agrees("")
