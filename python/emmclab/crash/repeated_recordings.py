"""Several recordings of one workload, explored together; each has different think times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from emmclab.crash.broken_promise import COMMANDS, LEVELS, Finding
from emmclab.crash.explore import Exploration, Options
from emmclab.crash.json_types import AllRecordings, CrashSummary, FindingFields
from emmclab.crash.minimize import Minimal
from emmclab.crash.stored_log import StoredLog
from emmclab.crash.summary import VERDICTS, Verdict, finding_fields, summary, verdict


@dataclass(frozen=True)
class ExploredRecording:
    """A recording, its exploration, and the smallest state of each finding by its number."""

    log: StoredLog
    exploration: Exploration
    minimal: Mapping[int, Minimal] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """A promise that is broken in some recordings, with the first state of the first such recording."""

    first: Finding
    kept: StoredLog
    minimal: Minimal | None
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
