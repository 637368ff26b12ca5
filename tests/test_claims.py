"""Every claim of the papers has a verdict, from measured values and recorded sources; a small page has all of them."""

import csv
import importlib.resources
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Browser

from browsing import Visit, check_fit
from conftest import ROOT, Reproduced, assert_refused, emmclab, emmclab_json, emmclab_ok, need
from emmclab.errors import ConfigError
from emmclab.papers.claims import (
    CANNOT,
    DIRECTION,
    HOLDS,
    NOT,
    NOT_YET,
    REPRODUCED,
    RESTATED,
    TESTED,
    VERDICTS,
    Check,
    Evidence,
    Rule,
    _on_weakest_device,
    headline,
    judge_study,
    open_parts,
    parse,
    rules,
    sources_of_field,
    studies_of,
    verdict,
)
from emmclab.papers.iiswc15.hybrid import PRIMARY, SMALL, readings
from emmclab.papers.measures import Measurement, find_measure, run_measure
from emmclab.papers.registry import papers, studies
from emmclab.simulation.device import Device
from emmclab.studies import Results, Study
from emmclab.studies.store import Store
from emmclab.studies.stored_types import Run
from emmclab.studies.unwritten import unwritten_table, unwritten_text
from emmclab.traces.reading import read
from emmclab.traces.workload import workload_groups

RULES = [rule for paper in papers().values() for rule in rules(paper)]
BY_ID = {rule.id: rule for rule in RULES}
MEASURED = [rule for rule in RULES if rule.measure]
FIELDS = (
    "id paper source claim published measured tolerance verdict reason as_test evidence".split()  # noqa: SIM905
)
#: Claims of other papers that are measured on the study of a paper.
BESIDE = {*("lsmvbt-wal-truncate", "joj-slowdown", "delta-journaling-gain", "fastcommit-jbd2-share"), "fastcommit-size"}
#: Claims of the papers that the shared list of published claims lacks.
ADDED = {
    *("fast12-axes", "iiswc-impl1-queues", "iiswc-8ps-wear"),
    *("iiswc-size-decides", "iiswc-packing"),
    *("systor24-effective-dftl", "systor24-effective-leaftl"),
    *("systor24-miss-dftl", "systor24-miss-leaftl", "systor24-sram"),
    *("hotos17-days", "mobisys19-weeks", "mobisys19-apps", "sandisk-industrial-tbw"),
}


@pytest.fixture(scope="module")
def results(reproduced: Reproduced, ledger: list[dict[str, Any]]) -> dict[str, Results]:
    """The results of every study on which claims are judged."""
    assert ledger
    names = studies_of(papers().values())

    def run_the_rest(_: Path) -> None:
        """Run the grids that no claim reads."""
        for name in names:
            assert emmclab("run", name, "--results", reproduced.results).returncode == 0

    reproduced.once("whole", run_the_rest)
    return {name: Results.load(reproduced.results / name) for name in names}


def test_the_ledger_has_every_published_claim_once_with_its_published_figures(shared_traces: Path) -> None:
    with (shared_traces.parent / "published" / "claims.csv").open(newline="") as file:
        published = {row["id"]: row for row in csv.DictReader(file)}
    assert len(RULES) == len(BY_ID)
    assert set(BY_ID) - BESIDE - ADDED == set(published)
    for rule in (rule for rule in RULES if rule.id not in BESIDE | ADDED):
        row = published[rule.id]
        assert (rule.source, rule.published) == (row["source"], row["published"]), rule.id


def test_the_command_prints_one_verdict_for_every_claim(ledger: list[dict[str, Any]]) -> None:
    assert [list(claim) for claim in ledger] == [FIELDS] * len(RULES)
    assert [claim["id"] for claim in ledger] == [rule.id for rule in RULES]
    assert {claim["verdict"] for claim in ledger} <= set(VERDICTS)
    for claim in ledger:
        if claim["verdict"] in (CANNOT, NOT_YET):
            assert claim["measured"] == "–"
            assert len(claim["reason"].split()) > 8
        else:
            assert any(letter.isdigit() for letter in claim["measured"]), claim["id"]
            assert claim["evidence"]["study"] in studies()
            assert claim["evidence"]["values"]
            # Conversion drops keys that the type lacks, so that the comparison would fail.
            assert msgspec.convert(claim["evidence"], Evidence) == claim["evidence"]


