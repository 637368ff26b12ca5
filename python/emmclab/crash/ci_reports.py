"""Results of power cuts in the forms that continuous integration reads: JUnit XML, and SARIF 2.1.0.

JUnit has a test suite for each recording, with the same test cases in every run: one for each level, which fails if the
level broke a promise, and `controls`, which fails if nothing was tested. SARIF has a result for each kind of finding.

Sources: testmoapp/junitxml (the common form of JUnit XML); OASIS, SARIF version 2.1.0, sections 3.13 to 3.52.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

from emmclab._core import __version__
from emmclab.crash.explore import Options
from emmclab.crash.json_types import FindingFields
from emmclab.crash.promises import LEVELS, kind_of
from emmclab.crash.summary import (
    NOT_TESTED,
    ExploredRecording,
    Kind,
    after_syncs,
    finding_fields,
    kinds,
    stopped,
    verdict,
)
from emmclab.errors import harmless

#: Schema of SARIF 2.1.0.
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def coverage(recording: ExploredRecording, options: Options) -> list[str]:
    """Return sentences on what was covered of a recording."""
    explored = recording.exploration
    cuts, moments = explored.covered.get("cuts", 0), explored.covered.get("moments", 0)
    texts = [f"{explored.states:,} states were tried, after power cuts at {cuts:,} of {moments:,} possible times"]
    texts += filter(None, (stopped(recording.log, options, explored), after_syncs(recording.log, options, explored)))
    return texts


def junit(recordings: Sequence[ExploredRecording], options: Options) -> str:
    """Return the results of recordings as JUnit XML."""
    root = ElementTree.Element("testsuites", name="emmclab crash")
    for number, recording in enumerate(recordings, 1):
        outcome = verdict(recording.log, options, recording.exploration)
        time = f"{recording.exploration.took_s:.3f}"
        fault = f", {recording.log.made['fault']}" if "fault" in recording.log.made else ""
        suite = ElementTree.SubElement(root, "testsuite", name=f"power cuts, recording {number}{fault}", time=time)
        properties = ElementTree.SubElement(suite, "properties")
        for name, value in (("log", recording.log.short), ("seed", str(options.seed)), ("verdict", outcome.word)):
            ElementTree.SubElement(properties, "property", name=name, value=value)
        found = [
            finding_fields(recording.log, options, finding, recording.minimal.get(index))
            for index, finding in enumerate(recording.exploration.findings())
        ]
        for level in LEVELS:
            case = ElementTree.SubElement(
                suite, "testcase", classname="emmclab.crash", name=f"{level} keeps its promises"
            )
            broken = [finding for finding in found if finding["level"] == level]
            if broken:
                message = harmless(f"{broken[0]['promise']}: {broken[0]['detail']}")
                failure = ElementTree.SubElement(case, "failure", type=level, message=message)
                failure.text = harmless("\n".join(map(_line, broken)))
            elif level == "layer" and not recording.log.facts.layers:
                ElementTree.SubElement(case, "skipped", message="there are no layers")
            elif level == "application" and options.check is None:
                ElementTree.SubElement(case, "skipped", message="there is no check (--check)")
        case = ElementTree.SubElement(suite, "testcase", classname="emmclab.crash", name="controls")
        if outcome.doubts:
            ElementTree.SubElement(case, "failure", type=NOT_TESTED, message=harmless("; ".join(outcome.doubts)))
        ElementTree.SubElement(suite, "system-out").text = harmless("\n".join(coverage(recording, options)))
        for name, tag in (("tests", "testcase"), ("failures", "testcase/failure"), ("skipped", "testcase/skipped")):
            suite.set(name, str(len(suite.findall(tag))))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _line(finding: FindingFields) -> str:
    again = f"emmclab crash --again {finding['again']}" if finding["again"] else "shown by the recorded commands"
    return f"{finding['promise']}: {finding['detail']} ({finding['states']:,} states); {again}"


def sarif(recordings: Sequence[ExploredRecording], options: Options, status: int) -> dict[str, object]:
    """Return the results of recordings as SARIF, with the exit status of the command."""
    broken, documented = kinds(recordings), kinds(recordings, documented=True)
    rules = sorted({_rule(kind) for kind in [*broken, *documented]})
    doubts = [text for one in recordings for text in verdict(one.log, options, one.exploration).doubts]
    notifications = [{"level": "warning", "message": {"text": text}} for text in dict.fromkeys(doubts)]
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "emmclab",
                        "version": __version__,
                        "rules": [
                            {
                                "id": rule,
                                "shortDescription": {"text": f"broken promise of the {rule.replace('/', ': ')}"},
                            }
                            for rule in rules
                        ],
                    }
                },
                "invocations": [
                    {"executionSuccessful": True, "exitCode": status, "toolExecutionNotifications": notifications}
                ],
                "results": [
                    _result(kind, options, level)
                    for some, level in ((broken, "error"), (documented, "note"))
                    for kind in some
                ],
                "properties": {
                    "seed": options.seed,
                    "covered": [text for one in recordings for text in coverage(one, options)],
                },
            }
        ],
    }


def _rule(kind: Kind) -> str:
    return f"{kind.first.level}/{kind.first.promise}"


def _result(kind: Kind, options: Options, level: str) -> dict[str, object]:
    finding = finding_fields(kind.kept, options, kind.first, kind.minimal)
    # A location must be a file: the one that defines the workload, or the log.
    workload = kind.kept.made.get("workload")
    words = [workload["name"], *workload["command"]] if workload else []
    place = next((word for word in words if Path(word).is_file()), str(kind.kept.log))
    text = finding["detail"] + (f" (documented: {finding['documented']})" if "documented" in finding else "")
    same = kind_of(kind.first.level, kind.first.promise, kind.first.documented, kind.first.detail)
    return {
        "ruleId": _rule(kind),
        "level": level,
        "message": {"text": harmless(text)},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": quote(place)}, "region": {"startLine": 1}}}],
        "partialFingerprints": {"kind/v1": hashlib.sha256(repr(same).encode()).hexdigest()[:16]},
        "properties": {**finding, "states": kind.count, "recordings": kind.recordings},
    }
