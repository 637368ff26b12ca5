"""The page of findings: every question has its answer from results, and its limits."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from conftest import Reproduced, assert_refused, emmclab
from emmclab.papers.findings.findings import declared

WITH_TRACES = {one.id for one in declared() if one.traces}


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
def found(page: Path) -> dict[str, dict[str, Any]]:
    """The findings by their names."""
    told = json.loads((page.parent / "findings.json").read_text())
    return {one["id"]: one for one in told["findings"]}


def test_every_question_has_an_answer_with_values_or_says_that_it_needs_traces(
    found: dict[str, dict[str, Any]],
) -> None:
    assert list(found) == [one.id for one in declared()]
    for name, one in found.items():
        assert bool(one["answer"]) == (name not in WITH_TRACES), name
        assert bool(one["values"]) == bool(one["answer"]), name
        assert one["method"] and one["limits"] and one["command"].startswith("emmclab "), name


def test_findings_have_the_figures_of_the_ledger(
    found: dict[str, dict[str, Any]], ledger: list[dict[str, Any]]
) -> None:
    measured = {claim["id"]: claim["measured"] for claim in ledger}
    merit = found["hybrid-merit"]["answer"]
    shorter = re.search(r"\d+\.\d", measured["iiswc-hps-vs-8ps"])
    assert shorter and f"{shorter[0]} % shorter than 8 KB alone" in merit
    left = re.search(r"\d+ %", measured["dsn17-ideal"])
    assert left and f"{left[0]} are left" in found["tax-left"]["answer"]
    helped = re.search(r"in \d+ of \d+", measured["iiswc-impl1-queues"])
    assert helped and helped[0] in found["parallel-queues"]["answer"]


def test_the_page_has_each_question_with_method_limits_and_command(page: Path) -> None:
    text = page.read_text()
    for one in declared():
        for part in (one.question, one.method, one.limits, one.command):
            assert part.replace("'", "&#39;") in text, part
    assert len(list((page.parent / "figures").glob("*.svg"))) == len(declared()) - len(WITH_TRACES)


def test_traces_of_papers_are_refused_for_findings(tmp_path: Path) -> None:
    assert_refused(emmclab("reproduce", "findings", "--traces", tmp_path, cwd=tmp_path), "--trace")
    assert list(tmp_path.iterdir()) == []


def test_the_sleep_of_a_link_is_seen_in_the_recordings_of_a_phone(shared_traces: Path) -> None:
    from emmclab.papers.findings.findings import link_power_saving
    from emmclab.traces.reading import read

    profile = read(shared_traces / "pixel6a" / "pubg_exec.csv.gz", mend_clock=True).profile()
    found = link_power_saving([profile])
    assert "asleep from 10 ms on" in found.answer and "8.3 % of the requests" in found.answer
    assert [row["trace"] for row in found.rows] == ["pubg_exec"]
