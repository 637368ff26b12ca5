"""Makes a finding small: the earliest cut that shows it, and the fewest missing writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from emmclab import _core
from emmclab.crash.explore import Options, judge_of
from emmclab.crash.finding import COMMANDS, Finding
from emmclab.crash.judging import Judge, RuleBreak, rules_of
from emmclab.crash.recording import MOUNTED

#: Most states that are judged to make one finding smaller.
_MOST_TRIES = 400
#: Moments before a cut in which an earlier one is sought.
_BEFORE = 64


@dataclass(frozen=True)
class Missing:
    """A write that a state lacks, or in whose place it has garbage."""

    command: int
    at_ns: int
    sector: int
    sectors: int
    garbled: bool = False


@dataclass(frozen=True)
class Minimal:
    """The smallest state that was found to show a finding."""

    cut: int
    state: int
    detail: str
    #: Writes that were sent and are missing or garbled; none for what the device itself would have left.
    missing: tuple[Missing, ...]
    #: How many writes were missing in the state that was made smaller.
    before: int
    tries: int
    #: Of a generated program, the fewest operations that show the finding in a recording of their own.
    program: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the result as a dictionary of JSON values."""
        return asdict(self)


def minimize(run: _core.CrashRun, options: Options, finding: Finding) -> Minimal | None:
    """Make a finding smaller; `None` where it is one of commands, not of a state."""
    if finding.way == COMMANDS:
        return None
    lines, rules = run.acknowledgements(), rules_of(run)
    lies = json.loads(run.facts())["lies"]
    tries = 0

    def same(cut: int, number: int | None) -> tuple[dict[str, Any], str] | None:
        """Judge a state, or the first of a cut that shows the finding."""
        nonlocal tries
        only = replace(options, only=(cut, number), share=(0, 1))
        explorer = _core.Explorer(run, only.core())
        with judge_of(explorer, rules, options, lies) as judge:
            while (text := explorer.next_state()) is not None and tries < _MOST_TRIES:
                tries += 1
                state = json.loads(text)
                if (detail := shows(judge, state, lines, finding)) is not None:
                    return state, detail
        return None

    cut, number, detail = finding.cut, finding.state, finding.detail
    low = max(run.after_mark(MOUNTED), cut - _BEFORE)
    # Promises that are broken stay so for a while: halve the moments in which the first is.
    while low < cut and tries < _MOST_TRIES:
        middle = (low + cut) // 2
        shown = same(middle, None)
        if shown is None:
            low = middle + 1
        else:
            state, detail = shown
            cut, number = middle, state["number"]
    return _fewest(
        run, options, replace(finding, cut=cut, state=number, detail=detail), (lines, rules), tries
    )


def shows(judge: Judge, state: dict[str, Any], lines: list[str], finding: Finding) -> str | None:
    """Return how a state breaks the promise of a finding; `None` if it does not."""
    lost = judge.verdict(state, lines[: state["acknowledged"]])
    if lost is None or (lost.level, lost.promise) != (finding.level, finding.promise):
        return None
    return lost.detail if (lost.documented is None) == (finding.documented is None) else None


def _fewest(
    run: _core.CrashRun,
    options: Options,
    finding: Finding,
    known: tuple[list[str], list[RuleBreak]],
    tries: int,
) -> Minimal:
    """Leave out as few writes as show the finding (delta debugging, Zeller and Hildebrandt 2002)."""
    lines, rules = known
    lies = json.loads(run.facts())["lies"]
    only = replace(options, only=(finding.cut, finding.state), share=(0, 1))
    explorer = _core.Explorer(run, only.core())
    text = explorer.next_state()
    if text is None:
        return Minimal(finding.cut, finding.state, finding.detail, (), 0, tries)
    state = json.loads(text)
    every = explorer.omitted()
    with judge_of(explorer, rules, options, lies) as judge:

        def still(places: list[int]) -> bool:
            nonlocal tries
            tries += 1
            explorer.keep_omitted(places)
            return shows(judge, state, lines, finding) is not None

        places = fewest(list(range(len(every))), still, lambda: tries < _MOST_TRIES) if every else []
    missing = tuple(Missing(*every[place]) for place in places)
    return Minimal(finding.cut, finding.state, finding.detail, missing, len(every), tries)


def fewest(places: list[int], still: Callable[[list[int]], bool], may: Callable[[], bool]) -> list[int]:
    """Return a subset that still shows a finding, and none without one of it does, as long as it may try.

    >>> fewest(list(range(20)), lambda some: {3, 11} <= set(some), lambda: True)
    [3, 11]
    """
    parts = 2
    while len(places) >= 2 and may():
        size = max(1, len(places) // parts)
        for begin in range(0, len(places), size):
            rest = places[:begin] + places[begin + size :]
            if rest and may() and still(rest):
                places, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(len(places), parts * 2)
    return places