def _expected(rule: Rule) -> str:
    """Return the declared verdict of a claim; without a measure the claim cannot have been checked."""
    return rule.expected or (NOT_YET if rule.not_yet else CANNOT)


def _as_test(rule: Rule) -> str:
    """Return the declared verdict that a restated claim would have as a test; empty for other claims."""
    return rule.expected_as_test if rule.expected == RESTATED else ""


def test_verdicts_are_those_that_are_explained(ledger: list[dict[str, Any]]) -> None:
    verdicts = {claim["id"]: (claim["verdict"], claim["as_test"]) for claim in ledger}
    expected = {rule.id: (_expected(rule), _as_test(rule)) for rule in RULES}
    assert verdicts == expected, "a verdict that changes, for better or worse, is a change to explain"


def test_a_claim_that_is_measured_says_its_verdict() -> None:
    assert [rule.id for rule in MEASURED if rule.expected not in (*TESTED, RESTATED)] == []
    assert [rule.id for rule in RULES if rule.expected and not rule.measure] == []


def test_not_yet_is_said_only_of_systems_to_come(ledger: list[dict[str, Any]]) -> None:
    for claim in ledger:
        if claim["verdict"] == NOT_YET:
            assert papers()[claim["paper"]].state != "works"


def test_one_paper_or_one_study_gives_the_verdicts_of_the_whole_ledger(
    ledger: list[dict[str, Any]], results: dict[str, Results], reproduced: Reproduced
) -> None:
    ledger_by_id = {claim["id"]: claim for claim in ledger}
    alone = emmclab_json("claims", "--paper", "advil12", "--results", reproduced.results)
    assert alone == [claim for claim in ledger if claim["paper"] == "advil12"]
    for study_results in results.values():
        for claim in judge_study(study_results):
            assert claim.to_dict() == ledger_by_id[claim.id]


def test_grids_without_claims_are_declared(ledger: list[dict[str, Any]]) -> None:
    read: dict[str, set[str]] = {name: set() for name in studies_of(papers().values())}
    for evidence in (claim["evidence"] for claim in ledger):
        if evidence and evidence["study"] in read:
            read[evidence["study"]] |= {cells["grid"] for cells in evidence["cells"]}
    for name, grids in read.items():
        unread = {grid.name for grid in Study.named(name).grids} - grids
        assert unread == set(studies()[name].grids_without_claims.get(name, ())), name


def test_claims_run_only_the_grids_that_they_read(tmp_path: Path) -> None:
    words = ("claims", "--paper", "dsn17", "--jobs", 1, "--results", tmp_path)
    assert_refused(emmclab(*words, "--stored"), "simulations without a stored result")
    assert not any(tmp_path.iterdir()), "nothing was run"
    result = emmclab_json(*words)
    assert emmclab_json(*words, "--stored") == result
    index = Store(tmp_path / "dsn17").index()
    assert {cell["grid"] for cell in index["missing"]} == {"ordered_fua", "packed"}
    report = emmclab("report", "dsn17", "--results", tmp_path, "--html", tmp_path / "page.html")
    assert report.returncode == 1
    assert "54 of 345 cells have no result" in report.stderr
    assert not (tmp_path / "page.html").exists()
    assert emmclab("run", "dsn17", "--jobs", 1, "--results", tmp_path).returncode == 0
    assert emmclab_json(*words) == result
    assert "missing" not in Store(tmp_path / "dsn17").index(), "results of other grids stay"


def test_a_headline_counts_tested_restated_and_unchecked_apart(results: dict[str, Results]) -> None:
    claims = judge_study(results["iiswc15"])
    numbers = map(int, re.findall(r"\d+", headline(claims)))
    tested, reproduced, hold, direction, not_, restated, failing, cannot = numbers
    assert tested == reproduced + hold + direction + not_
    assert failing == sum(claim.as_test in (DIRECTION, NOT) for claim in claims) == 4
    assert tested + restated + cannot == len(claims)


