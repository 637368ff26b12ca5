"""Documents: links lead somewhere, and DESIGN.md stays short."""

from __future__ import annotations

import re
from pathlib import Path

from conftest import ROOT
from test_house_rules import complain, place, tracked

DESIGN_LINES = 150


def anchors(page: Path) -> set[str]:
    """The anchors of a Markdown page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    words = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in words}


def test_every_link_of_a_document_leads_to_a_file_and_heading() -> None:
    faults = []
    for page in tracked(".md"):
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            name, _, anchor = target.partition("#")
            if "://" in target:
                continue
            there = (page.parent / name).resolve() if name else page
            if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
                faults.append(f"{place(page)}: {target}")
    complain(faults, "name a file, and a heading in it, that exist")


def test_the_design_can_be_read_at_one_sitting() -> None:
    lines = (ROOT / "DESIGN.md").read_text().count("\n")
    cure = "move the details to a page of docs/concepts"
    complain([f"DESIGN.md has {lines} lines"] if lines >= DESIGN_LINES else [], cure)
