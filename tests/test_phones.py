"""Workloads of a phone of 2022 on eMMC and UFS, and the page of findings, whose answers follow from results."""

import json
import re
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, Reproduced, assert_refused, emmclab, emmclab_json, emmclab_ok, execute
from emmclab.errors import ConfigError
from emmclab.papers.findings.findings import declared, link_power_saving
from emmclab.simulation.device import Device
from emmclab.studies import Pool, Results, Study
from emmclab.studies.grid import Grid
from emmclab.studies.run import run_study
from emmclab.studies.stored_types import Run
from emmclab.traces.profile import Profile
from emmclab.traces.reading import read
from emmclab.traces.workload import Workload, workload_groups

_SMALL = """
name = "small"
inputs = ["TelegramInstall"]
[[grid]]
name = "all"
devices = ["ufs22", "ufs31"]
capacity = "{}"
wrap_addresses = true
requests = 300
"""
_INPUTS = ("Telegram", "PUBG", "TelegramInstall")
FINDINGS = [finding for finding in declared() if finding.study == "phones"]


def test_the_models_are_what_fit_makes_of_the_public_traces(shared_traces: Path) -> None:
    script = ROOT / "presets" / "workloads" / "phones" / "make.py"
    execute(sys.executable, script, shared_traces / "pixel6a", "check")


def test_every_workload_of_a_phone_names_its_trace_and_what_was_taken_out_of_it() -> None:
    groups = workload_groups()
    for name in groups["phones"]:
        assert "suspected re-issues dropped" in Workload.preset(name).to_toml()
    assert {row["group"] for row in emmclab_json("synth")} == {*groups, "benchmarks"}