def test_the_table_of_the_readme_counts_the_declared_verdicts_of_each_paper() -> None:
    """Another test compares the verdicts of results with the declared ones."""
    readme = (ROOT / "README.md").read_text()
    readme_counts = {
        name: [int(cell) for cell in cells.split(" | ")]
        for name, cells in re.findall(r"^\| ([^|]+) \| ((?:\d+ \| ){7}\d+) \|$", readme, re.MULTILINE)
    }
    rows = {f"`{paper.name}`": [rule for rule in rules(paper) if rule.id not in BESIDE] for paper in papers().values()}
    rows |= {"four other papers": [BY_ID[name] for name in BESIDE], "all": RULES}
    assert len(readme_counts) == len(rows)
    for name, declared in rows.items():
        (cells,) = (cells for title, cells in readme_counts.items() if re.search(rf"(^|\W){name}(\W|$)", title))
        verdicts = Counter(map(_expected, declared))
        failing = sum(_as_test(rule) in (DIRECTION, NOT) for rule in declared)
        counted = [verdicts[word] for word in VERDICTS if word != NOT_YET]
        assert cells == [len(declared), *counted[:-1], failing, counted[-1]], name
        assert not verdicts[NOT_YET]


@pytest.mark.parametrize(("study", "page"), [("fast12", "fast12"), ("phones", "findings")])
def test_the_page_of_a_paper_gives_the_number_of_simulations_of_a_study(study: str, page: str) -> None:
    count = sum(cell.device != "" for cell in Study.named(study).cells())
    assert f"{count:,} simulations" in (ROOT / f"docs/papers/{page}.md").read_text()


def test_the_document_of_the_implications_shows_the_figures_of_the_ledger(ledger: list[dict[str, Any]]) -> None:
    number = re.compile(r"\d+(?:\.\d+)?")
    claims = [claim for claim in ledger if claim["evidence"].get("study") == "implications"]
    text = (ROOT / "docs" / "concepts" / "emmc.md").read_text()
    rows = re.findall(r"\| (Characteristic \d|\d|III-A|V), .*? \| .*? \| (.*?) \| (.*?) \|", text)
    assert len(rows) == len(claims)
    for title, figure, verdict_text in rows:
        source = f"IISWC15 {f'Implication {title}' if title.isdecimal() else title}"
        # An implication may have more than one claim.
        of_source = [claim for claim in claims if claim["source"] == source]
        matching = [row for row in of_source if {*number.findall(figure)} <= {*number.findall(row["measured"]), "0"}]
        assert matching, (title, figure)
        assert verdict_text.startswith(matching[0]["verdict"]), title


@pytest.mark.parametrize("rule", MEASURED, ids=lambda rule: rule.id)
def test_every_tolerance_states_the_numbers_that_are_checked(rule: Rule) -> None:
    """The text is shown, but `within` determines the verdict: in the unit of the value, or in percent of the figure."""
    numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", rule.tolerance)]
    for check in rule.checks:
        if check.published is None or not check.within:
            continue
        effect = abs(check.published - (check.neutral or 0))
        limits = [*numbers, *(part * number / 100 for number in numbers for part in (check.published, effect))]
        rounding = max(0.05, 0.06 * check.within)
        assert any(abs(check.within - limit) <= rounding for limit in limits), check


@pytest.mark.parametrize("rule", MEASURED, ids=lambda rule: rule.id)
def test_every_check_can_fail(rule: Rule) -> None:
    for check in rule.checks:
        verdicts = {verdict((check,), {check.value: value}) for value in (-1e12, 1e12)}
        if check.value == "paper_application":
            assert verdict((check,), {check.value: 0.0}) == DIRECTION
        else:
            assert NOT in verdicts, check


#: The limits of the same trend, if the tolerance of a claim states them as separate numbers.
FOR_THE_TREND = {
    rule.id: float(match[1])
    for rule in MEASURED
    if (match := re.search(r"(\d+(?:\.\d+)?)(?: %| of them)? for the trend", rule.tolerance))
}


@pytest.mark.parametrize("name", FOR_THE_TREND)
def test_what_a_tolerance_grants_for_the_trend_is_the_same_trend(name: str) -> None:
    """A value at this limit has the same trend by all checks of the claim."""
    (check,) = BY_ID[name].checks
    assert verdict(BY_ID[name].checks, {check.value: FOR_THE_TREND[name]}) == DIRECTION


CHECKS = [(rule, check) for rule in MEASURED for check in rule.checks if check.value != "paper_application"]


