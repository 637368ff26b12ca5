"""Minimises a finding: searches for the earliest power cut, the fewest missing writes and the fewest operations."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from emmclab.core_types import ExploredState
from emmclab.crash import generated_programs
from emmclab.crash.explore import Explorer, Options, Run, explorer_of, judge_of, new_explorer, open_run
from emmclab.crash.file_states import FileRun
from emmclab.crash.guest.machine import GuestMounts
from emmclab.crash.json_types import MinimalState, MissingWrite
from emmclab.crash.judging import Judge
from emmclab.crash.programs import Program
from emmclab.crash.promises import COMMANDS, Finding, kind_of
from emmclab.crash.recording import MOUNTED, Workload
from emmclab.crash.stored_log import StoredLog
from emmclab.errors import EmmclabError

#: Maximum number of crash states that are judged to minimise one finding.
_MOST_TRIES = 400
#: Number of positions directly before a cut that are tried, to find an earlier cut with the same finding.
_BEFORE = 64


class Search:
    """Searches for crash states of a run that show a finding."""

    def __init__(self, run: Run, options: Options, finding: Finding, guest: GuestMounts | None) -> None:
        """Set the run, how its crash states are checked (options and guest), and the finding to search for."""
        #: The run whose crash states are searched.
        self.run = run
        self._options, self._finding, self._guest = options, finding, guest

    def explorer(self, cut: int, number: int | None) -> Explorer:
        """Return an explorer of the crash states of one power cut, or of only one state."""
        only = replace(self._options, only=(cut, number), share=(0, 1))
        return new_explorer(self.run, only.core())

    def judge(self, explorer: Explorer) -> Judge:
        """Return a judge that checks the crash states of an explorer."""
        return judge_of(explorer, self.run, self._options, self._guest)

    def shows(self, judge: Judge, state: ExploredState) -> str | None:
        """Return the details if a crash state shows a finding of this kind; `None` if it does not."""
        lost = judge.verdict(state)
        if lost is None:
            return None
        kind = kind_of(lost.level, lost.promise, lost.documented, lost.detail)
        return lost.detail if kind == self._finding.kind else None

    def first(self, explorer: Explorer, limit: int) -> tuple[tuple[ExploredState, str] | None, int]:
        """Return the first crash state that shows the finding, with its details, and the number of states checked."""
        judged = 0
        with self.judge(explorer) as judge:
            while judged < limit and (fields := explorer.next_state()) is not None:
                judged += 1
                state = ExploredState(fields)
                if (detail := self.shows(judge, state)) is not None:
                    return (state, detail), judged
        return None, judged


def minimize(run: Run, options: Options, finding: Finding, guest: GuestMounts | None) -> MinimalState | None:
    """Find the smallest crash state that shows a finding; `None` if the recorded commands alone show it."""
    if finding.way == COMMANDS:
        return None
    search = Search(run, options, finding, guest)
    tries = 0
    cut, number, detail = finding.cut, finding.state, finding.detail
    low = max(run.after_mark(MOUNTED), cut - _BEFORE)
    # A broken promise usually stays broken for some time, so bisection finds the first moment at which it is broken.
    while low < cut and tries < _MOST_TRIES:
        middle = (low + cut) // 2
        match, judged = search.first(search.explorer(middle, None), _MOST_TRIES - tries)
        tries += judged
        if match is None:
            low = middle + 1
        else:
            state, detail = match
            cut, number = middle, state.number
    return _fewest(search, replace(finding, cut=cut, state=number, detail=detail), tries)


def _fewest(search: Search, finding: Finding, tries: int) -> MinimalState:
    """Find the fewest missing writes that show the finding (delta debugging, Zeller and Hildebrandt 2002)."""
    explorer = search.explorer(finding.cut, finding.state)
    fields = explorer.next_state()
    if fields is None:
        return _minimal(search, finding, [], 0, tries)
    state = ExploredState(fields)
    writes = explorer.omitted()
    with search.judge(explorer) as judge:

        def shows(places: list[int]) -> bool:
            nonlocal tries
            tries += 1
            explorer.keep_omitted(places)
            return search.shows(judge, state) is not None

        places = fewest(list(range(len(writes))), shows, lambda: tries < _MOST_TRIES) if writes else []
    return _minimal(search, finding, [writes[place] for place in places], len(writes), tries)


def _minimal(
    search: Search, finding: Finding, missing: Sequence[tuple[int, int, int, int, bool]], before: int, tries: int
) -> MinimalState:
    names = ("command", "at_ns", "sector", "sectors", "garbled")
    writes = [cast("MissingWrite", dict(zip(names, write, strict=True))) for write in missing]
    if isinstance(search.run, FileRun):
        for write in writes:
            write["what"] = search.run.describe(write["command"])
    return {
        "cut": finding.cut,
        "state": finding.state,
        "detail": finding.detail,
        "missing": writes,
        "before": before,
        "tries": tries,
        "program": [],
    }


def fewest(places: list[int], shows: Callable[[list[int]], bool], may_continue: Callable[[], bool]) -> list[int]:
    """Return a minimal subset of `places` for which `shows` is true; stop early if `may_continue` returns false.

    >>> fewest(list(range(20)), lambda some: {3, 11} <= set(some), lambda: True)
    [3, 11]
    """
    parts = 2
    while len(places) >= 2 and may_continue():
        size = max(1, len(places) // parts)
        for begin in range(0, len(places), size):
            rest = places[:begin] + places[begin + size :]
            if rest and may_continue() and shows(rest):
                places, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(len(places), parts * 2)
    return places


#: Maximum number of new recordings that are made to reduce one program to fewer operations.
_MOST_RECORDINGS = 40
#: Maximum numbers of power cuts and of judged crash states when a program with fewer operations is recorded.
_CUTS, _STATES = 200, 2_000


def program_of(log: StoredLog, finding: Finding) -> Program | None:
    """Return the generated program that led to a finding; `None` if there is no such program.

    A broken promise of a device, layer or journal does not depend on the program, so the result is `None`.
    """
    workload = log.made.get("workload")
    if not workload or finding.level != "filesystem" or finding.way == COMMANDS:
        return None
    if not generated_programs.is_programs(workload["name"]):
        return None
    run, _ = open_run(str(log.log), base=log.base)
    begins = [line for line in run.acknowledgements()[: finding.acknowledged] if line.startswith("begin ")]
    if not begins:
        return None
    return generated_programs.load(workload["name"], workload["seed"])[int(begins[-1].split()[1])]


def minimize_program(
    program: Program,
    finding: Finding,
    options: Options,
    record: Callable[[Workload], StoredLog],
    folder: Path,
    guest: GuestMounts | None,
) -> Program | None:
    """Return the smallest program that shows a finding; `None` if the program alone does not show it.

    Args:
        program: the program that led to the finding.
        finding: the finding. A smaller program must break the same durability promise at the same level of the storage
            stack.
        options: options of the exploration with the finding.
        record: function that runs a workload and records it, with the options of the original recording.
        folder: folder for the files of smaller programs.
        guest: guest that mounts the crash states; `None` if this machine mounts them.
    """
    options = replace(options, cuts=min(options.cuts, _CUTS), share=(0, 1), only=None)
    tries = 0

    def shows(places: list[int]) -> bool:
        nonlocal tries
        tries += 1
        reduced = Program(program.name, tuple(program.operations[place] for place in places))
        path = folder / f"reduced{generated_programs.ENDING}"
        path.write_text(f"{reduced}\n", encoding="utf-8")
        try:
            return _shows(record(Workload(str(path))), options, finding, guest)
        except EmmclabError:
            # A reduced program that cannot be recorded or judged does not show the finding.
            return False

    places_of_all = list(range(len(program.operations)))
    if not shows(places_of_all):
        return None
    places = fewest(places_of_all, shows, lambda: tries < _MOST_RECORDINGS)
    return Program(program.name, tuple(program.operations[place] for place in places))


def _shows(log: StoredLog, options: Options, finding: Finding, guest: GuestMounts | None) -> bool:
    run, _ = open_run(str(log.log), base=log.base)
    match, _ = Search(run, options, finding, guest).first(explorer_of(run, options), _STATES)
    return match is not None
