"""The page of the study `phones`, from a small run of it: each figure depends on the results."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from conftest import Reproduced, emmclab, emmclab_json
from emmclab.errors import EmmclabError
from emmclab.papers.phones.characteristics import characteristics
from emmclab.papers.phones.figures import drawings
from emmclab.papers.phones.implications import implications
from emmclab.papers.phones.judging import BADGES, STILL, verdicts_of
from emmclab.papers.phones.phones_page import headline, render, sections, to_dict
from emmclab.studies import Pool, Results, Study
from emmclab.studies.grid import Grid
from emmclab.studies.run import run_study
from emmclab.traces.profile import Profile
from test_pages import PHONE_PX, axe, check_fit
from test_report_page import Visit

__all__ = ["axe"]

_INPUTS = ("Telegram", "PUBG", "TelegramInstall")
_RECORDED = ("TelegramRecorded", "PUBGRecorded")
_DEVICES = ("emmc51-tlc", "emmc51-cache", "ufs31", "ufs40")
_AXES: dict[str, tuple[int, ...]] = {"slc.blocks": (30, 60), "power.sleep_after_us": (100, 150_000)}
#: Fields of rows that are settings, or coordinates of a point.
_PLACES = ("size_gb", "full_pct", "idle_ms")


def _shortened(grid: Grid) -> Grid:
    """Return a grid with few inputs, devices, sizes and requests, on a quarter of the capacity."""
    return replace(
        grid,
        inputs=(*_INPUTS, *_RECORDED) if grid.name == "new" else _INPUTS,
        devices=tuple(one for one in grid.devices if one in _DEVICES) or grid.devices,
        axes={key: _AXES.get(key, values) for key, values in grid.axes.items()},
        capacity="32GB" if grid.capacity else "",
        requests=min(grid.requests or 300, 3000),
    )


def _run(folder: Path) -> None:
    study = Study.named("phones")
    grids = tuple(map(_shortened, study.grids))
    run_study(replace(study, inputs=(*_INPUTS, *_RECORDED), grids=grids), folder / "phones", Pool(2))


@pytest.fixture(scope="module")
def folder(reproduced: Reproduced) -> Path:
    """The results folder of the small study, run once for all workers."""
    return reproduced.once("phones", _run)


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return Results.load(folder / "phones")


@pytest.fixture(scope="module")
def page(results: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("phones") / "phones.html"
    path.write_text(render(results))
    return path


def _moved(value: Any, place: str) -> Any:
    """Change every number of a result, each by its own factor."""
    if isinstance(value, dict):
        return {key: _moved(one, f"{place}.{key}") for key, one in value.items()}
    if isinstance(value, list):
        return [_moved(one, f"{place}.{number}") for number, one in enumerate(value)]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    by = 2 + zlib.crc32(place.encode()) % 997 / 100
    return value * by if isinstance(value, float) else round((value + 1) * by)


@pytest.fixture(scope="module")
def other(results: Results) -> Results:
    """Results in which every figure is changed, except settings and options."""
    kept = dict.fromkeys(("settings", "options", "configuration", "ledger"))
    runs = [
        _moved(run, str(number)) | {key: run[key] for key in kept if key in run}
        for number, run in enumerate(results.runs)
    ]
    profiles = {
        name: Profile(
            {**_moved(dict(profile), name), "ledger": profile["ledger"], "header": profile["header"]}
        )
        for name, profile in results.profiles.items()
    }
    return replace(results, runs=runs, profiles=profiles)


def _values(rows: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    """Return the measured values of each row that has any."""
    found = set()
    for row in rows:
        values = {
            name: value
            for name, value in row.items()
            if isinstance(value, int | float) and name not in _PLACES
        }
        if any(values.values()):
            found.add(tuple(values.values()))
    return found


def test_every_figure_follows_the_results(results: Results, other: Results) -> None:
    for before, after in zip(drawings(results), drawings(other), strict=True):
        assert before.name == after.name
        assert _values(before.rows), before.name
        assert _values(before.rows).isdisjoint(_values(after.rows)), before.name


def test_every_sentence_follows_the_results(results: Results, other: Results) -> None:
    for before, after in zip(sections(results), sections(other), strict=True):
        assert before.texts != after.texts, before.name
    for judge in (characteristics, implications):
        for one, another in zip(judge(results), judge(other), strict=True):
            assert (one.measured, one.note) != (another.measured, another.note), one.id
    assert render(results) != render(other)


def test_the_page_holds_the_rows_that_its_figures_are_drawn_from(results: Results, page: Path) -> None:
    text = page.read_text()
    data = json.loads(re.findall(r'<script id="page-data"[^>]*>(.*?)</script>', text, re.DOTALL)[0])
    for drawing in drawings(results):
        assert sum(part["rows"] for part in data["data"][drawing.name]) == len(drawing.rows), drawing.name
        shown = json.dumps(data["data"][drawing.name])
        value = next(one for one in drawing.rows[-1].values() if isinstance(one, float) and one)
        assert f"{value:.6g}" in shown or str(value) in shown, drawing.name


def test_a_verdict_turns_with_what_was_measured(results: Results) -> None:
    before = verdicts_of(characteristics(results))
    share = 1.0 if before[1] == STILL else 99.0
    profiles = {
        name: Profile({**profile, "write_requests_pct": share}) for name, profile in results.profiles.items()
    }
    turned = replace(results, profiles=profiles)
    assert verdicts_of(characteristics(turned)) == before | {1: verdicts_of(characteristics(turned))[1]}
    assert verdicts_of(characteristics(turned))[1] != before[1]
    assert headline(turned) != headline(results)


def test_six_characteristics_and_five_implications_have_a_verdict(results: Results) -> None:
    assert [*verdicts_of(characteristics(results))] == [1, 2, 3, 4, 5, 6]
    assert [*verdicts_of(implications(results))] == [1, 2, 3, 4, 5]


def test_a_page_of_a_part_of_the_study_is_refused(results: Results) -> None:
    part = replace(results, about={**results.about, "missing": 3})
    with pytest.raises(EmmclabError, match=r"3 of \d+ cells have no result"):
        to_dict(part)


def test_the_commands_write_the_page_its_figures_and_what_it_says(
    folder: Path, results: Results, tmp_path: Path
) -> None:
    page, figures = tmp_path / "page.html", tmp_path / "figures"
    told = emmclab_json(*("report", "phones", "--results", folder, "--html", page, "--figures", figures))
    assert page.read_text() == render(results)
    assert told["answer"] == headline(results)
    assert told["digest"] == results.digest
    assert [*told["figures"]] == [drawing.name for drawing in drawings(results)]
    for name in told["figures"]:
        assert {path.suffix for path in figures.glob(f"{name}.*")} == {".svg", ".pdf", ".csv"}
    # Nothing is run again if the results exist.
    refused = emmclab("report", "phones", "--results", tmp_path / "none", cwd=tmp_path)
    assert refused.returncode == 2, refused.stderr
    assert "hint" in refused.stderr


def test_the_page_fits_every_width_and_theme_in_silence_and_is_accessible(
    browser: Browser, page: Path, axe: str
) -> None:
    check_fit(browser, page, axe)


def test_a_reader_sees_the_answer_first_and_every_verdict(
    browser: Browser, page: Path, results: Results
) -> None:
    visit = Visit(browser, page, width=390)
    assert visit.page.locator("h1").inner_text() == headline(results)
    assert visit.page.locator("main > section").first.get_attribute("id") == "answer"
    tiles = visit.page.locator("#answer .tiles dd:not(.note)")
    assert tiles.first.bounding_box()["y"] < PHONE_PX  # type: ignore[index]
    for name, judge in (("characteristics", characteristics), ("implications", implications)):
        for one in judge(results):
            row = visit.page.locator(f"#{name}-{one.id}")
            assert row.locator(f".badge.{BADGES[one.verdict]}").inner_text() == one.verdict
    assert visit.draw_all() == len(drawings(results))
    assert visit.page.locator(".save-svg").count() == len(drawings(results))
    linked = visit.page.locator("nav a").evaluate_all("all => all.map(a => a.getAttribute('href'))")
    assert [link for link in linked if visit.page.locator(link).count() != 1] == []
    visit.page.close()
