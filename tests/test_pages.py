"""Pages have a common design: they fit the window, show the answer first, log no messages, load nothing, and are
accessible; their tables are sortable."""

import csv
import json
import re
import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import altair
import jinja2
import jinja2.nodes
import jsonschema
import pytest
from playwright.sync_api import Browser, Page

import emmclab
from applications import NEW, SEARCH, SMALL
from browsing import PHONE_PX, Visit, check_fit
from conftest import biotracer, csv_trace, emmclab_ok, need_library
from conftest import emmclab as emmclab_command
from crash_runs import SUMMARY, documented
from crash_runs import clean_run as crash_clean
from crash_runs import scene as crash_scene
from emmclab.advice.advise import advise
from emmclab.calibration.measured_figures import FigureComparison, FigureJob, MeasuredFigure
from emmclab.pages import chart_files as kept
from emmclab.pages.advice import write_advice
from emmclab.pages.crash import render as render_crash
from emmclab.pages.measured_devices import write_page as write_measured_devices
from emmclab.pages.plots import Chart
from emmclab.pages.probe import render as render_probe
from emmclab.pages.profiles import write_report
from emmclab.pages.run_figures import waits
from emmclab.pages.simulation import write_simulation_report
from emmclab.real_devices.probe import Place, Point, Probe
from fleets import recorded, write
from repository import complain, place, tracked

#: The data of a page: its charts and their rows.
DATA = re.compile(r'<script id="page-data" type="application/json">(.*?)</script>', re.DOTALL)


@cache
def _schema() -> Any:
    path = Path(altair.__file__).parent / "vegalite" / "v6" / "schema" / "vega-lite-schema.json"
    return jsonschema.Draft7Validator(json.loads(path.read_text()))


def faults_of(spec: Chart) -> list[str]:
    """Return the faults of a chart, which is a Vega-Lite specification."""
    return [f"{'.'.join(map(str, fault.path))}: {fault.message}" for fault in _schema().iter_errors(spec)]


def invalid_charts(page: Path) -> dict[str, list[str]]:
    """Return the invalid charts of a page by name, each with its faults.

    Raises:
        AssertionError: the page has no charts.
    """
    match = DATA.search(page.read_text())
    assert match is not None
    charts = {name: spec["vega"] for name, spec in json.loads(match[1])["specs"].items()}
    assert charts
    return {name: faults for name, spec in charts.items() if (faults := faults_of(spec))}


#: Settings and devices of a small sweep.
SWEPT = """seeds = [1, 2]
[[grid]]
name = "pages"
devices = ["iiswc15-4ps", "iiswc15-hps"]
wrap_addresses = true
[grid.axes]
"timing.parallelism" = ["none", "both"]
"""
PICTURES = {"over_time": True, "distribution": True}


@cache
def _traces(folder: Path) -> list[Path]:
    paths = []
    for name, requests in (("chat", 300), ("camera with a long name of two words", 120)):
        path = folder / f"{name}.txt"
        path.write_text(biotracer(requests))
        paths.append(path)
    return paths


def _simulated(folder: Path, page: Path) -> None:
    device = emmclab.Device.preset("nexus5")
    result = device.simulate(emmclab.read(_traces(folder)[0]), wrap_addresses=True, **PICTURES)
    write_simulation_report([result], [device], page)


def _compared(folder: Path, page: Path) -> None:
    devices = [emmclab.Device.preset(name) for name in ("small-1gb", "iiswc15-hps")]
    devices[0] = devices[0].set({"power.sleep_after_us": 1000, "power.wake_us": 5000})
    traces = [emmclab.read(path) for path in _traces(folder)]
    results = emmclab.compare(traces, devices, wrap_addresses=True, **PICTURES)
    write_simulation_report(results, devices, page)


def _run(*words: object, cwd: Path, status: int = 0) -> None:
    done = emmclab_command(*words, cwd=cwd)
    assert done.returncode == status, done.stderr


def _study(folder: Path, page: Path) -> None:
    names = ", ".join(f'"{path}"' for path in _traces(folder))
    text = f'name = "swept"\ninputs = [{names}]\n' + SWEPT
    (folder / "swept.toml").write_text(text)
    _run("run", "swept.toml", "--jobs", 1, cwd=folder)
    _run("report", "swept.toml", "--html", page, cwd=folder)


def _searched(folder: Path, page: Path) -> None:
    need_library("optuna")
    (folder / "tuned.toml").write_text(SEARCH.format(input=_traces(folder)[0], most=60.0))
    query = ("--minimize", "mean_response_ms", "--minimize", "waf", "--budget", 4, "--batch", 4)
    _run("search", "tuned.toml", *query, "--jobs", 1, "--html", page, cwd=folder)


def _advised(folder: Path, page: Path) -> None:
    trace = emmclab.read(_traces(folder)[0])
    write_advice(advise(emmclab.Device.preset("small-1gb"), [trace], wrap_addresses=True), page)


def _validated(folder: Path, page: Path, *more: str) -> None:
    _run("validate", "messages-wal", *more, "--device", "emmc51-cache", "--html", page, cwd=folder)