@pytest.mark.parametrize(("rule", "check"), CHECKS, ids=[f"{rule.id}-{check.value}" for rule, check in CHECKS])
def test_less_than_half_of_a_published_effect_is_not_reproduced(rule: Rule, check: Check) -> None:
    """One value at a time is changed: a claim with a failing part is not reproduced, regardless of the other parts."""
    assert rule.tolerance
    for value in _less_than_half(check):
        assert not check.direction(value), value


def _less_than_half(check: Check) -> list[float]:
    """Return values with less than half of the published effect, or outside a bound."""
    bound = next(
        (bound for bound in (check.published, check.at_least, check.at_most) if bound and abs(bound) < 1e300), None
    )
    if check.neutral is not None and bound is not None and bound != check.neutral:
        return [check.neutral + 0.49 * (bound - check.neutral), check.neutral]
    low = check.least if check.least > -1e300 else check.at_least
    high = check.most if check.most < 1e300 else check.at_most
    if check.published is not None:
        # A value within its tolerance is exact, regardless of the bounds.
        beyond = check.within + 0.01
        low, high = min(low, check.published - beyond), max(high, check.published + beyond)
        if max(abs(low), abs(high)) > 1e300 and check.least < -1e300 and check.most > 1e300:
            return [check.published - beyond, check.published + beyond]
    return [edge for edge in (low - 0.01, high + 0.01) if abs(edge) < 1e300]


@pytest.mark.parametrize("name", [rule.id for rule in RULES if rule.expected in TESTED])
def test_a_measured_effect_that_is_halved_loses_its_verdict(name: str, ledger: list[dict[str, Any]]) -> None:
    """Each value of a claim is tested separately; a value above the published one is set to half of the latter."""
    claim = next(claim for claim in ledger if claim["id"] == name)
    values = claim["evidence"]["values"]
    for check in BY_ID[name].checks:
        if claim["verdict"] == NOT or check.value not in values or check.value == "paper_application":
            continue
        for value in _less_than_half(check):
            assert verdict(BY_ID[name].checks, values | {check.value: value}) == NOT


@given(effect=st.floats(0.01, 100), neutral=st.sampled_from([0.0, 1.0]), ratio=st.floats(-3, 5))
def test_in_direction_is_half_to_twice_the_published_effect(effect: float, neutral: float, ratio: float) -> None:
    check = Check("x", published=neutral + effect, within=0.0, neutral=neutral)
    if min(abs(ratio - edge) for edge in (0.5, 1.0, 2.0)) < 1e-6:
        return
    expected = DIRECTION if 0.5 <= ratio <= 2 else NOT
    assert verdict((check,), {"x": neutral + ratio * effect}) == expected


@pytest.mark.parametrize(
    ("measured", "expected"),
    [(24.0, REPRODUCED), (29.0, REPRODUCED), (29.1, DIRECTION), (12.0, DIRECTION), (11.9, NOT), (48.1, NOT)],
)
def test_a_verdict_follows_from_tolerance_and_effect(measured: float, expected: str) -> None:
    assert verdict((Check("gain", 24.0, within=5.0, neutral=0.0),), {"gain": measured}) == expected


def test_a_bound_of_the_paper_is_exact_and_a_bound_of_ours_is_not() -> None:
    assert verdict((Check("gain", at_least=3.0, neutral=0.0),), {"gain": 3.1}) == REPRODUCED
    assert verdict((Check("gain", at_least=3.0, neutral=0.0),), {"gain": 1.6}) == DIRECTION
    assert verdict((Check("gain", at_least=3.0, neutral=0.0),), {"gain": 1.4}) == NOT
    assert verdict((Check("gain", at_least=1.001),), {"gain": 1.0}) == NOT
    assert verdict((Check("share", most=50),), {"share": 13}) == HOLDS
    assert verdict((Check("share", most=50),), {"share": 60}) == NOT


def test_a_claim_on_several_devices_has_the_weakest_verdict() -> None:
    rule = replace(BY_ID["iiswc-c1"], checks=(Check("gain", 10.0, within=1.0, neutral=0),), unchecked="")
    by_device = {"near": {"gain": 10.5}, "far": {"gain": 16.0}}
    weakest, text = _on_weakest_device(rule, Measurement("both", {"gain": 10.5}, by_device=by_device))
    assert weakest.values == by_device["far"] and f"near: {REPRODUCED}; far: {DIRECTION}" in text
    alone = Measurement("one", {"gain": 10.5})
    assert _on_weakest_device(rule, alone) == (alone, "")


