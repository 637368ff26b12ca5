"""The outcome of an exploration as text and JSON; of several recordings of one workload; of two that are compared."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from emmclab.crash import generated_programs
from emmclab.crash.explore import Exploration, Options
from emmclab.crash.json_types import AllRecordings, CrashSummary, FindingFields, MinimalState
from emmclab.crash.promises import COMMANDS, LEVELS, Finding
from emmclab.crash.recording import failure_text
from emmclab.crash.stored_log import StoredLog
from emmclab.runtime.statistics import fisher_exact

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


def finding_fields(kept: StoredLog, options: Options, one: Finding, small: MinimalState | None = None) -> FindingFields:
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
    if small is not None:
        said["minimal"] = small
    return said


def summary(kept: StoredLog, options: Options, found: Exploration, minimal: Mapping[int, MinimalState]) -> CrashSummary:
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


@dataclass(frozen=True)
class ExploredRecording:
    """A recording, its exploration, and the smallest state of each finding by its number."""

    log: StoredLog
    exploration: Exploration
    minimal: Mapping[int, MinimalState] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """A promise that is broken in some recordings, with the first state of the first such recording."""

    first: Finding
    kept: StoredLog
    minimal: MinimalState | None
    #: Number of recordings that show it, and of their states (or commands).
    recordings: int
    count: int


def kinds(tried: Sequence[ExploredRecording], *, documented: bool = False) -> list[Kind]:
    """Return each kind of finding once, lowest level first; with `documented`, documented losses instead."""
    found: dict[object, Kind] = {}
    for one in tried:
        for number, finding in enumerate(one.exploration.findings(documented=documented)):
            key = (finding.kind, finding.way == COMMANDS)
            minimal = None if documented else one.minimal.get(number)
            known = found.get(key, Kind(finding, one.log, minimal, 0, 0))
            found[key] = Kind(known.first, known.kept, known.minimal, known.recordings + 1, known.count + finding.count)
    return sorted(found.values(), key=lambda kind: LEVELS.index(kind.first.level))


def worst(tried: Sequence[ExploredRecording], options: Options) -> tuple[Verdict, int]:
    """Return the verdict of the worst recording, and the number of recordings that have it."""
    verdicts = [verdict(one.log, options, one.exploration) for one in tried]
    first = min(verdicts, key=lambda one: VERDICTS.index(one.word))
    return first, sum(one.word == first.word for one in verdicts)


def pauses_of(kept: StoredLog) -> int:
    """Return the number of think pauses in the recording of a workload."""
    return kept.made.get("pauses", 0)


def together(tried: Sequence[ExploredRecording], options: Options) -> AllRecordings:
    """Return all findings as JSON: in total, and of each recording."""

    def one_of_all(kind: Kind) -> FindingFields:
        said = finding_fields(kind.kept, options, kind.first, kind.minimal)
        said["states"], said["recordings"] = kind.count, kind.recordings
        return said

    return {
        "verdict": worst(tried, options)[0].word,
        "cuts": sum(one.exploration.covered.get("cuts", 0) for one in tried),
        "states": sum(one.exploration.states for one in tried),
        "findings": [one_of_all(kind) for kind in kinds(tried)],
        "documented": [one_of_all(kind) for kind in kinds(tried, documented=True)],
        "seed": options.seed,
        "recordings": [summary(one.log, options, one.exploration, one.minimal) for one in tried],
    }


def as_json_of(tried: Sequence[ExploredRecording], options: Options) -> CrashSummary | AllRecordings:
    """Return the findings as JSON: of one recording, or of all."""
    if len(tried) == 1:
        return summary(tried[0].log, options, tried[0].exploration, tried[0].minimal)
    return together(tried, options)


#: Significance level: p-values below it count as a difference.
ALPHA = 0.01
#: Maximum number of cuts of each run that is considered for `enough`.
_MOST_CUTS = 10_000


@dataclass(frozen=True)
class LossDifference:
    """Comparison of the losses of two runs.

    Attributes:
        cuts: number of cuts tried, for each run.
        losing: number of cuts with a state that breaks a promise, for each run.
        p: probability of a difference as large as this one if both lose the same share (Fisher's exact test,
            two-sided).
        enough: least number of cuts of each run that shows a difference of these shares with `p` below
            `ALPHA`; `None` if the shares are equal, or more than 10,000 cuts would be needed.
    """

    cuts: tuple[int, int]
    losing: tuple[int, int]
    p: float
    enough: int | None

    def as_json(self) -> dict[str, object]:
        """Return the difference, with the limit of `p`, as a dictionary of JSON values."""
        return {**asdict(self), "alpha": ALPHA}


def difference(one: Sequence[Exploration], other: Sequence[Exploration]) -> LossDifference:
    """Compare the recordings of two runs, cut by cut."""
    cuts = _cuts(one), _cuts(other)
    losing = _losing(one), _losing(other)
    return LossDifference(cuts, losing, fisher_exact(losing, cuts), _enough(losing, cuts))


def _cuts(runs: Sequence[Exploration]) -> int:
    return sum(run.covered.get("cuts", 0) for run in runs)


def _losing(runs: Sequence[Exploration]) -> int:
    return sum(tally.broken > 0 for run in runs for tally in run.verdicts.values())


def _enough(losing: tuple[int, int], cuts: tuple[int, int]) -> int | None:
    if not all(cuts) or losing[0] * cuts[1] == losing[1] * cuts[0]:
        return None
    shares = losing[0] / cuts[0], losing[1] / cuts[1]

    def shows(each: int) -> bool:
        return fisher_exact((round(shares[0] * each), round(shares[1] * each)), (each, each)) < ALPHA

    most = 2
    while not shows(most):
        most *= 2
        if most > _MOST_CUTS:
            return None
    return bisect_left(range(most + 1), True, lo=most // 2, key=shows)
