"""One command writes a page with every table, figure and claim; it is small, logs no messages and fits a phone."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from browsing import Visit, check_fit
from conftest import Reproduced, emmclab_json, emmclab_ok
from emmclab.papers.claims import rules
from emmclab.papers.registry import papers
from emmclab.traces.workload import workload_groups

MOST_BYTES = 3_000_000
#: The claims that the study with the name of the paper measures.
CLAIMS = [rule.id for rule in rules(papers()["iiswc15"]) if rule.study == "iiswc15"]


@pytest.fixture(scope="module")
def page(reproduced: Reproduced) -> Path:
    return reproduced.page("iiswc15")


def test_the_page_is_one_small_file_that_names_how_to_get_it_again(page: Path) -> None:
    text = page.read_text()
    assert len(text.encode()) < MOST_BYTES
    assert "emmclab reproduce iiswc15" in text
    markup = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r'(src|href)="(?!#)', markup)


def test_every_claim_and_every_workload_stands_on_the_page(page: Path, browser: Browser) -> None:
    visit = Visit(browser, page)
    for claim in CLAIMS:
        assert visit.page.locator(f"#{claim} .badge").count() == 1, claim
    words = visit.page.locator("#tables").inner_text()
    groups = workload_groups()
    for name in (*groups["applications"], *groups["combos"]):
        assert name in words, name
    head = visit.page.locator("h1").inner_text()
    tested, *counts = map(int, re.findall(r"\d+", head))
    kinds = ("yes", "near", "no", "restated")
    badges = [visit.page.locator(f"#claims .badge.{kind}").count() for kind in kinds]
    assert badges == counts[:4]
    assert sum(badges[:3]) == tested
    assert sum(counts) == len(CLAIMS)


def test_the_page_fits_every_width_and_theme_and_is_accessible(page: Path, browser: Browser, axe: str) -> None:
    check_fit(browser, page, axe)


def test_on_paper_charts_fill_their_width_folds_are_open_and_nothing_is_cut(page: Path, browser: Browser) -> None:
    visit = Visit(browser, page, width=1280)
    visit.draw_all()
    assert visit.cut_on_paper() == []
    drawn = visit.page.locator(".chart svg").evaluate_all(
        "all => all.map(s => [s.getBoundingClientRect(), s.viewBox.baseVal]).map("
        "([r, v]) => (r.height / r.width) / (v.height / v.width))"
    )
    assert len(drawn) == 12
    assert all(abs(ratio - 1) < 0.02 for ratio in drawn), drawn
    assert visit.page.locator("details:not(.data, [open])").count() == 0
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    visit.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert visit.page.locator("details[open]").count() == 0


def test_data_and_sorting_work(page: Path, browser: Browser) -> None:
    visit = Visit(browser, page)
    visit.draw_all()
    data = visit.page.locator("#reduction details.data")
    data.locator("summary").click()
    # The content of a fold is drawn when the browser reports that it is open.
    data.locator("tbody tr").first.wait_for()
    assert data.locator("tbody tr").count() == 18
    table = visit.page.locator("#beyond table.sortable").first
    table.locator("thead button").nth(4).click()
    firsts = table.locator("tbody").evaluate_all("bodies => bodies.map(b => b.rows[0].cells[4].dataset.value)")
    values = [float(value) for value in firsts if value]
    assert values == sorted(values, reverse=True)


def test_figures_are_files_for_a_paper(page: Path) -> None:
    for ending, begins in (("svg", b"<svg"), ("pdf", b"%PDF"), ("csv", b"trace,")):
        files = sorted((page.parent / "figures").glob(f"*.{ending}"))
        assert len(files) == 12
        assert all(file.read_bytes().startswith(begins) for file in files)


def test_a_report_is_the_same_page_without_running(page: Path, reproduced: Reproduced, tmp_path: Path) -> None:
    second = tmp_path / "again.html"
    emmclab_ok("report", "iiswc15", "--results", reproduced.results, "--html", second)
    assert second.read_bytes() == page.read_bytes()


def test_a_trace_of_ones_own_is_the_26th_workload(reproduced: Reproduced, trace: Path, tmp_path: Path) -> None:
    words = ("reproduce", "iiswc15", "--html", tmp_path / "with.html", "--trace", trace)
    out = emmclab_json(*words, "--results", reproduced.copied(tmp_path))
    assert len(out["claims"]) == len(CLAIMS)
    assert all(claim["evidence"]["recorded"] == [] for claim in out["claims"])
    text = (tmp_path / "with.html").read_text()
    assert "chat (recorded)" in text
    assert "26 workloads" in text