def test_a_claim_that_comes_out_under_the_other_reading_says_under_which(ledger: list[dict[str, Any]]) -> None:
    claims = {claim["id"]: claim for claim in ledger}
    for name in ("advil-fig8-hotcold-gain", "advil-fig8-hotcold-loss"):
        other = f"If only overwritten data counts as invalidated, the verdict would be: {REPRODUCED}."
        assert claims[name]["verdict"] == NOT and other in claims[name]["reason"]


def test_a_claim_with_a_part_that_is_not_checked_is_not_reproduced() -> None:
    checks = (Check("a", 1.0, neutral=0), Check("b", 2.0, within=0.5, neutral=0, part="two at night"))
    assert verdict(checks, {"a": 1.0, "b": 2.4}) == REPRODUCED
    assert verdict(checks, {"a": 1.0}) == DIRECTION
    assert verdict(checks, {}) == CANNOT
    assert verdict(checks, {"a": 0.4, "b": 2.0}) == NOT
    assert verdict(checks[:1], {"a": 1.0}, full=False) == DIRECTION
    assert verdict((Check("faster", least=13),), {"faster": 25}, full=False) == DIRECTION
    rule = replace(BY_ID["iiswc-c1"], checks=checks, unchecked="three at noon")
    assert open_parts(rule, {"a": 1.0}) == "Not checked: two at night; three at noon."


def _verdict_of(name: str, results: dict[str, Results]) -> str:
    study = BY_ID[name].study
    return next(claim.verdict for claim in judge_study(results[study]) if claim.id == name)


