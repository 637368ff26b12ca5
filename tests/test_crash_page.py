"""The page of power cuts in a browser: the answer, its evidence, and what was not covered."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from browsing import Visit
from conftest import emmclab_ok
from crash_runs import DEVICE, DOCUMENTED, SUMMARY, clean_run, documented, scene
from emmclab.pages.crash import render

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages of runs with findings, without findings, with a documented loss, and with 10,000 cuts."""
    folder = tmp_path_factory.mktemp("crash")
    clean, quiet = clean_run()
    files = {
        "broken": render(SUMMARY, scene(300, 2)),
        "clean": render(clean, quiet),
        "documented": render(*documented()),
        "many": render(SUMMARY | {"cuts": 10_000}, scene(10_000, 2)),
    }
    for name, text in files.items():
        (folder / f"{name}.html").write_text(text)
    return {name: folder / f"{name}.html" for name in files}


@pytest.mark.parametrize("width", [1280, 390])
def test_the_first_screen_says_who_broke_which_promise(browser: Browser, pages: dict[str, Path], width: int) -> None:
    visit = Visit(browser, pages["broken"], width=width)
    title = visit.page.locator("h1")
    assert title.inner_text() == (
        "The journal of ext4 (mounted with nobarrier) broke a promise: a commit block was written while "
        "blocks of its transaction could still be lost, in 9,887 of 11,555 states"
    )
    tiles = visit.page.locator(".tiles dd:first-of-type")
    assert [text.replace("\n", "") for text in tiles.all_inner_texts()] == [
        "2",
        "11,555",
        "300",
        "100",
        "1.2 \u00d7 10148",
        "1",
    ]
    for part in (title, tiles.last):
        box = part.bounding_box()
        assert box is not None and box["y"] + box["height"] <= 900 and box["x"] + box["width"] <= width
    visit.page.close()


def test_without_a_finding_the_answer_is_that_nothing_safe_was_lost(browser: Browser, pages: dict[str, Path]) -> None:
    visit = Visit(browser, pages["clean"])
    assert visit.page.locator("h1").inner_text() == ("No acknowledged data was lost in 11,555 states of 300 cuts")
    assert visit.page.locator("#findings").count() == visit.page.locator(".badge.broken").count() == 0
    visit.page.close()


def test_a_documented_loss_stands_apart_and_is_called_no_defect(browser: Browser, pages: dict[str, Path]) -> None:
    visit = Visit(browser, pages["documented"])
    assert "No promise was broken" in visit.page.locator("h1").inner_text()
    assert visit.page.locator("#findings").count() == 0
    loss = visit.page.locator("#documented").inner_text()
    assert "no defect" in loss and DOCUMENTED["documented"] in loss and "in 1,738 of 11,555 states" in loss
    visit.page.close()


def test_ten_thousand_cuts_are_a_picture_of_bounded_size(browser: Browser, pages: dict[str, Path]) -> None:
    visit = Visit(browser, pages["many"])
    visit.draw_all()
    rows: list[dict[str, Any]] = visit.page.evaluate(
        """() => {
            const [part] = JSON.parse(document.getElementById('page-data').textContent).data.cuts;
            return [...Array(part.rows).keys()].map(i => Object.fromEntries(Object.entries(part.columns)
                .map(([name, column]) => [name, Array.isArray(column) ? column[i] : column])));
        }"""
    )
    of_cuts = [row for row in rows if row["row"] in ("promise broken", "all states kept")]
    assert sum(row["marks"] for row in of_cuts) == 10_000
    assert sum(row["states"] for row in of_cuts) == 30 * 10_000
    assert len(rows) < 3 * 502 + 2
    visit.page.close()


def test_the_command_of_a_finding_is_copied(browser: Browser, pages: dict[str, Path]) -> None:
    visit = Visit(browser, pages["broken"])
    visit.draw_all()
    visit.page.evaluate("() => { navigator.clipboard.writeText = async (text) => { window.copied = text; }; }")
    button = visit.page.get_by_role("button", name="Copy the command of finding 1")
    button.focus()
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_function("window.copied !== undefined")
    assert visit.page.evaluate("window.copied") == "emmclab crash --again d2553886:1544:0"
    visit.page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('denied')); }")
    button.click()
    visit.page.wait_for_function("getSelection().toString() !== ''")
    assert visit.page.evaluate("getSelection().toString()") == "emmclab crash --again d2553886:1544:0"
    assert visit.page.locator(".copy").count() == 1, "what commands break cannot be tried again"
    visit.page.close()


def test_the_command_names_a_folder_of_results_that_is_another() -> None:
    text = render(SUMMARY, scene(10, 2), results=Path("my results"))
    assert "emmclab crash --again d2553886:1544:0 --results &#39;my results&#39;" in text