def _devices(_folder: Path, page: Path) -> None:
    ratios = {"iops": 1.2, "mb_per_s": 0.7, "clat_us_mean": 0.001, "clat_us_p99": 3.0, "gain": None}
    jobs = [FigureJob(rw, kb << 10, 1, 4) for rw in ("randread", "write") for kb in (4, 64)]
    write_measured_devices(
        [
            FigureComparison(
                MeasuredFigure(name, "UFS", "ufs31", kb_job.block_bytes > 4096, kb_job, metric, 100.0, "", "a mail"),
                "ufs31",
                ratio and 100 * ratio,
                "" if ratio else "no metric of a benchmark",
            )
            for name in ("phone", "a card with a long name of many words")
            for kb_job in jobs
            for metric, ratio in ratios.items()
        ],
        page,
        {},
    )


def _probed(_folder: Path, page: Path) -> None:
    points = [
        Point(op, order, size, 4.0 * size**0.5)
        for op in ("read", "write")
        for order in ("sequential", "random")
        for size in (4, 64, 1024)
    ]
    places = [Place("read", 4 * at, 1.0 + (at % 4 == 3)) for at in range(32)]
    probe = Probe("/dev/mmcblk0", True, 64, 16, "reads", 4096, ["Clustered page: 16 KB"], places, points)
    page.write_text(render_probe(probe))


def _applied(folder: Path, page: Path, command: str, *devices: str) -> None:
    (folder / "small.toml").write_text(SMALL)
    _run("apps", command, "small.toml", *devices, *NEW, "--html", page, cwd=folder)


def _fleet(folder: Path, page: Path, *more: str) -> None:
    for name, count in (("before", 8), ("after", 8)):
        if not (folder / name).is_dir():
            write(folder / name, recorded(count))
    _run("fleet", "before", *more, "--html", page, cwd=folder)