def test_a_restated_claim_is_tested_by_default(results: dict[str, Results], monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove a source of the workloads, and of a device, and check that the verdict changes."""
    sources = sources_of_field
    for name, source in (
        ("iiswc-c3", "iiswc15_table4_timing.no_wait_pct"),
        ("iiswc-throughput-read", "iiswc-throughput-read"),
        ("iiswc-fig5", "iiswc-fig5"),
    ):
        assert _verdict_of(name, results) == RESTATED
        monkeypatch.setattr("emmclab.papers.claims.sources_of_field", lambda *of, gone=source: sources(*of) - {gone})
        assert _verdict_of(name, results) in TESTED, name
        monkeypatch.setattr("emmclab.papers.claims.sources_of_field", sources)
    inputs = ("advil-fig9-fill", "advil-fig9", "iiswc-c4")
    assert {_verdict_of(name, results) for name in inputs} == {RESTATED}
    monkeypatch.setattr("emmclab.papers.claims._sources_of_input", lambda _: frozenset())
    assert {_verdict_of(name, results) for name in inputs} <= set(TESTED)
    monkeypatch.undo()
    for name in ("advil-ratio-read-write", "iiswc-split-20k"):
        assert _verdict_of(name, results) == RESTATED
        monkeypatch.setattr("emmclab.papers.claims.fitted_to", lambda _: frozenset())
        assert _verdict_of(name, results) in TESTED, name
        monkeypatch.undo()


def test_a_tested_claim_is_restated_with_source(results: dict[str, Results], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("iiswc-hps-mrt-mean", "iiswc-impl2-idle-gc", "advil-fig7-best"):
        assert _verdict_of(name, results) in TESTED
        monkeypatch.setattr("emmclab.papers.claims.fitted_to", lambda _, own_id=name: frozenset({own_id}))
        assert _verdict_of(name, results) == RESTATED
        monkeypatch.undo()


def test_what_a_measure_reads_is_recorded(results: dict[str, Results]) -> None:
    _, reads = run_measure(find_measure("iiswc15", "characteristics.no_wait"), results["iiswc15"])
    assert {field for _, field in reads.profiles} == {"no_wait_pct"}
    assert list(reads.tables) == ["iiswc15_table4_timing"]
    assert not reads.runs
    _, reads = run_measure(find_measure("iiswc15", "hybrid.hybrid_mean"), results["iiswc15"])
    grids = {"hybrid", "hybrid-small", "ssdsim-4k", "ssdsim-8k", "ssdsim-8k-aligned", "ssdsim-hps", "ssdsim-hps-small"}
    assert {run["grid"] for run in reads.runs.values()} == grids
    _, reads = run_measure(find_measure("iiswc15", "hybrid.split_20k"), results["iiswc15"])
    assert list(reads.devices) == ["iiswc15-8ps", "iiswc15-hps"]


def test_figures_8_and_9_read_one_8_kb_device_and_the_other_is_their_range(results: dict[str, Results]) -> None:
    study_results = results["iiswc15"]
    other = {"ssdsim-8k": "ssdsim-8k-aligned", "ssdsim-8k-aligned": "ssdsim-8k"}
    runs = [Run({**run, "grid": other.get(run.grid, run.grid)}) for run in study_results.runs]
    turned = Results(study_results.about, study_results.profiles, runs, "")
    for name, value in (("hybrid_against_8ps", "mean"), ("utilisation_best", "points"), ("utilisation_mean", "points")):
        measure = find_measure("iiswc15", f"hybrid.{name}")
        measurement, swapped = measure(study_results), measure(turned)
        assert measurement.values[value] < swapped.values[value]
        assert f"aligned +{swapped.values[value]:.1f}" in measurement.note


def test_the_8_kb_device_of_claims_splits_writes_by_size_alone(results: dict[str, Results], tmp_path: Path) -> None:
    """The paper states that 20 KB use 24 KB. Aligned pages split a write by its address, too."""
    for grid, used in (("ssdsim-8k", {20: 24, 8: 8}), ("ssdsim-8k-aligned", {20: 24, 8: 16})):
        run = next(results["iiswc15"].select(grid))
        device = Device.named(run["device"]).set(run["settings"])
        for kb, expected in used.items():
            path = tmp_path / f"{kb}.csv"
            path.write_text(f"0,write,8,{2 * kb}\n")  # begins at 4 KB
            trace = read(path, format="csv", columns="arrival,op,sector,sectors", time_unit="s")
            result = device.simulate(trace, mode="open")
            assert result["space.space_utilisation"] == pytest.approx(kb / expected), grid


def test_a_claim_that_turns_false_is_not_reproduced(results: dict[str, Results]) -> None:
    study_results = results["iiswc15"]
    swapped = {"ssdsim-4k": "ssdsim-hps", "ssdsim-hps": "ssdsim-4k"}
    runs = [Run({**run, "grid": swapped.get(run.grid, run.grid)}) for run in study_results.runs]
    turned = judge_study(Results(study_results.about, study_results.profiles, runs, ""))
    verdicts = {claim.id: claim.verdict for claim in turned}
    for name in ("iiswc-hps-mrt-mean", "iiswc-hps-mrt-min", "iiswc-hps-mrt-max", "iiswc-hps-all18"):
        assert verdicts[name] == NOT


def test_readings_are_all_forty_and_agree_with_single_runs(results: dict[str, Results]) -> None:
    result = readings(results["iiswc15"])
    assert len(result) == 40
    import emmclab
    from emmclab.traces.workload import Workload

    trace = Workload.preset("Movie").trace(1)
    rules_of_ssdsim = {
        "timing.command_ns": 35,
        "timing.bus_ns_per_byte": 5,
        "timing.write_complete": "transferred",
        "controller.scheduling": "read_first",
    }
    four = emmclab.Device.preset("ssdsim").simulate(trace, mode="open")
    hybrid = emmclab.Device.preset("iiswc15-hps").set(rules_of_ssdsim).simulate(trace, mode="open")
    movie = 100 * (1 - hybrid["response.mean_response_ms"] / four["response.mean_response_ms"])
    assert result[PRIMARY]["worst"] == pytest.approx(movie)
    small = emmclab.Device.preset("iiswc15-hps").set({**rules_of_ssdsim, "mapping.unwritten_read": "flash_small"})
    hybrid = small.simulate(trace, mode="open")
    assert [pages["page_kb"] for pages in hybrid["map"]["unwritten_pages"]] == [4]
    movie = 100 * (1 - hybrid["response.mean_response_ms"] / four["response.mean_response_ms"])
    assert result[SMALL]["worst"] == pytest.approx(movie)


def test_claims_say_what_their_runs_read_although_nobody_wrote_it(results: dict[str, Results]) -> None:
    claims = {claim.id: claim for claim in judge_study(results["iiswc15"])}
    mean = claims["iiswc-hps-mrt-mean"]
    assert "of the read requests of a run touch data that nobody wrote" in mean.reason
    assert "4 KB" in mean.reason and "the model decides its page size and its planes" in mean.reason
    written = [run for run in results["iiswc15"].runs if not run.map.unwritten_request_pct]
    assert unwritten_text(written) == "" and unwritten_table(written) is None
    table = unwritten_table(results["iiswc15"].runs)
    assert table is not None and ("ssdsim-hps", "iiswc15-hps") in [(row[0], row[1]) for row in table.rows]


@pytest.mark.parametrize(
    "entry",
    [
        'id = "x"\nmeasure = "a.b"\nchecks = [{ value = "low" }]',
        'id = "x"\nmeasure = "a.b"\ntolerance = "t"\nchecks = [{ value = "low", whithin = 1 }]',
        'id = "x"\nmesure = "a.b"',
        'id = "x"',
        'id = "x"\ncannot = "why"\nnot_yet = "when"',
    ],
)
def test_a_wrong_ledger_is_refused(entry: str) -> None:
    words = 'source = "s"\nclaim = "c"\npublished = "p"\n'
    with pytest.raises(ConfigError, match="x"):
        parse(f"[[claim]]\n{words}{entry}\n", "test")


@pytest.mark.parametrize("name", ["characteristics.no_such", "no_such.no_wait", "characteristics.share"])
def test_an_unknown_measure_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(name)):
        find_measure("iiswc15", name)


def test_a_paper_to_come_has_no_study_and_the_error_says_so(tmp_path: Path) -> None:
    package = Path(str(importlib.resources.files("emmclab")))
    shutil.copytree(package, tmp_path / "emmclab", ignore=shutil.ignore_patterns("__pycache__"))
    for study in (tmp_path / "emmclab/papers/fast12").glob("*.study.toml"):
        study.unlink()
    command = [sys.executable, "-m", "emmclab", "reproduce", "fast12"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert "its system is not implemented" in done.stderr


def test_the_papers_are_listed_with_their_state() -> None:
    papers = {paper["name"]: paper for paper in emmclab_json("papers")}
    assert {name: paper["state"] for name, paper in papers.items()} == {
        "advil12": "works",
        "dsn17": "works",
        "fast12": "works",
        "iiswc15": "works",
        "systor24": "works",
        "wear19": "works",
    }
    assert sum(paper["claims"] for paper in papers.values()) == len(RULES)
    output = emmclab("papers").stdout
    assert all(name in output for name in papers)


def test_the_log_of_the_papers_recorder_adds_what_the_ledger_says(loop: str) -> None:
    """Repeats the measurement on this machine's kernel, with few logs."""
    assert loop
    need("mkfs.ext4")
    bench = ROOT / "benches" / "tracer_overhead.py"
    done = subprocess.run(
        [sys.executable, bench, "--logs", "5", "--logs-only"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    added = float(re.findall(r'"added_per_log": ([\d.]+)', done.stdout)[0])
    assert 3 <= added < 6, done.stdout


def test_the_fast_commits_of_a_mail_server_are_those_that_the_kernel_counts(loop: str) -> None:
    """Repeats the measurement with few loops; it fails if the kernel's counter and events disagree."""
    assert loop
    need("mkfs.ext4")
    bench = ROOT / "benches" / "fast_commits.py"
    done = subprocess.run(
        [sys.executable, bench, "--runs", "1", "--loops", "32"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    by_threads = json.loads(done.stdout)["by_threads"]
    assert by_threads["1"]["one_block_pct"] == 100
    assert by_threads["1"]["journal_pct"] > by_threads["16"]["journal_pct"] > 20


def test_numbers_of_published_claims_are_in_their_sentences() -> None:
    number = re.compile(r"\d+(?:[.,]\d+)*")
    faults = [
        f"{rule.id}: {missing} of `{rule.published}`"
        for paper in papers().values()
        for rule in rules(paper)
        if (missing := sorted({*number.findall(rule.published)} - {*number.findall(rule.claim)}))
    ]
    assert faults == []


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
    reproduced, hold, direction, not_, restated, _failing, cannot = counts
    assert badges == [reproduced + hold, direction, not_, restated]
    assert sum(badges[:3]) == tested
    assert sum(badges) + cannot == len(CLAIMS)
    order = visit.page.locator("#claims .badge").all_inner_texts()
    assert order == sorted(order, key=lambda word: word == RESTATED), "tested claims stand first"


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
