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
from emmclab.crash.judging import Judge, is_ext4
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


def minimize(
    run: Run,
    options: Options,
    finding: Finding,
    guest: GuestMounts | None,
    may_continue: Callable[[], bool] = lambda: True,
) -> MinimalState | None:
    """Find the smallest crash state that shows a finding; `None` if the recorded commands alone show it.

    `may_continue` returns false when the time for this is over.
    """
    if finding.way == COMMANDS:
        return None
    search = Search(run, options, finding, guest)
    tries = 0
    cut, number, detail = finding.cut, finding.state, finding.detail
    low = max(run.after_mark(MOUNTED), cut - _BEFORE)
    # A broken promise usually stays broken for some time, so bisection finds the first moment at which it is broken.
    while low < cut and tries < _MOST_TRIES and may_continue():
        middle = (low + cut) // 2
        match, judged = search.first(search.explorer(middle, None), _MOST_TRIES - tries)
        tries += judged
        if match is None:
            low = middle + 1
        else:
            state, detail = match
            cut, number = middle, state.number
    smallest = _fewest(search, replace(finding, cut=cut, state=number, detail=detail), tries, may_continue)
    _add_meanings(run, smallest)
    return smallest


#: Roles of blocks in ext4, in the words of its documentation.
_ROLES = {
    **{"data": "data of files", "group_descriptors": "descriptors of block groups", "block_bitmap": "block bitmap"},
    **{"inode_bitmap": "inode bitmap", "inode_table": "inode table", "metadata": "extents or attributes"},
    **{"journal_superblock": "superblock of the journal", "descriptor": "descriptor block", "logged": "logged block"},
    **{"revoke": "revoke block", "commit": "commit block", "fast_commit": "fast commit"},
}


def _add_meanings(run: Run, state: MinimalState) -> None:
    """Add to each missing write what it contains, if the disk has an ext4 that is not below a layer."""
    if not state["missing"] or isinstance(run, FileRun) or not is_ext4(run):
        return
    meanings = dict(run.meanings([write["command"] for write in state["missing"]]))
    first = {number: sector for number, _, sector, *_ in run.commands(0, state["cut"] + 1)}
    for write in state["missing"]:
        at, parts = first[write["command"]], []
        for role, sectors, transaction, home in meanings.get(write["command"], ()):
            if at < write["sector"] + write["sectors"] and write["sector"] < at + sectors:
                text = _ROLES.get(role, role)
                text += f" of sector {home}" if role == "logged" and home is not None else ""
                parts.append(text + (f", transaction {transaction}" if transaction is not None else ""))
            at += sectors
        if parts:
            write["meaning"] = "; ".join(dict.fromkeys(parts))


def _fewest(search: Search, finding: Finding, tries: int, may_continue: Callable[[], bool]) -> MinimalState:
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

        every = list(range(len(writes)))
        places = fewest(every, shows, lambda: tries < _MOST_TRIES and may_continue()) if writes else []
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
        "earlier": None,
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


def programs_until(log: StoredLog, finding: Finding) -> list[Program]:
    """Return the generated programs that ran until a finding, the last of which led to it; empty if there are none.

    A broken promise of a device, layer or journal does not depend on the program, so the result is empty.
    """
    workload = log.made.get("workload")
    if not workload or finding.level != "filesystem" or finding.way == COMMANDS:
        return []
    if not generated_programs.is_programs(workload["name"]):
        return []
    run, _ = open_run(str(log.log), base=log.base)
    begins = [line for line in run.acknowledgements()[: finding.acknowledged] if line.startswith("begin ")]
    if not begins:
        return []
    return generated_programs.load(workload["name"], workload["seed"])[: int(begins[-1].split()[1]) + 1]


def minimize_programs(
    programs: Sequence[Program],
    finding: Finding,
    options: Options,
    record: Callable[[Workload], StoredLog],
    folder: Path,
    guest: GuestMounts | None,
    may_continue: Callable[[], bool] = lambda: True,
) -> list[Program]:
    """Return the fewest programs with the fewest operations that show a finding; empty if no recording shows it.

    Args:
        programs: the programs that ran until the finding. If the last one alone does not show it, some of the earlier
            ones are kept.
        finding: the finding. Smaller programs must break the same durability promise at the same level of the storage
            stack.
        options: options of the exploration with the finding.
        record: function that runs a workload and records it, with the options of the original recording.
        folder: folder for the files of smaller programs.
        guest: guest that mounts the crash states; `None` if this machine mounts them.
        may_continue: returns false when the time for this is over.
    """
    options = replace(options, cuts=min(options.cuts, _CUTS), share=(0, 1), only=None)
    tries = 0

    def shows(some: Sequence[Program]) -> bool:
        nonlocal tries
        tries += 1
        path = folder / f"reduced{generated_programs.ENDING}"
        path.write_text("".join(f"{program}\n" for program in some), encoding="utf-8")
        try:
            return _shows(record(Workload(str(path))), options, finding, guest)
        except EmmclabError:
            # A reduced program that cannot be recorded or judged does not show the finding.
            return False

    def is_time() -> bool:
        return tries < _MOST_RECORDINGS and may_continue()

    last, count = programs[-1], 0
    while not shows(programs[-1 - count :]):
        if count == len(programs) - 1 or not is_time():
            return []
        count = min(max(1, 2 * count), len(programs) - 1)
    earlier = [*programs[-1 - count : -1]]
    places = fewest([*range(count)], lambda some: shows([*(earlier[place] for place in some), last]), is_time)
    earlier = [earlier[place] for place in places]

    def part(places: list[int]) -> Program:
        return Program(last.name, tuple(last.operations[place] for place in places))

    places = fewest([*range(len(last.operations))], lambda some: shows([*earlier, part(some)]), is_time)
    return [*earlier, part(places)]


def _shows(log: StoredLog, options: Options, finding: Finding, guest: GuestMounts | None) -> bool:
    run, _ = open_run(str(log.log), base=log.base)
    match, _ = Search(run, options, finding, guest).first(explorer_of(run, options), _STATES)
    return match is not None
