"""The report page in a browser logs no messages, loads nothing, is sortable, and fits narrow and dark windows."""

import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

import emmclab
from browsing import Visit
from charts import faults_of, invalid_charts
from emmclab.pages.profiles import write_report
from emmclab.pages.run_figures import waits
from emmclab.pages.simulation import write_simulation_report


@pytest.fixture(scope="module")
def single(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of one trace."""
    path = tmp_path_factory.mktemp("page") / "one.html"
    write_report([emmclab.profile(trace)], path)
    return path


@pytest.fixture(scope="module")
def several(trace: Path, other_trace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of three traces, one of which has the name of a published row."""
    folder = tmp_path_factory.mktemp("page")
    named = folder / "log106_Messaging.txt"
    named.write_bytes(trace.read_bytes())
    write_report([emmclab.profile(path) for path in (trace, other_trace, named)], folder / "several.html")
    return folder / "several.html"


@pytest.fixture(scope="module")
def visits(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Callable[[str], Visit]]:
    """Open the page `single` or `several` once for all tests that change neither window nor theme.

    Loading and drawing takes seconds.
    """
    begun: dict[str, Visit] = {}

    def visit(name: str) -> Visit:
        if name not in begun:
            begun[name] = Visit(browser, request.getfixturevalue(name))
        return begun[name]

    yield visit
    for opened in begun.values():
        opened.page.close()


def test_an_unknown_mark_is_not_valid_by_the_schema_of_vega_lite() -> None:
    spec = {"data": {"name": "rows"}, "mark": "point", "encoding": {}}
    assert faults_of(spec) == []
    assert faults_of(spec | {"mark": "points"}) != []


def test_requests_that_all_take_the_same_time_have_a_point(browser: Browser, tmp_path: Path) -> None:
    text = "\n".join(f"{number * 1_000_000},read,0,8" for number in range(3))
    (tmp_path / "reads.csv").write_text(f"arrival_ns,op,sector,sectors\n{text}\n")
    device = emmclab.Device.preset("iiswc15-4ps")
    runs = emmclab.compare([emmclab.read(tmp_path / "reads.csv")], [device], distribution=True)
    write_simulation_report(runs, [device], tmp_path / "reads.html")
    visit = Visit(browser, tmp_path / "reads.html")
    chart = visit.page.locator("#response_cdf .chart").first
    chart.scroll_into_view_if_needed()
    chart.locator(".mark-symbol.role-mark path").first.wait_for(state="attached")
    assert invalid_charts(tmp_path / "reads.html") == {}
    visit.page.close()


def test_where_the_time_goes_is_drawn_in_ms_so_that_a_slower_device_has_a_longer_bar(trace: Path) -> None:
    devices = [emmclab.Device.preset(name) for name in ("iiswc15-4ps", "iiswc15-hps")]
    rows = [
        {
            "trace": "chat",
            "device": result["device"],
            "cause": name.removesuffix("_ms").replace("_", "-"),
            "wait_ms": value,
        }
        for result in emmclab.compare([emmclab.read(trace)], devices)
        for name, value in result["waits"].items()
    ]
    axis = waits.draw(rows).to_dict()["encoding"]["x"]
    assert axis["stack"] == "zero" and axis["title"] == "mean response, ms"


def _brightness(page: Page) -> float:
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    numbers = [float(part) for part in colour.strip("rgba()").split(",")[:3]]
    return sum(numbers) / 3


@pytest.mark.slow
def test_dark_follows_the_system_and_the_button(browser: Browser, single: Path) -> None:
    visit = Visit(browser, single, scheme="dark")
    assert _brightness(visit.page) < 60
    visit.draw_all()
    label = "document.querySelector('.chart svg .role-axis-title text').getAttribute('fill')"
    dark = visit.page.evaluate(label)
    visit.page.click("#theme")
    visit.page.wait_for_function(f"{label} !== '{dark}'")
    assert _brightness(visit.page) > 200
    visit.page.close()


def test_tables_sort_by_column_and_keep_published_rows_with_theirs(visits: Callable[[str], Visit]) -> None:
    visit = visits("several")
    visit.draw_all()
    table = visit.page.locator("#tables table.sortable").first
    requests = table.get_by_role("button", name="Requests", exact=True)
    names = "t => [...t.tBodies].map(b => b.rows[0].cells[0].textContent)"
    requests.click()
    assert table.evaluate(names)[-1] == "camera"
    requests.click()
    assert table.evaluate(names)[0] == "camera"
    assert table.locator("th[aria-sort]").get_attribute("aria-sort") == "ascending"
    bodies = table.evaluate("t => [...t.tBodies].map(b => [...b.rows].map(r => r.cells[0].textContent))")
    assert ["log106_Messaging", "published"] in bodies


def test_keyboard_reaches_the_sorting_and_the_regions(visits: Callable[[str], Visit]) -> None:
    visit = visits("several")
    visit.page.locator("#tables table.sortable thead button").nth(2).focus()
    visit.page.keyboard.press("Enter")
    assert visit.page.locator("th[aria-sort='descending']").count() == 1
    assert visit.page.locator("html").get_attribute("lang") == "en"
    unnamed = visit.page.evaluate(
        "[...document.querySelectorAll('[role]')].filter(e => !e.ariaLabel && !e.closest('[aria-hidden]')).length"
    )
    assert unnamed == 0


def test_figure_gives_its_data_and_its_drawing(visits: Callable[[str], Visit], trace: Path, tmp_path: Path) -> None:
    visit = visits("single")
    visit.draw_all()
    figure = visit.page.locator("#size_distribution")
    figure.locator("summary").click()
    rows = emmclab.profile(trace).figure("size_distribution")
    figure.locator("tbody tr").first.wait_for()
    assert figure.locator("tbody tr").count() == len(rows)
    with visit.page.expect_download() as saved:
        figure.locator(".save-csv").click()
    saved.value.save_as(tmp_path / "data.csv")
    with (tmp_path / "data.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [row["bin"] for row in read] == [row["bin"] for row in rows]
    assert [int(row["requests"]) for row in read] == [row["requests"] for row in rows]
    with visit.page.expect_download() as saved:
        figure.locator(".save-svg").click()
    saved.value.save_as(tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_text().startswith("<svg")


def test_what_is_not_recorded_is_said(browser: Browser, tmp_path: Path) -> None:
    table = tmp_path / "arrivals.csv"
    lines = [f"{number * 5_000_000},write,{number * 64},8" for number in range(50)]
    table.write_text("arrival_ns,op,sector,sectors\n" + "\n".join(lines) + "\n")
    page = tmp_path / "page.html"
    emmclab.profile(table, format="csv").write_html(page)
    visit = Visit(browser, page)
    assert "does not contain" in visit.page.locator("#response_distribution").inner_text()
    visit.draw_all()
    assert visit.words == []
    visit.page.close()


def test_foreign_names_are_text_not_markup(browser: Browser, trace: Path, tmp_path: Path) -> None:
    evil = tmp_path / "<img src=x onerror=console.log('run')>.txt"
    evil.write_bytes(trace.read_bytes())
    page = tmp_path / "page.html"
    write_report([emmclab.profile(evil)], page)
    visit = Visit(browser, page)
    visit.draw_all()
    assert visit.words == []
    assert visit.requests == []
    assert visit.page.locator("main img").count() == 0
    visit.page.close()


def test_a_finding_that_is_not_shown_does_not_look_like_a_failure(visits: Callable[[str], Visit]) -> None:
    visit = visits("several")
    colours = {
        text: visit.page.locator("#verdict .badge", has_text=text).first.evaluate(
            "e => getComputedStyle(e).backgroundColor"
        )
        for text in ("yes", "no")
    }
    red, green, blue = (int(part) for part in re.findall(r"\d+", colours["no"])[:3])
    assert max(red, green, blue) - min(red, green, blue) < 16, "a grey"
    assert colours["yes"] != colours["no"]


def test_flags_that_a_format_cannot_record_are_a_dash(visits: Callable[[str], Visit]) -> None:
    visit = visits("single")
    visit.draw_all()
    drawn = visit.page.locator("#flags svg").first
    assert drawn.locator("text", has_text="–").count() >= 3


@pytest.mark.slow
def test_print_view_shows_every_chart(browser: Browser, single: Path, tmp_path: Path) -> None:
    visit = Visit(browser, single, scheme="dark")
    visit.page.evaluate("window.print = () => { window.printed = document.querySelectorAll('.chart svg').length; }")
    visit.page.click("#print")
    visit.page.wait_for_function("window.printed !== undefined")
    assert visit.page.evaluate("window.printed") == visit.page.locator(".chart").count()
    visit.page.pdf(path=str(tmp_path / "page.pdf"))
    assert (tmp_path / "page.pdf").stat().st_size > 20_000
    visit.page.close()