#: Commands that write a page of each kind from the folder of traces.
KINDS: dict[str, Callable[[Path, Path], object]] = {
    "profile": lambda folder, page: write_report([emmclab.profile(_traces(folder)[0])], page),
    "profiles": lambda folder, page: write_report([emmclab.profile(path) for path in _traces(folder)], page),
    "simulate": _simulated,
    "compare": _compared,
    "study": _study,
    "search": _searched,
    "advise": _advised,
    "lifetime": lambda folder, page: _run(
        "lifetime", "--daily", "1GB", "--device", "nexus5", "--capacity", "1GB", "--html", page, cwd=folder
    ),
    "validate": _validated,
    "validations": lambda folder, page: _validated(folder, page, "chat", "gone.txt"),
    "devices": _devices,
    "journal": lambda _, page: emmclab.read(emmclab.bundled()[0]).journal().write_html(page),
    "probe": _probed,
    "application": lambda folder, page: _applied(folder, page, "run", "--device", "small-1gb"),
    "applications": lambda folder, page: _applied(folder, page, "compare", "--devices", "small-1gb,nexus5"),
    "solutions": lambda folder, page: _applied(folder, page, "solutions", "--device", "small-1gb"),
    "crash": lambda _, page: page.write_text(render_crash(SUMMARY, crash_scene(60, 2))),
    "crash-clean": lambda _, page: page.write_text(render_crash(*crash_clean())),
    "crash-documented": lambda _, page: page.write_text(render_crash(*documented())),
    "fleet": lambda folder, page: _fleet(folder, page, "--by", "model"),
    "fleets": lambda folder, page: _fleet(folder, page, "--against", "after"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of inputs and pages."""
    return tmp_path_factory.mktemp("kinds")


@pytest.fixture(scope="module")
def page_of(folder: Path) -> Callable[[str], Path]:
    """Return the page of a kind, which is written on first use."""

    @cache
    def page(kind: str) -> Path:
        path = folder / f"{kind}.html"
        KINDS[kind](folder, path)
        return path

    return page


#: Pages that are fast to write, and have charts, tables and findings.
QUICK = ("profiles", "compare")


@pytest.mark.parametrize(
    "kind", [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_a_page_fits_and_is_accessible(browser: Browser, page_of: Callable[[str], Path], axe: str, kind: str) -> None:
    check_fit(browser, page_of(kind), axe)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_chart_is_valid_by_the_schema_of_vega_lite(page_of: Callable[[str], Path], kind: str) -> None:
    assert invalid_charts(page_of(kind)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_page_has_its_answer_first_and_origin_last(
    browser: Browser, page_of: Callable[[str], Path], kind: str
) -> None:
    visit = Visit(browser, page_of(kind), width=390)
    page = visit.page
    assert page.locator("h1").count() == 1
    assert page.locator("main > section").first.get_attribute("id") == "answer"
    assert page.locator("main > section").last.get_attribute("id") == "provenance"
    assert page.locator("#provenance > details:not([open]) > summary").inner_text().strip()
    tiles = page.locator("#answer .tiles dd:not(.note)")
    assert 2 <= tiles.count() <= 8
    assert tiles.first.bounding_box()["y"] < PHONE_PX  # type: ignore[index]
    assert not [text for text in tiles.all_inner_texts() if re.search(r"nan|None|\d{4} KB", text)]
    linked = page.locator("nav a").evaluate_all("all => all.map(a => a.getAttribute('href').slice(1))")
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert [name for name in linked if name not in ids] == [], "links of the header lead somewhere"
    assert len(ids) == len(set(ids))
    assert page.locator(".chart-box").count() == page.locator(".save-png").count()
    page.close()


@pytest.mark.slow
def test_a_time_line_zooms_all_its_panels_and_comes_back(browser: Browser, page_of: Callable[[str], Path]) -> None:
    visit = Visit(browser, page_of("simulate"))
    chart = visit.page.locator("#time_line-0")
    chart.scroll_into_view_if_needed()
    chart.locator("svg path[d]").first.wait_for(state="attached")
    labels = "() => [...document.querySelectorAll('#time_line-0 text')].map(t => t.textContent).sort().join()"
    before = visit.page.evaluate(labels)
    box = chart.bounding_box()
    assert box is not None
    visit.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 80)
    visit.page.keyboard.down("Control")
    visit.page.mouse.wheel(0, -400)
    visit.page.keyboard.up("Control")
    visit.page.wait_for_function(f"before => ({labels})() !== before", arg=before)
    visit.page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + 80)
    visit.page.wait_for_function(f"before => ({labels})() === before", arg=before)
    assert visit.words == []
    visit.page.close()


@pytest.mark.slow
def test_pictures_and_data_can_be_taken_away(browser: Browser, page_of: Callable[[str], Path], tmp_path: Path) -> None:
    visit = Visit(browser, page_of("simulate"), scheme="dark")
    visit.draw_all()
    for name in ("response_cdf", "time_line"):
        with visit.page.expect_download() as saved:
            visit.page.locator(f"#{name} .save-png").click()
        saved.value.save_as(tmp_path / "figure.png")
        head = (tmp_path / "figure.png").read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">I", head[16:20])[0] >= 1_500, "two pixels for each of a wide page"
        with visit.page.expect_download() as saved:
            visit.page.locator(f"#{name} .save-svg").click()
        saved.value.save_as(tmp_path / "figure.svg")
        assert 'fill="#ffffff"' in (tmp_path / "figure.svg").read_text(), "dark on white, whatever the page is"
    figure = visit.page.locator("#waits")
    figure.locator("summary").click()
    with visit.page.expect_download() as saved:
        figure.locator(".save-json").click()
    saved.value.save_as(tmp_path / "data.json")
    assert '"cause"' in (tmp_path / "data.json").read_text()
    visit.page.close()


def test_templates_fill_only_blocks_that_what_they_extend_has() -> None:
    environment = jinja2.Environment(loader=jinja2.PackageLoader("emmclab", "pages"), autoescape=True)
    faults = []
    for path in tracked(".j2"):
        parsed = environment.parse(path.read_text())
        blocks: set[str] = set()
        extended = [node.template.value for node in parsed.find_all(jinja2.nodes.Extends)]  # type: ignore[attr-defined]
        if not extended:
            continue
        while extended:
            source = environment.loader.get_source(environment, extended[0])[0]  # type: ignore[union-attr]
            parent = environment.parse(source)
            blocks |= {block.name for block in parent.find_all(jinja2.nodes.Block)}
            extended = [node.template.value for node in parent.find_all(jinja2.nodes.Extends)]  # type: ignore[attr-defined]
        own = {node.name for node in parsed.body if isinstance(node, jinja2.nodes.Block)}
        faults += [f"{place(path)}: {name}" for name in sorted(own - blocks)]
    complain(faults, "fill a block that the template it extends has; another one is never drawn")


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "caches"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


def test_the_script_is_bundled_once_and_again_if_damaged(caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def bundle(*_words: str) -> str:
        calls.append(1)
        return "script\r\nof pages"

    monkeypatch.setattr(kept, "convert", bundle)
    assert [kept.library(), kept.library()] == ["script\r\nof pages"] * 2 and len(calls) == 1
    (file,) = (caches / "emmclab").iterdir()
    full = file.read_bytes()
    for damaged in (b"", full[:-1], full[:30], b"\xff" + full, full + b"alert(1)"):
        file.write_bytes(damaged)
        assert kept.library() == "script\r\nof pages"
        assert file.read_bytes() == full
    assert len(calls) == 6


def test_a_page_is_written_where_nothing_can_be_kept(tmp_path: Path, trace: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    page = tmp_path / "page.html"
    emmclab_ok("profile", trace, "--html", page, env={"XDG_CACHE_HOME": str(blocked)})
    assert "window.vegaEmbed" in page.read_text()


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
    rows = [f"{number * 1_000_000},read,0,8" for number in range(3)]
    reads = csv_trace(tmp_path / "reads.csv", "arrival_ns,op,sector,sectors", rows)
    device = emmclab.Device.preset("iiswc15-4ps")
    runs = emmclab.compare([emmclab.read(reads)], [device], distribution=True)
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
    lines = [f"{number * 5_000_000},write,{number * 64},8" for number in range(50)]
    table = csv_trace(tmp_path / "arrivals.csv", "arrival_ns,op,sector,sectors", lines)
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
