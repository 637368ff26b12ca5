"""Every claim of the paper is computed or says why not, and verdicts follow from tolerances alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import ROOT, emmclab, emmclab_json
from emmclab.claims import (
    CANNOT,
    DIRECTION,
    NOT,
    REPRODUCED,
    VERDICTS,
    Check,
    Rule,
    judge,
    open_parts,
    parse,
    rules,
    said,
    verdict,
)
from emmclab.errors import ConfigError
from emmclab.study import Results
from emmclab.study.readings import PRIMARY, readings

PAPERS = ["iiswc15", "implications", "advil12"]
#: Claims of IISWC 2015 that are not reproduced in full.
OTHERS = {
    "iiswc-throughput-write": DIRECTION,
    "iiswc-c4": DIRECTION,
    "iiswc-fig4-small": DIRECTION,
    "iiswc-fig6": DIRECTION,
    "iiswc-tracer-overhead": CANNOT,
    "iiswc-impl1-sdcard": DIRECTION,
    "iiswc-impl2-idle-gc": DIRECTION,
    "iiswc-impl3-ram": DIRECTION,
    "iiswc-impl5-slc": CANNOT,
    "iiswc-hps-mrt-max": DIRECTION,
    "iiswc-hps-util-max": DIRECTION,
}
FIELDS = ["id", "source", "claim", "published", "measured", "tolerance", "verdict", "reason"]


@pytest.fixture(scope="module")
def results(reproduced: Path) -> Results:
    return Results.load(reproduced / "results" / "iiswc15")


def test_the_ledger_has_every_published_claim_and_no_other() -> None:
    assert {rule.id for rule in rules("iiswc15")} == set(said("iiswc15"))


def test_what_cannot_be_checked_says_what_is_missing() -> None:
    for paper in PAPERS:
        for rule in rules(paper):
            assert not rule.cannot or len(rule.cannot.split()) > 8, rule.id


@pytest.mark.parametrize("paper", PAPERS)
def test_every_tolerance_states_the_numbers_that_are_checked(paper: str) -> None:
    """The text is shown, `within` decides: in the unit of the value, or in percent of the figure."""
    for rule in rules(paper):
        text = rule.tolerance.replace("two", "2").replace("nine of ten", "10 %")
        stated = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]
        for check in rule.checks:
            if check.published is None or not check.within:
                continue
            limits = [*stated, *(abs(check.published) * number / 100 for number in stated)]
            rounding = max(0.05, 0.06 * check.within)
            assert any(abs(check.within - limit) <= rounding for limit in limits), (rule.id, check, text)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_check_can_change_a_verdict(paper: str) -> None:
    for rule in rules(paper):
        for check in rule.checks:
            verdicts = {
                verdict((check,), {check.value: value}) for value in (check.published or 0.0, -1e12, 1e12)
            }
            assert len(verdicts) > 1, (rule.id, check)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (24.0, REPRODUCED),
        (29.0, REPRODUCED),
        (29.1, DIRECTION),
        (0.0, DIRECTION),
        (-0.1, NOT),
        (99.0, DIRECTION),
    ],
)
def test_a_verdict_follows_from_tolerance_and_direction(measured: float, expected: str) -> None:
    assert verdict((Check("gain", 24.0, within=5.0, least=0.0),), {"gain": measured}) == expected


def test_a_claim_without_a_published_figure_holds_in_direction_at_most() -> None:
    assert verdict((Check("share", least=50),), {"share": 80}) == DIRECTION
    assert verdict((Check("share", least=50),), {"share": 40}) == NOT


def test_one_value_outside_decides() -> None:
    checks = (Check("a", 1.0), Check("b", 2.0, within=0.5))
    assert verdict(checks, {"a": 1.0, "b": 2.4}) == REPRODUCED
    assert verdict(checks, {"a": 1.0, "b": 2.6}) == DIRECTION


def test_a_claim_with_a_part_that_is_not_checked_is_not_reproduced() -> None:
    checks = (Check("a", 1.0), Check("b", 2.0, within=0.5, part="two at night"))
    assert verdict(checks, {"a": 1.0}) == DIRECTION
    assert verdict(checks, {"a": 1.5}) == DIRECTION
    assert verdict(checks, {}) == CANNOT
    assert verdict((Check("a", 1.0, least=0.9), checks[1]), {"a": 0.5}) == NOT
    assert verdict(checks[:1], {"a": 1.0}, whole=False) == DIRECTION
    rule = Rule("x", checks=checks, unchecked="three at noon")
    assert open_parts(rule, {"a": 1.0}) == "Not checked: two at night; three at noon."
    assert open_parts(Rule("x", checks=checks[:1]), {"a": 1.0}) == ""


def test_the_write_rate_at_16_mb_is_named_as_not_checked(results: Results) -> None:
    claim = next(claim for claim in judge(results) if claim.id == "iiswc-throughput-write")
    assert claim.verdict == DIRECTION
    assert "Not checked: 56.15 MB/s at 16 MB." in claim.reason


@pytest.mark.parametrize(
    "entry",
    [
        'id = "x"\nmeasure = "no_such"\ntolerance = "t: r"\nchecks = [{ value = "a" }]',
        'id = "x"\nmeasure = "no_wait"\nchecks = [{ value = "low" }]',
        'id = "x"\nmeasure = "no_wait"\ntolerance = "t: r"\nchecks = [{ value = "low", whithin = 1 }]',
        'id = "x"\nmesure = "no_wait"',
    ],
)
def test_a_wrong_ledger_is_refused(entry: str) -> None:
    with pytest.raises(ConfigError, match="x"):
        parse(f"[[claim]]\n{entry}\n", "test")


def test_claims_come_as_a_list_of_objects(reproduced: Path) -> None:
    claims = emmclab_json("claims", "--paper", "iiswc15", "--results", reproduced / "results")
    assert [list(claim) for claim in claims] == [FIELDS] * len(said("iiswc15"))
    assert [claim["id"] for claim in claims] == list(said("iiswc15"))
    assert {claim["verdict"] for claim in claims} <= set(VERDICTS)
    for claim in claims:
        if claim["verdict"] == CANNOT:
            assert len(claim["reason"].split()) > 8
        else:
            assert any(letter.isdigit() for letter in claim["measured"])
    others = {claim["id"]: claim["verdict"] for claim in claims if claim["verdict"] != REPRODUCED}
    assert others == OTHERS, (
        "a verdict that changes, for better or worse, is a change of the model to explain"
    )


def test_an_unknown_paper_is_refused(tmp_path: Path) -> None:
    done = emmclab("claims", "--paper", "iiswc16", "--results", tmp_path)
    assert done.returncode == 2
    assert "iiswc15" in done.stderr


def test_a_claim_that_turns_false_is_not_reproduced(results: Results) -> None:
    swapped = {"iiswc15-4ps": "iiswc15-hps", "iiswc15-hps": "iiswc15-4ps"}
    runs = [{**run, "device": swapped.get(run["device"], run["device"])} for run in results.runs]
    turned = {claim.id: claim.verdict for claim in judge(Results(results.about, results.profiles, runs, ""))}
    assert turned["iiswc-hps-mrt-mean"] == NOT
    assert turned["iiswc-hps-mrt-min"] == NOT


def test_readings_are_all_sixteen_and_agree_with_single_runs(results: Results) -> None:
    found = readings(results)
    assert len(found) == 16
    assert PRIMARY in found
    import emmclab
    from emmclab.workload import Workload

    trace = Workload.preset("Movie").trace(1)
    means = [
        emmclab.Device.preset(name).set({"timing.write_complete": PRIMARY.write_complete}).simulate(trace)
        for name in ("iiswc15-4ps", "iiswc15-hps")
    ]
    movie = 100 * (1 - means[1]["response.mean_response_ms"] / means[0]["response.mean_response_ms"])
    assert found[PRIMARY]["worst"] == pytest.approx(movie)


def test_the_ledger_of_claims_is_the_one_in_the_project() -> None:
    text = (ROOT / "presets" / "claims" / "iiswc15.toml").read_text()
    assert [rule.id for rule in parse(text, "iiswc15")] == [rule.id for rule in rules("iiswc15")]
