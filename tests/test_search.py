"""A search stays in its space and bounds, depends only on seed and batch, and continues after a stop."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applications import SEARCH
from conftest import (
    PATIENCE_S,
    assert_refused,
    begin,
    emmclab,
    emmclab_json,
    emmclab_ok,
    kept_cells,
    need_library,
    wait_until,
)
from emmclab.cli import main
from emmclab.errors import ConfigError
from emmclab.studies import Study
from emmclab.studies.grid import Range, Space
from emmclab.studies.search import Objective, SearchResult, Trial, dominates

WORDS = ("--minimize", "mean_response_ms", "--minimize", "waf", "--budget", 8, "--batch", 4)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    need_library("optuna")
    path = tmp_path / "tuned.toml"
    path.write_text(SEARCH.format(input="Email", most=30.0))
    return path


@pytest.mark.slow
def test_one_process_two_and_a_killed_run_that_goes_on_find_the_same(study: Path, tmp_path: Path) -> None:
    pages = []
    for jobs in (1, 2):
        page = tmp_path / f"{jobs}.html"
        words = ("search", study, *WORDS, "--jobs", jobs, "--results", tmp_path / str(jobs), "--html", page)
        emmclab_ok(*words)
        pages.append(page.read_bytes())
    assert pages[0] == pages[1]
    results = tmp_path / "killed"
    run = begin("search", study, *WORDS, "--jobs", "1", "--results", results)
    wait_until(lambda: kept_cells(results) >= 3 or run.poll() is not None)
    run.kill()
    run.wait(PATIENCE_S)
    page = tmp_path / "again.html"
    assert emmclab("search", study, *WORDS, "--results", results, "--html", page).returncode == 0
    assert page.read_bytes() == pages[0]
    # No cell is run twice: the first random trials equal those of TPE, and points of the grid are not repeated.
    output = emmclab_json("search", study, *WORDS, "--results", results)
    tried = {json.dumps(trial["values"]) for trial in output["trials"]}
    assert kept_cells(results) == len(tried)


def test_trials_lie_in_the_space_and_the_front_keeps_the_bounds(study: Path, tmp_path: Path) -> None:
    output = emmclab_json("search", study, *WORDS, "--jobs", 1, "--results", tmp_path)
    assert [row["way"] for row in output["ways"]] == ["TPE", "random", "grid"]
    for trial in output["trials"]:
        values = trial["values"]
        assert values["gc.policy"] in ("greedy", "fifo")
        assert 5 <= values["capacity.over_provisioning_pct"] <= 25
        assert values["gc.high_watermark"] in range(2, 13)
        assert trial["is_feasible"] == (trial["figures"]["mean_response_ms"] <= 30)
    assert output["front"] and all(trial["is_feasible"] for trial in output["front"])
    assert any(not trial["is_feasible"] for trial in output["trials"]), "else the bound is not tried"
    best = min(t["figures"]["mean_response_ms"] for t in output["trials"] if t["is_feasible"])
    assert best in [trial["figures"]["mean_response_ms"] for trial in output["front"]]
    assert len(output["trials"]) == 8 + 8 + 8
    other = emmclab_json("search", study, *WORDS, "--jobs", 1, "--results", tmp_path, "--seed", 2)
    assert other["trials"][0]["values"] != output["trials"][0]["values"]


def test_a_trial_is_an_ordinary_cell_of_the_study(study: Path, tmp_path: Path) -> None:
    """A study with the same setting finds the stored result of the trial."""
    output = emmclab_json("search", study, *WORDS, "--jobs", 1, "--results", tmp_path, "--no-baselines")
    before = kept_cells(tmp_path)
    values = output["trials"][0]["values"]
    lines = "\n".join(f'"{name}" = {json.dumps(value)}' for name, value in values.items())
    text = study.read_text().partition("[search]")[0]
    study.write_text(text + lines + "\n")
    emmclab_ok("run", study, "--jobs", 1, "--results", tmp_path)
    # Only the profile of the input is computed, because the simulation is already stored.
    assert kept_cells(tmp_path) == before + 1
    sql = "select mean_response_ms, waf from runs"
    (row,) = emmclab_json("query", sql, "--study", study, "--results", tmp_path)
    assert row == output["trials"][0]["figures"]


def test_bounds_that_nothing_keeps_give_an_empty_front_and_a_page(study: Path, tmp_path: Path) -> None:
    study.write_text(SEARCH.format(input="Email", most=0.0001))
    page = tmp_path / "page.html"
    done = emmclab_ok("search", study, *WORDS, "--jobs", 1, "--results", tmp_path, "--html", page)
    assert done.stdout.startswith("None of 24 trials is possible within the bounds")
    assert "No trial is possible" in page.read_text()


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("low = 5.0", "lo = 5.0", "did you mean `low`"),
        ("low = 5.0", "low = 50.0", "is below low"),
        ("high = 12", "high = 12\nstep = 0", "is not a step"),
        ("high = 12", "high = 12\nlog = true\nstep = 2", "no step"),
        ('["greedy", "fifo"]', '["greedy"]', "give at least two"),
        ('name = "gc.high_watermark"', 'name = "gc.policy"', "is given twice"),
        ('name = "gc.high_watermark"', 'name = "geometry.block_groups.0.blocks"', "has"),
        ("[search]", '[search]\ngrid = "other"', "there is no grid `other`"),
        ("most = 30.0", "", "not a bound"),
        ("[search]", '[search]\nbudget = "x"', "there is no such key"),
        ("[[search.setting]]", "[[search.space]]", "search.space`: there is no such key"),
    ],
)
def test_a_wrong_space_is_refused_with_a_hint(before: str, after: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Study.parse(SEARCH.format(input="Email", most=30.0).replace(before, after, 1), "tuned.toml")
    assert says in f"{caught.value} {caught.value.hint}"
    assert str(caught.value).startswith("tuned.toml: `search.")


def test_wrong_objectives_and_a_missing_library_are_refused(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, says in (
        ((), "there is no figure to optimise"),
        (("--minimize", "waf", "--maximize", "waf"), "is minimised and maximised"),
        (("--minimize", "mean_respons_ms", "--budget", 1), "did you mean `mean_response_ms`?"),
    ):
        assert_refused(emmclab("search", study, *words, "--jobs", 1, "--results", tmp_path), says)
    assert_refused(emmclab("search", "iiswc15", "--minimize", "waf", "--results", tmp_path), "no section `[search]`")
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    assert main(["search", str(study), "--minimize", "waf", "--jobs", "1", "--results", str(tmp_path)]) == 2
    assert re.search(r"pip install 'emmclab\[search\]'", capsys.readouterr().err)


def test_settings_that_no_device_can_have_are_trials_without_figures(study: Path, tmp_path: Path) -> None:
    study.write_text(SEARCH.format(input="Email", most=30.0).replace('["greedy", "fifo"]', '["greedy", "none-such"]'))
    output = emmclab_json("search", study, *WORDS, "--jobs", 1, "--results", tmp_path)
    bad = [trial for trial in output["trials"] if trial["values"]["gc.policy"] == "none-such"]
    assert bad and all("none-such" in trial["reason"] and not trial["figures"] for trial in bad)
    assert len(bad) < len(output["trials"])


numbers = st.integers(1, 50)


@given(st.lists(st.tuples(numbers, numbers, st.booleans()), min_size=1, max_size=4), st.integers(1, 400))
def test_a_grid_stays_within_its_budget_and_its_space(sizes: list[tuple[int, int, bool]], budget: int) -> None:
    ranges = tuple(Range(f"s{place}", min(a, b), max(a, b), log=log) for place, (a, b, log) in enumerate(sizes))
    points = Space("g", ranges).points(budget)
    assert 1 <= len(points) <= budget
    assert len({json.dumps(point) for point in points}) == len(points)
    for point in points:
        for parameter in ranges:
            assert parameter.low <= point[parameter.name] <= parameter.high and isinstance(point[parameter.name], int)


values = st.tuples(st.integers(0, 5), st.integers(0, 5))


@given(st.lists(values, min_size=1, max_size=12))
def test_the_front_is_what_nothing_dominates_and_dominates_the_rest(points: list[tuple[int, int]]) -> None:
    objectives = (Objective("a"), Objective("b", is_maximized=True))
    trials = [
        Trial("TPE", number, {}, {"a": float(a), "b": float(b)}, is_feasible=True)
        for number, (a, b) in enumerate(points)
    ]
    study = Study.parse('name = "x"\ninputs = ["Movie"]', "x.toml")
    front = SearchResult(study, objectives, Space("g", ()), trials, 1, 1, 1).front()
    assert front
    for trial in trials:
        same = any(trial.figures == best.figures for best in front)
        beaten = any(dominates(best, trial, objectives) for best in front)
        assert same != beaten
