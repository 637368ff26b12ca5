"""The study of the implications: claims and page of a small run."""

from dataclasses import replace
from pathlib import Path

import pytest

from conftest import emmclab_ok
from emmclab.papers.claims import CANNOT, judge_study
from emmclab.papers.iiswc15.implications_page import drawings
from emmclab.papers.pages import assemble_page
from emmclab.runtime.executors import Serial
from emmclab.studies import Study
from emmclab.studies.grid import Grid
from emmclab.studies.results import Results
from emmclab.studies.run import run_study

pytestmark = pytest.mark.slow

#: The five applications of Characteristic 4, and one other application.
_INPUTS = ("Idle", "CallIn", "CallOut", "YouTube", "WebBrowsing", "Messaging")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    """Run the study with few inputs, shortened."""
    study = Study.named("implications")
    phone = {f"geometry.block_groups.{group}.blocks": 32 for group in range(2)}

    def shortened(grid: Grid) -> Grid:
        """Return a grid with few requests, and with a small device if it is aged."""
        small = dict(grid.set)
        if grid.option("precondition") == "steady:1" and grid.devices == ("nexus5",):
            small |= phone | ({"slc.blocks": 8} if "slc.blocks" in small else {})
        return replace(grid, inputs=_INPUTS, requests=min(grid.requests or 300, 2000), set=small)

    grids = tuple(shortened(grid) for grid in study.grids)
    small = replace(study, inputs=_INPUTS, grids=grids)
    return run_study(small, folder / "implications", Serial())


def test_every_claim_gets_a_verdict_from_the_runs(results: Results) -> None:
    claims = judge_study(results)
    assert [claim.id for claim in claims] == [
        "iiswc-c4",
        "iiswc-impl1-sdcard",
        "iiswc-impl1-queues",
        "iiswc-packing",
        "iiswc-impl2-idle-gc",
        "iiswc-impl3-ram",
        "iiswc-impl4-wear",
        "iiswc-impl5-slc",
        "iiswc-8ps-wear",
    ]
    assert all(claim.verdict != CANNOT and claim.measured != "–" and claim.reason for claim in claims)


def test_what_more_wake_ups_could_not_explain_is_said(results: Results) -> None:
    """Idle's published mean service time of 7.42 ms exceeds that with a 4 ms wake-up before each request."""
    reason = judge_study(results)[0].reason
    assert "Idle" in reason
    assert "wakes up more slowly" in reason


def test_the_page_has_a_picture_and_an_answer_for_each(results: Results) -> None:
    claims = judge_study(results)
    drawn = drawings(results)
    page = assemble_page(results, claims, drawn)
    assert page == assemble_page(results, claims, drawings(results)), "the same results give the same bytes"
    for drawing in drawn:
        assert f'id="{drawing.name}"' in page
        assert drawing.rows
    for claim in claims:
        assert claim.verdict in page


def test_report_draws_the_same_page_of_a_finished_study(folder: Path, results: Results) -> None:
    page = folder / "page.html"
    emmclab_ok("report", "implications", "--results", folder, "--html", page)
    assert page.read_text() == assemble_page(results, judge_study(results), drawings(results))
