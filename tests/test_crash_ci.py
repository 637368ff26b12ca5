"""Power cuts in continuous integration: JUnit XML, and SARIF."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

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
