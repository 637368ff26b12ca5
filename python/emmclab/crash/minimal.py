"""Minimises a finding: searches the earliest cut that shows it, and the fewest missing writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from emmclab import _core
from emmclab.crash.explore import Options, judge_of
from emmclab.crash.finding import COMMANDS, Finding, kind_of
from emmclab.crash.guest.states import GuestMounts
from emmclab.crash.json_types import MinimalState, MissingWrite, State
from emmclab.crash.judging import Judge
from emmclab.crash.recording import MOUNTED

#: Maximum number of states that are judged to minimise one finding.
_MOST_TRIES = 400
#: Number of moments before a cut that are searched for an earlier cut with the same finding.
_BEFORE = 64


@dataclass(frozen=True)
class Missing:
    """A write that a state lacks, or that is garbled in it."""

    command: int
    at_ns: int
    sector: int
    sectors: int
    garbled: bool = False

    def as_json(self) -> MissingWrite:
        """Return the write as a dictionary of JSON values."""
        return {
            "command": self.command,
            "at_ns": self.at_ns,
            "sector": self.sector,
            "sectors": self.sectors,
            "garbled": self.garbled,
        }


@dataclass(frozen=True)
class Minimal:
    """The smallest known state that shows a finding."""

    cut: int
    state: int
    detail: str
    #: Writes that were sent and are missing or garbled; empty for the state that the device itself would
    #: leave.
    missing: tuple[Missing, ...]
    #: Number of missing writes in the original state.
    before: int
    tries: int
    #: For a generated program, the minimal operations that show the finding in their own recording.
    program: tuple[str, ...] = ()

    def as_json(self) -> MinimalState:
        """Return the result as a dictionary of JSON values."""
        return {
            "cut": self.cut,
            "state": self.state,
            "detail": self.detail,
            "missing": [one.as_json() for one in self.missing],
            "before": self.before,
            "tries": self.tries,
            "program": list(self.program),
        }


class Search:
    """Searches states of a run that show a finding."""

    def __init__(
        self, run: _core.CrashRun, options: Options, finding: Finding, guest: GuestMounts | None
    ) -> None:
        """Set the run, the options and the guest for judging its states, and the finding to search for."""
        self._run, self._options, self._finding, self._guest = run, options, finding, guest

    def explorer(self, cut: int, number: int | None) -> _core.Explorer:
        """Return the explorer of a cut, or of one of its states."""
        only = replace(self._options, only=(cut, number), share=(0, 1))
        return _core.Explorer(self._run, only.core())

    def judge(self, explorer: _core.Explorer) -> Judge:
        """Return a judge of the states of an explorer."""
        return judge_of(explorer, self._run, self._options, self._guest)

    def shows(self, judge: Judge, state: State) -> str | None:
        """Return how a state breaks the promise of the finding; `None` if it does not."""
        lost = judge.verdict(state)
        if lost is None:
            return None
        kind = kind_of(lost.level, lost.promise, lost.documented, lost.detail)
        return lost.detail if kind == self._finding.kind else None

    def first(self, explorer: _core.Explorer, most: int) -> tuple[tuple[State, str] | None, int]:
        """Return the first state that shows the finding, and how; and the number of judged states."""
        judged = 0
        with self.judge(explorer) as judge:
            while judged < most and (text := explorer.next_state()) is not None:
                judged += 1
                state: State = json.loads(text)
                if (detail := self.shows(judge, state)) is not None:
                    return (state, detail), judged
        return None, judged


def minimize(
    run: _core.CrashRun, options: Options, finding: Finding, guest: GuestMounts | None
) -> Minimal | None:
    """Minimise a finding; return `None` if it is one of commands, not of a state."""
    if finding.way == COMMANDS:
        return None
    search = Search(run, options, finding, guest)
    tries = 0
    cut, number, detail = finding.cut, finding.state, finding.detail
    low = max(run.after_mark(MOUNTED), cut - _BEFORE)
    # A broken promise usually remains broken for some time, so bisection finds its first moment.
    while low < cut and tries < _MOST_TRIES:
        middle = (low + cut) // 2
        shown, judged = search.first(search.explorer(middle, None), _MOST_TRIES - tries)
        tries += judged
        if shown is None:
            low = middle + 1
        else:
            state, detail = shown
            cut, number = middle, state["number"]
    return _fewest(search, replace(finding, cut=cut, state=number, detail=detail), tries)


def _fewest(search: Search, finding: Finding, tries: int) -> Minimal:
    """Minimise the missing writes that show the finding (delta debugging, Zeller and Hildebrandt 2002)."""
    explorer = search.explorer(finding.cut, finding.state)
    text = explorer.next_state()
    if text is None:
        return Minimal(finding.cut, finding.state, finding.detail, (), 0, tries)
    state = json.loads(text)
    every = explorer.omitted()
    with search.judge(explorer) as judge:

        def still(places: list[int]) -> bool:
            nonlocal tries
            tries += 1
            explorer.keep_omitted(places)
            return search.shows(judge, state) is not None

        places = fewest(list(range(len(every))), still, lambda: tries < _MOST_TRIES) if every else []
    missing = tuple(Missing(*every[place]) for place in places)
    return Minimal(finding.cut, finding.state, finding.detail, missing, len(every), tries)


def fewest(places: list[int], still: Callable[[list[int]], bool], may: Callable[[], bool]) -> list[int]:
    """Return a minimal subset that still shows a finding; stop early if `may` is false.

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
