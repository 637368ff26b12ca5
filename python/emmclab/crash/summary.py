"""The outcome of explorations of crash states as text and JSON, and the comparison of two runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from emmclab.crash import generated_programs
from emmclab.crash.explore import Exploration, Options
from emmclab.crash.json_types import AllRecordings, CrashSummary, FindingFields, MinimalState
from emmclab.crash.promises import COMMANDS, LEVELS, Finding
from emmclab.crash.recording import failure_text
from emmclab.crash.stored_log import StoredLog
from emmclab.runtime.document import duration
from emmclab.runtime.statistics import (
    cliffs_delta,
    fisher_exact,
    mann_whitney,
    recordings_needed,
    recordings_to_show,
    trials_to_show,
)

#: Verdicts, worst first. Broken: a promise was broken. Not tested: the check or the workload does not prove everything.
#: Not checked: there was no check. Documented: only documented losses occurred. Kept: nothing was lost.
BROKEN, NOT_TESTED, NOT_CHECKED, DOCUMENTED, KEPT = VERDICTS = (
    *("broken", "not tested", "not checked"),
    *("documented", "kept"),
)


@dataclass(frozen=True)
class Verdict:
    """The outcome of an exploration: one of `VERDICTS`, a phrase, and reasons why it proves less than it could."""

    word: str
    text: str
    doubts: tuple[str, ...] = ()


def verdict(log: StoredLog, options: Options, result: Exploration) -> Verdict:
    """Return the outcome of exploring the crash states of a log."""
    doubts = (*_doubts(log, options, result),)
    if findings := result.findings():
        levels = ", ".join(dict.fromkeys(finding.level for finding in findings))
        return Verdict(BROKEN, f"promises were broken by: {levels}", doubts)
    if doubts:
        return Verdict(NOT_TESTED, f"not tested: {'; '.join(doubts)}", doubts)
    if options.check is None:
        unchecked = "device and file system kept their promises; nothing checked the data of the workload"
        return Verdict(NOT_CHECKED, unchecked)
    if documented := result.findings(documented=True):
        states = sum(finding.count for finding in documented)
        return Verdict(DOCUMENTED, f"no promise was broken; {states:,} states show a documented loss")
    return Verdict(KEPT, "no acknowledged data was lost")


def _doubts(log: StoredLog, options: Options, result: Exploration) -> Iterator[str]:
    yield from log.made.get("doubts", ())
    if log.facts.truncated:
        yield f"the log is truncated: only its first {log.facts.moments:,} events were tried"
    # A status of None means that a timeout ended the workload. A log that was recorded elsewhere has no status.
    # Programs that a time limit of the exploration ended are a part of what was covered.
    is_boxed = options.time_s is not None and options.check == generated_programs.CHECK
    if (status := log.made.get("status", 0)) is None and is_boxed:
        pass
    elif status is None:
        yield f"the workload was ended after {log.made['workload']['timeout_s']:g} s (--timeout)"
    elif status != 0 and "fault" not in log.made:
        yield f"the workload failed ({failure_text(status)})"
    if result.controls is not None:
        yield from result.controls.doubts()
    elif options.check is not None:
        yield "no control of the check was tried"


def after_syncs(log: StoredLog, options: Options, result: Exploration) -> str | None:
    """Return a text on how many generated programs were cut after their last sync; None for other workloads."""
    if options.check != generated_programs.CHECK or not result.covered.get("lines"):
        return None
    cut, programs = result.covered["lines_cut"], result.covered["lines"]
    if stopped(log, options, result) is not None:
        return f"{cut:,} of {programs:,} programs were cut after their last sync in this time"
    missing = f"; for the other {programs - cut:,}, use --cuts {programs} or more" if options.cuts < programs else ""
    return f"{cut:,} of {programs:,} programs were cut after their last sync{missing}"


def stopped(log: StoredLog, options: Options, result: Exploration) -> str | None:
    """Return a text on what was covered when the time limit of an exploration ended it; None if nothing did."""
    if result.finished or options.time_s is None:
        return None
    cuts = min(options.cuts, result.covered["moments"])
    tried = f"{result.covered['cuts']:,} of {cuts:,} chosen cuts, the most important first"
    return f"stopped after {duration(options.time_s)}: tried {tried}; --log {log.log} with the same options continues"


def finding_fields(
    log: StoredLog, options: Options, finding: Finding, least: MinimalState | None = None
) -> FindingFields:
    """Return a finding as JSON, with the smallest crash state that shows it."""
    fields: FindingFields = {
        "promise": finding.promise,
        "level": finding.level,
        "cut": finding.cut,
        "state": finding.state,
        # A finding about commands belongs to no crash state, so there is no name that reproduces it.
        "again": None if finding.way == COMMANDS else log.name_of(options, finding.cut, finding.state),
        "states": finding.count,
        "detail": finding.detail,
        "chosen_by": finding.way,
        "at_ns": finding.at_ns,
        "acknowledged": finding.acknowledged,
    }
    if finding.differs:
        fields["differs"] = [
            {"path": path, "expected": expected, "found": found} for path, expected, found in finding.differs
        ]
    if finding.documented:
        fields["documented"] = finding.documented
    if least is not None:
        fields["minimal"] = least
    return fields


def summary(log: StoredLog, options: Options, result: Exploration, minimal: Mapping[int, MinimalState]) -> CrashSummary:
    """Return the verdict, the evidence for it, and all findings as JSON."""
    outcome = verdict(log, options, result)
    return {
        "verdict": outcome.word,
        "doubts": list(outcome.doubts),
        "controls": None if result.controls is None else result.controls.as_json(),
        "cuts": result.covered.get("cuts", 0),
        "states": result.states,
        "finished": result.finished,
        "reused_states": result.reused,
        "pruned_states": result.pruned,
        "states_per_s": round(result.states / result.took_s, 1) if result.took_s else None,
        "findings": [
            finding_fields(log, options, finding, minimal.get(number))
            for number, finding in enumerate(result.findings())
        ],
        "documented": [finding_fields(log, options, finding) for finding in result.findings(documented=True)],
        "covered": result.covered,
        "seed": options.seed,
        "log": {**log.facts, "path": str(log.log)},
        "run": {**log.made},
        "options": asdict(options),
    }


@dataclass(frozen=True)
class ExploredRecording:
    """A recording, its exploration, and the smallest crash state that shows each finding, by finding number."""

    log: StoredLog
    exploration: Exploration
    minimal: Mapping[int, MinimalState] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """A promise that is broken in some recordings, with the first finding of it."""

    first: Finding
    kept: StoredLog
    minimal: MinimalState | None
    #: `recordings`: number of recordings that show this kind of finding. `count`: number of their crash states or
    #: commands that show it.
    recordings: int
    count: int


def kinds(recordings: Sequence[ExploredRecording], *, documented: bool = False) -> list[Kind]:
    """Return each kind of finding once, lowest level first; with `documented`, only the documented losses."""
    kinds_by_key: dict[object, Kind] = {}
    for recording in recordings:
        for number, finding in enumerate(recording.exploration.findings(documented=documented)):
            key = (finding.kind, finding.way == COMMANDS)
            minimal = None if documented else recording.minimal.get(number)
            counted = kinds_by_key.get(key, Kind(finding, recording.log, minimal, 0, 0))
            kinds_by_key[key] = replace(counted, recordings=counted.recordings + 1, count=counted.count + finding.count)
    return sorted(kinds_by_key.values(), key=lambda kind: LEVELS.index(kind.first.level))


def worst(recordings: Sequence[ExploredRecording], options: Options) -> tuple[Verdict, int]:
    """Return the worst verdict of all recordings, and the number of recordings that have it."""
    verdicts = [verdict(outcome.log, options, outcome.exploration) for outcome in recordings]
    first = min(verdicts, key=lambda outcome: VERDICTS.index(outcome.word))
    return first, sum(outcome.word == first.word for outcome in verdicts)


def pauses_of(log: StoredLog) -> int:
    """Return how often the workload paused to think while it was recorded."""
    return log.made.get("pauses", 0)


def together(recordings: Sequence[ExploredRecording], options: Options) -> AllRecordings:
    """Return the findings of all recordings together, and of each recording, as JSON."""

    def total(kind: Kind) -> FindingFields:
        fields = finding_fields(kind.kept, options, kind.first, kind.minimal)
        fields["states"], fields["recordings"] = kind.count, kind.recordings
        return fields

    return {
        "verdict": worst(recordings, options)[0].word,
        "cuts": sum(recording.exploration.covered.get("cuts", 0) for recording in recordings),
        "states": sum(recording.exploration.states for recording in recordings),
        "findings": [total(kind) for kind in kinds(recordings)],
        "documented": [total(kind) for kind in kinds(recordings, documented=True)],
        "seed": options.seed,
        "recordings": [
            summary(recording.log, options, recording.exploration, recording.minimal) for recording in recordings
        ],
    }


def as_json_of(recordings: Sequence[ExploredRecording], options: Options) -> CrashSummary | AllRecordings:
    """Return the findings as JSON: those of one recording, or of several recordings together."""
    if len(recordings) == 1:
        return summary(recordings[0].log, options, recordings[0].exploration, recordings[0].minimal)
    return together(recordings, options)


#: Significance level: p-values below it count as a difference.
ALPHA = 0.01
#: Probability with which `LossDifference.enough` recordings or cuts show the difference.
POWER = 0.9


@dataclass(frozen=True)
class LossDifference:
    """Comparison of how often two runs lose data.

    Power cuts of one recording are not independent: neighbouring moments share their state. So the unit of the test is
    the recording if both runs have several, and a test over the cuts of one recording each says nothing about others.

    Attributes:
        cuts: number of power cuts tried, for each run.
        losing: number of power cuts with a state that breaks a promise, for each run.
        recordings: number of recordings, for each run.
        unit: what the test counts, "recordings" or "cuts".
        p: probability of a difference at least this large if both runs lose data equally often. The test is that of
            Mann and Whitney over the share of losing cuts of each recording, or Fisher's exact test over cuts.
        enough: number of recordings or cuts of each run that show a difference of this size with the probability
            `POWER`; `None` if there is no difference.
    """

    cuts: tuple[int, int]
    losing: tuple[int, int]
    recordings: tuple[int, int]
    unit: str
    p: float
    enough: int | None

    def as_json(self) -> dict[str, object]:
        """Return the difference as a dictionary of JSON values, with `ALPHA`, the significance limit of `p`."""
        return {**asdict(self), "alpha": ALPHA, "power": POWER}


def difference(first: Sequence[Exploration], second: Sequence[Exploration]) -> LossDifference:
    """Compare how many power cuts lose data in the recordings of two runs."""
    cuts = sum(map(_cuts, first)), sum(map(_cuts, second))
    losing = sum(map(_losing, first)), sum(map(_losing, second))
    before, after = ([_losing(run) / _cuts(run) for run in runs if _cuts(run)] for runs in (first, second))
    recordings = len(before), len(after)
    if min(recordings) > 1:
        enough = recordings_to_show(cliffs_delta(before, after), 1, ALPHA, POWER)
        return LossDifference(cuts, losing, recordings, "recordings", mann_whitney(before, after), enough)
    enough = trials_to_show((losing[0] / cuts[0], losing[1] / cuts[1]), ALPHA, POWER) if all(cuts) else None
    return LossDifference(cuts, losing, recordings, "cuts", fisher_exact(losing, cuts), enough)


def recordings_that_may_differ() -> int:
    """Return how many recordings of each run can show a difference at all.

    >>> recordings_that_may_differ()
    5
    """
    return recordings_needed(1, ALPHA)


def _cuts(run: Exploration) -> int:
    return int(run.covered.get("cuts", 0))


def _losing(run: Exploration) -> int:
    return sum(tally.broken > 0 for tally in run.verdicts.values())