def test_a_grid_scales_its_devices_to_a_capacity(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(_SMALL.format("32GB"))
    emmclab_ok("run", file, "--results", tmp_path / "results", "--jobs", "1")
    study = Study.named(str(file))
    cells = [cell for cell in study.cells() if cell.device]
    assert [cell.device_name for cell in cells] == ["ufs22-32GB", "ufs31-32GB"]
    result = cells[0].outcome()["result"]
    assert 32 <= result["configuration"]["capacity_bytes"] / 2**30 < 33
    assert result["options"]["capacity"] == "32GB"


def test_a_capacity_that_is_none_names_the_grid() -> None:
    with pytest.raises(ConfigError, match=r"grid `all`"):
        Study.parse(_SMALL.format("many"), "small.toml").cells()


def test_the_study_has_every_device_with_the_capacity_of_the_phone() -> None:
    cells = [cell for cell in Study.named("phones").cells() if cell.device]
    assert len(cells) == 336
    # Wear is measured on the small device of the study `implications`.
    assert {cell.device_name.rpartition("-")[2] for cell in cells if cell.grid != "wear"} == {"128GB"}


def test_a_used_ufs_begins_with_an_empty_write_booster() -> None:
    device = Device.preset("ufs31", capacity="32GB")
    run = device.simulate(Workload.preset("TelegramInstall").trace(), precondition="sequential:60", wrap_addresses=True)
    booster = run["ufs"]["write_booster"]
    assert booster["bytes_past_it"] == 0
    # Data that preconditioning left in WriteBooster would be moved in the first pause.
    assert run["write_amplification"]["gc"] < 0.1


def _shortened(grid: Grid) -> Grid:
    """Return a grid with few inputs and requests, on a quarter of the capacity."""
    return replace(
        grid, inputs=_INPUTS, capacity="32GB" if grid.capacity else "", requests=min(grid.requests or 300, 3000)
    )


def _run(folder: Path) -> None:
    study = Study.named("phones")
    grids = tuple(map(_shortened, study.grids))
    run_study(replace(study, inputs=_INPUTS, grids=grids), folder / "phones", Pool(2))


@pytest.fixture(scope="module")
def results(reproduced: Reproduced) -> Results:
    """The results of the small study, run once for all workers."""
    return Results.load(reproduced.once("phones", _run) / "phones")


def _moved(value: Any, place: str) -> Any:
    """Return a result with every number changed by a different factor."""
    if isinstance(value, dict):
        return {key: _moved(item, f"{place}.{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [_moved(item, f"{place}.{number}") for number, item in enumerate(value)]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    by = 2 + zlib.crc32(place.encode()) % 997 / 100
    return value * by if isinstance(value, float) else round((value + 1) * by)


@pytest.fixture(scope="module")
def other(results: Results) -> Results:
    """The results with every figure changed, except settings, options and ledgers."""
    unchanged_groups = ("settings", "options", "configuration", "ledger")
    runs = [
        Run(_moved(run, str(number)) | {key: run[key] for key in unchanged_groups if key in run})
        for number, run in enumerate(run.to_dict() for run in results.runs)
    ]
    profiles = {
        name: Profile({**_moved(dict(profile), name), "ledger": profile["ledger"], "header": profile["header"]})
        for name, profile in results.profiles.items()
    }
    return replace(results, runs=runs, profiles=profiles)


@pytest.mark.parametrize("name", [candidate.id for candidate in FINDINGS])
def test_every_answer_and_figure_of_a_finding_follows_the_results(results: Results, other: Results, name: str) -> None:
    [finding] = [candidate for candidate in FINDINGS if candidate.id == name]
    before, after = (finding.answer({"phones": candidate}, []) for candidate in (results, other))
    assert before is not None and after is not None
    assert before.answer != after.answer
    measured = {row["value"] for row in before.rows} - {0.0, 1.0, 100.0}
    assert measured and measured.isdisjoint(row["value"] for row in after.rows)
    assert {row["trace"] for row in before.rows} <= set(_INPUTS)


def test_a_verdict_turns_with_what_was_measured(results: Results) -> None:
    [finding] = [candidate for candidate in FINDINGS if candidate.id == "characteristics-2022"]
    verdicts = set()
    for share in (1.0, 99.0):
        profiles = {
            name: Profile({**profile, "write_requests_pct": share}) for name, profile in results.profiles.items()
        }
        answer = finding.answer({"phones": replace(results, profiles=profiles)}, [])
        assert answer is not None
        verdicts.add(answer.answer.partition("writes dominate: ")[2].partition(" (Telegram")[0])
    assert verdicts == {"0 of 2 (2015: 15 of 18), no longer", "2 of 2 (2015: 15 of 18), still true"}


WITH_TRACES = {finding.id for finding in declared() if finding.traces}


@pytest.fixture(scope="module")
def page(reproduced: Reproduced, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the page of the findings from the results of the papers' studies."""
    reproduced.ledger()
    path = tmp_path_factory.mktemp("findings") / "findings.html"
    with reproduced.alone():
        done = emmclab(
            *("reproduce", "findings", "--jobs", 2, "--results", reproduced.results, "--html", path, "--json"),
            *("--figures", path.parent / "figures"),
        )
    assert done.returncode == 0, done.stderr
    (path.parent / "findings.json").write_text(done.stdout)
    return path


@pytest.fixture(scope="module")
def answers(page: Path) -> dict[str, dict[str, Any]]:
    """The findings by their names."""
    findings = json.loads((page.parent / "findings.json").read_text())
    return {finding["id"]: finding for finding in findings["findings"]}


def test_every_question_has_an_answer_with_values_or_needs_traces(answers: dict[str, dict[str, Any]]) -> None:
    assert list(answers) == [finding.id for finding in declared()]
    for name, finding in answers.items():
        assert bool(finding["answer"]) == (name not in WITH_TRACES), name
        assert bool(finding["values"]) == bool(finding["answer"]), name
        assert all(finding[text] for text in ("method", "limits", "refuted_by")), name
        assert finding["command"].startswith("emmclab "), name


def test_findings_have_figures_of_the_ledger(answers: dict[str, dict[str, Any]], ledger: list[dict[str, Any]]) -> None:
    measured = {claim["id"]: claim["measured"] for claim in ledger}
    merit = answers["hybrid-merit"]["answer"]
    shorter = re.search(r"\d+\.\d", measured["iiswc-hps-vs-8ps"])
    assert shorter and f"{shorter[0]} % shorter than 8 KB alone" in merit
    for cost, device in re.findall(r"(-?\d+ %) \(.*?\) on (\S+?)(?:,|$)", measured["dsn17-ideal"]):
        assert re.search(rf"on {device} .*?knows eMMC {cost}", answers["tax-left"]["answer"], re.IGNORECASE), device
    helped = re.search(r"in \d+ of \d+", measured["iiswc-impl1-queues"])
    assert helped and helped[0] in answers["parallel-queues"]["answer"]


def test_the_page_has_each_question_with_method_limits_and_command(page: Path) -> None:
    text = page.read_text()
    for finding in declared():
        for part in (finding.question, finding.method, finding.limits, finding.command):
            assert part.replace("'", "&#39;") in text, part
    assert len(list((page.parent / "figures").glob("*.svg"))) == len(declared()) - len(WITH_TRACES)


def test_traces_of_papers_are_refused_for_findings(tmp_path: Path) -> None:
    assert_refused(emmclab("reproduce", "findings", "--traces", tmp_path, cwd=tmp_path), "--trace")
    assert list(tmp_path.iterdir()) == []


def test_the_sleep_of_a_link_is_seen_in_the_recordings_of_a_phone(shared_traces: Path) -> None:
    profile = read(shared_traces / "pixel6a" / "pubg_exec.csv.gz", mend_clock=True).profile()
    answer = link_power_saving([profile])
    assert "asleep from 10 ms on" in answer.answer and "8.3 % of the requests" in answer.answer
    assert [row["trace"] for row in answer.rows] == ["pubg_exec"]
