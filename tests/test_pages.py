"""Pages have a common design: they fit the window, show the answer first, log no messages and are accessible."""

import re
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path

import jinja2
import jinja2.nodes
import pytest
from playwright.sync_api import Browser

import emmclab
from applications import NEW, SMALL
from browsing import PHONE_PX, Visit, check_fit
from charts import invalid_charts
from conftest import biotracer, emmclab_ok, need_library
from conftest import emmclab as emmclab_command
from crash_findings import SUMMARY, documented
from crash_findings import clean_run as crash_clean
from crash_findings import scene as crash_scene
from emmclab.advice.advise import advise
from emmclab.pages import chart_files as kept
from emmclab.pages.advice import write_advice
from emmclab.pages.crash import render as render_crash
from emmclab.pages.probe import render as render_probe
from emmclab.pages.profiles import write_report
from emmclab.pages.simulation import write_simulation_report
from emmclab.real_devices.probe import Place, Point, Probe
from fleets import make as make_fleet
from repository import complain, place, tracked

#: Settings and devices of a small sweep, and of a small search.
SWEPT = """seeds = [1, 2]
[[grid]]
name = "pages"
devices = ["iiswc15-4ps", "iiswc15-hps"]
wrap_addresses = true
[grid.axes]
"timing.parallelism" = ["none", "both"]
"""
TUNED = """name = "tuned"
inputs = ["{trace}"]
[[grid]]
name = "small"
devices = ["small-1gb"]
precondition = "random:90"
wrap_addresses = true
[grid.set]
"geometry.block_groups.0.blocks" = 64
[search]
[[search.setting]]
name = "gc.policy"
choices = ["greedy", "fifo"]
[[search.setting]]
name = "capacity.over_provisioning_pct"
low = 5.0
high = 25.0
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


def _profiled(folder: Path, page: Path) -> None:
    write_report([emmclab.profile(_traces(folder)[0])], page)


def _profiles(folder: Path, page: Path) -> None:
    write_report([emmclab.profile(path) for path in _traces(folder)], page)


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
    (folder / "tuned.toml").write_text(TUNED.format(trace=_traces(folder)[0]))
    query = ("--minimize", "mean_response_ms", "--minimize", "waf", "--budget", 4, "--batch", 4)
    _run("search", "tuned.toml", *query, "--jobs", 1, "--html", page, cwd=folder)


def _advised(folder: Path, page: Path) -> None:
    trace = emmclab.read(_traces(folder)[0])
    write_advice(advise(emmclab.Device.preset("small-1gb"), [trace], wrap_addresses=True), page)


def _validated(folder: Path, page: Path, *more: str) -> None:
    _run("validate", "messages-wal", *more, "--device", "emmc51-cache", "--html", page, cwd=folder)


def _journal(_folder: Path, page: Path) -> None:
    emmclab.read(emmclab.bundled()[0]).journal().write_html(page)


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


def _applied(folder: Path, page: Path) -> None:
    (folder / "small.toml").write_text(SMALL)
    _run("apps", "run", "small.toml", "--device", "small-1gb", *NEW, "--html", page, cwd=folder)


def _applications(folder: Path, page: Path) -> None:
    (folder / "small.toml").write_text(SMALL)
    devices = ("--devices", "small-1gb,nexus5")
    _run("apps", "compare", "small.toml", *devices, *NEW, "--html", page, cwd=folder)


def _solutions(folder: Path, page: Path) -> None:
    (folder / "small.toml").write_text(SMALL)
    _run("apps", "solutions", "small.toml", "--device", "small-1gb", *NEW, "--html", page, cwd=folder)


def _fleet(folder: Path, page: Path, *more: str) -> None:
    for name, count in (("before", 8), ("after", 8)):
        if not (folder / name).is_dir():
            make_fleet(folder / name, count)
    _run("fleet", "before", *more, "--html", page, cwd=folder)


#: Commands that write a page of each kind from the folder of traces.
KINDS: dict[str, Callable[[Path, Path], object]] = {
    "profile": _profiled,
    "profiles": _profiles,
    "simulate": _simulated,
    "compare": _compared,
    "study": _study,
    "search": _searched,
    "advise": _advised,
    "validate": _validated,
    "validations": lambda folder, page: _validated(folder, page, "chat", "gone.txt"),
    "journal": _journal,
    "probe": _probed,
    "application": _applied,
    "applications": _applications,
    "solutions": _solutions,
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