def test_the_picture_of_a_finding_marks_the_missing_write(browser: Browser, pages: dict[str, Path]) -> None:
    visit = Visit(browser, pages["broken"])
    visit.draw_all()
    figure = visit.page.locator("#commands-1")
    labels = figure.locator("svg .role-axis-label text").all_text_contents()
    assert "85 flush missing" in labels or any(re.fullmatch(r"85 .* missing", label) for label in labels)
    assert any("reliable" in label for label in labels) and "90 flush" in labels
    figure.locator("summary").click()
    rows = figure.locator("tbody tr")
    rows.first.wait_for()
    assert rows.count() == 16
    states = [row.locator("td").last.inner_text() for row in rows.all()]
    assert states.count("missing") == 1 and states[-1] == "not complete"
    visit.page.close()


def test_a_missing_write_from_long_before_is_drawn_too() -> None:
    summary = copy.deepcopy(SUMMARY)
    summary["findings"][0]["minimal"]["missing"][0]["command"] = 3
    assert "3 write 8 at 261784 missing" in render(summary, scene(10, 2))
    assert "3 write 8 at 261784 missing" not in render(SUMMARY, scene(10, 2))


def test_what_was_not_covered_is_said_with_the_option_that_covers_it(pages: dict[str, Path]) -> None:
    text = pages["broken"].read_text()
    for option in ("474 possible times (--cuts 774)", "--tear sector", "--recovery e2fsck"):
        assert option in text
    everything = copy.deepcopy(SUMMARY)
    everything["options"] |= {"tear": "sector", "recovery": "mount"}
    everything["covered"] |= {"cuts": 774, "chosen": 60_000, "legal_log10": 4.699}
    text = render(everything, scene(10, 2))
    assert not re.search(r"possible times \(--cuts|--tear sector|--recovery e2fsck|other seeds", text)


@pytest.mark.parametrize(
    ("change", "limit"),
    [
        ({"lies": "flush"}, "breaks a promise on purpose (cache.lies = flush)"),
        ({"writer": "dm-log-writes"}, "entries before the cut"),
    ],
)
def test_what_limits_the_answer_stands_beside_it(change: dict[str, Any], limit: str) -> None:
    summary = SUMMARY | {"log": SUMMARY["log"] | change}
    assert limit in render(summary, scene(10, 2))
    assert limit not in render(SUMMARY, scene(10, 2))


def test_a_check_that_proves_nothing_is_the_answer_and_beside_a_finding_a_caution() -> None:
    doubt = "the check passes on the disk from before the workload"
    clean, quiet = clean_run()
    text = render(clean | {"verdict": "not tested", "doubts": [doubt]}, quiet)
    assert f"Not tested: {doubt}" in text and "No acknowledged data was lost" not in text
    text = render(SUMMARY | {"doubts": [doubt]}, scene(10, 2))
    assert doubt in text and "Not tested" not in text
    assert "Controls: the check understands 100 of 100 lines" in text
    assert "Controls:" not in render(SUMMARY | {"controls": None}, scene(10, 2))


def test_a_share_of_the_states_says_so_and_a_log_from_elsewhere_has_a_page() -> None:
    summary = SUMMARY | {"options": SUMMARY["options"] | {"share": (2, 16)}, "run": {}}
    text = render(summary, scene(10, 2))
    assert "part 3 of 16 of the states" in text and "the other 15 shards" in text


def test_the_same_findings_give_the_same_bytes() -> None:
    assert render(SUMMARY, scene(300, 2)) == render(copy.deepcopy(SUMMARY), scene(300, 2))


def test_foreign_words_are_text_not_markup(browser: Browser, tmp_path: Path) -> None:
    evil = "<img src=x onerror=console.log('run')>"
    summary = copy.deepcopy(SUMMARY)
    summary["findings"][0]["detail"] = summary["log"]["device"] = evil
    summary["run"]["workload"]["command"] = ["sh", "-c", evil]
    (tmp_path / "page.html").write_text(render(summary, scene(10, 2)))
    visit = Visit(browser, tmp_path / "page.html")
    visit.draw_all()
    assert visit.words == [] and visit.page.locator("main img").count() == 0
    visit.page.close()


@pytest.mark.usefixtures("root")
def test_the_command_writes_the_page_of_a_device_that_lies(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ("--workload", "files", "--operations", 10, "--cuts", 20, "--jobs", 1, "--results", tmp_path / "results")
    emmclab_ok("crash", *DEVICE, "--set", "cache.lies=flush", *words, "--html", page, cwd=tmp_path, status=4)
    visit = Visit(browser, page)
    visit.draw_all()
    assert visit.page.locator("h1").inner_text().startswith("The device emmc51-cache-256MB broke a promise")
    (command,) = visit.page.locator(".again code").all_text_contents()
    assert command.startswith("emmclab ")
    assert "device: flush" in emmclab_ok(*command.split()[1:], cwd=tmp_path, status=4).stdout
    visit.page.close()
