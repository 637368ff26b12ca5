"""Formats the outcome of an exploration as text and as JSON."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from emmclab.crash import generated_programs
from emmclab.crash.broken_promise import COMMANDS, Finding
from emmclab.crash.explore import Exploration, Options
from emmclab.crash.json_types import CrashSummary, FindingFields
from emmclab.crash.minimize import Minimal
from emmclab.crash.run_workload import failure_text
from emmclab.crash.stored_log import StoredLog

#: Verdicts, the worst first: a promise was broken; check or workload prove nothing, or not all; there was no
#: check; only documented losses; nothing was lost.
BROKEN, NOT_TESTED, NOT_CHECKED, DOCUMENTED, KEPT = VERDICTS = (
    *("broken", "not tested", "not checked"),
    *("documented", "kept"),
)


@dataclass(frozen=True)
class Verdict:
    """The outcome of an exploration: one of `VERDICTS`, a phrase, and why nothing, or not all, was tested."""

    word: str
    text: str
    doubts: tuple[str, ...] = ()


def verdict(kept: StoredLog, options: Options, found: Exploration) -> Verdict:
    """Return the outcome of an exploration of a log."""
    doubts = (*_doubts(kept, options, found),)
    if findings := found.findings():
        levels = ", ".join(dict.fromkeys(one.level for one in findings))
        return Verdict(BROKEN, f"promises were broken by: {levels}", doubts)
    if doubts:
        return Verdict(NOT_TESTED, f"not tested: {'; '.join(doubts)}", doubts)
    if options.check is None:
        unchecked = "device and file system kept their promises; nothing checked the data of the workload"
        return Verdict(NOT_CHECKED, unchecked)
    if documented := found.findings(documented=True):
        states = sum(one.count for one in documented)
        return Verdict(DOCUMENTED, f"no promise was broken; {states:,} states show a documented loss")
    return Verdict(KEPT, "no acknowledged data was lost")


def _doubts(kept: StoredLog, options: Options, found: Exploration) -> Iterator[str]:
    if kept.facts["truncated"]:
        yield f"the log is cut short: nothing after its {kept.facts['moments']:,} events was tried"
    # A log from elsewhere has no status; that of a workload is None if it was ended.
    if (status := kept.made.get("status", 0)) is None:
        yield f"the workload was ended after {kept.made['workload']['timeout_s']:g} s (--timeout)"
    elif status != 0:
        yield f"the workload failed ({failure_text(status)})"
    if found.controls is not None:
        yield from found.controls.doubts()
    elif options.check is not None:
        yield "no control of the check was tried"


def after_syncs(found: Exploration, options: Options) -> str | None:
    """Return how many generated programs were cut after their last sync; None for another workload."""
    if options.check != generated_programs.CHECK or not found.covered.get("lines"):
        return None
    cut, programs = found.covered["lines_cut"], found.covered["lines"]
    return f"{cut:,} of {programs:,} programs were cut after their last sync"


def finding_fields(kept: StoredLog, options: Options, one: Finding, minimal: Minimal | None = None) -> FindingFields:
    """Return a finding as JSON, with the smallest state that shows it."""
    said: FindingFields = {
        "promise": one.promise,
        "level": one.level,
        "cut": one.cut,
        "state": one.state,
        # Commands break a rule of the journal independent of any state.
        "again": None if one.way == COMMANDS else kept.name_of(options, one.cut, one.state),
        "states": one.count,
        "detail": one.detail,
        "chosen_by": one.way,
        "at_ns": one.at_ns,
        "acknowledged": one.acknowledged,
    }
    if one.documented:
        said["documented"] = one.documented
    if minimal is not None:
        said["minimal"] = minimal.as_json()
    return said


def summary(kept: StoredLog, options: Options, found: Exploration, minimal: Mapping[int, Minimal]) -> CrashSummary:
    """Return the verdict, its evidence and all findings as JSON."""
    outcome = verdict(kept, options, found)
    return {
        "verdict": outcome.word,
        "doubts": list(outcome.doubts),
        "controls": None if found.controls is None else found.controls.as_json(),
        "cuts": found.covered.get("cuts", 0),
        "states": found.states,
        "reused_states": found.reused,
        "pruned_states": found.pruned,
        "states_per_s": round(found.states / found.took_s, 1) if found.took_s else None,
        "findings": [
            finding_fields(kept, options, one, minimal.get(number)) for number, one in enumerate(found.findings())
        ],
        "documented": [finding_fields(kept, options, one) for one in found.findings(documented=True)],
        "covered": found.covered,
        "seed": options.seed,
        "log": {**kept.facts, "path": str(kept.log)},
        "run": {**kept.made},
        "options": asdict(options),
    }
