"""Power cuts in continuous integration: time limits that say what was covered, JUnit XML, and SARIF."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from conftest import assert_refused, emmclab
from crash_runs import DEVICE, Runs

pytestmark = pytest.mark.usefixtures("root")
FILES = ["--workload", "files", "--operations", "40", "--cuts", "200"]


def cases(path: Path) -> dict[str, str]:
    """Return the outcome of each test case: `passed`, or the name of the element that says otherwise."""
    found: dict[str, str] = {}
    for suite in ElementTree.parse(path).getroot().findall("testsuite"):
        outcomes = [next((part.tag for part in case), "passed") for case in suite.findall("testcase")]
        assert [int(suite.attrib[name]) for name in ("tests", "failures", "skipped")] == [
            *(len(outcomes), outcomes.count("failure"), outcomes.count("skipped"))
        ]
        assert "states were tried, after power cuts at" in (suite.findtext("system-out") or "")
        found |= zip([case.attrib["name"] for case in suite.findall("testcase")], outcomes, strict=True)
    return found


def test_a_report_for_continuous_integration_names_the_level_that_failed(crash: Runs) -> None:
    reports = ["--junit", "out.xml", "--sarif", "out.sarif"]
    result = crash(*DEVICE, *FILES, "--set", "cache.lies=flush", *reports, status=4)
    outcomes = cases(crash.folder / "out.xml")
    levels = ("device", "layer", "journal", "filesystem", "application")
    assert [*outcomes] == [*(f"{level} keeps its promises" for level in levels), "controls"]
    assert outcomes["device keeps its promises"] == "failure"
    assert (outcomes["layer keeps its promises"], outcomes["controls"]) == ("skipped", "passed")
    assert f"--again {result['findings'][0]['again']}" in (crash.folder / "out.xml").read_text()
    [run] = sarif(crash.folder / "out.sarif")
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    [found] = run["results"]
    assert found["ruleId"] in rules and found["ruleId"] == "device/flush" and found["level"] == "error"
    assert found["properties"]["again"] == result["findings"][0]["again"]
    assert run["invocations"][0]["exitCode"] == 4
    # The same defect has the same fingerprint in another recording, in which its state has another name.
    crash(*DEVICE, *FILES, "--set", "cache.lies=flush", "--seed", "2", *reports, status=4)
    assert sarif(crash.folder / "out.sarif")[0]["results"][0]["partialFingerprints"] == found["partialFingerprints"]


def test_without_a_finding_all_cases_pass_and_without_a_test_the_controls_fail(crash: Runs) -> None:
    reports = ["--junit", "out.xml", "--sarif", "out.sarif", "--states", "boundary"]
    crash(*DEVICE, *FILES, *reports, status=0)
    assert {*cases(crash.folder / "out.xml").values()} == {"passed", "skipped"}
    assert sarif(crash.folder / "out.sarif")[0]["results"] == []
    crash(*DEVICE, *FILES[:-1], "20", *reports, "--check", "true", status=5)
    assert cases(crash.folder / "out.xml")["controls"] == "failure"
    [run] = sarif(crash.folder / "out.sarif")
    assert "would not notice" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]


def sarif(path: Path) -> list[dict[str, Any]]:
    """Return the runs of a SARIF file."""
    content = json.loads(path.read_text())
    assert content["version"] == "2.1.0" and len(content["runs"]) == 1
    for result in content["runs"][0]["results"]:
        assert result["message"]["text"] and result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    runs: list[dict[str, Any]] = content["runs"]
    return runs


def test_a_time_limit_says_what_was_covered_and_the_same_log_continues(crash: Runs) -> None:
    words = ["--workload", "ace:2:60", "--cuts", "400", "--seed", "3"]
    first = crash(*DEVICE, *words, "--for", "1ms", "--set", "cache.lies=flush", status=4)
    assert first["finished"] is False and 1 <= first["states"] < 100 and first["findings"][0]["level"] == "device"
    covered = first["covered"]
    assert covered["lines_cut"] == covered["cuts"] < covered["lines"], "the ends of programs come first"
    words = ["--log", first["log"]["path"], "--check", "programs", *words[2:]]
    shown = crash.run(*words, "--for", "2ms").stdout
    assert "stopped after 2 ms: tried " in shown and "of 400 chosen cuts, the most important first; --log " in shown
    assert f"of {covered['lines']} programs were cut after their last sync in this time" in shown
    rest = crash(*words, "--for", "1h", status=4)
    assert rest["finished"] and rest["reused_states"] >= first["states"]
    whole = crash(*words, "--for", "1h", "--fresh", status=4)
    same = ("cuts", "states")
    assert [rest[name] for name in same] == [whole[name] for name in same]
    assert rest["covered"] == pytest.approx(whole["covered"])
    assert {(finding["promise"], finding["states"]) for finding in rest["findings"]} == {
        (finding["promise"], finding["states"]) for finding in whole["findings"]
    }
    # In the order of the log, equal states of different cuts may be tried at another cut.
    in_order = crash(*words, "--fresh", status=4)
    promises = [{finding["promise"] for finding in result["findings"]} for result in (rest, in_order)]
    assert in_order["cuts"] == rest["cuts"] and promises[0] == promises[1]


def test_programs_that_a_time_limit_ends_are_a_part_of_what_was_covered(crash: Runs) -> None:
    result = crash(*DEVICE, "--workload", "ace:2:4000", "--cuts", "50", "--states", "boundary", "--for", "4s", status=0)
    assert result["verdict"] == "kept" and result["run"]["status"] is None
    assert any(", in program " in note and " of 4,000; " in note for note in result["run"]["notes"])


@pytest.mark.parametrize("text", ["soon", "0s", "-1s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    assert_refused(emmclab("crash", *DEVICE, *FILES, "--for", text), text, "10m")
