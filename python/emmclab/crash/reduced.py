"""Minimises the program of a finding: removes operations, and makes a new recording for each attempt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from emmclab.crash import generated
from emmclab.crash.explore import Options, explorer_of, open_run
from emmclab.crash.finding import COMMANDS, Finding
from emmclab.crash.guest.states import GuestMounts
from emmclab.crash.minimal import Search, fewest
from emmclab.crash.programs import Program
from emmclab.crash.recording import Workload
from emmclab.crash.session import Kept
from emmclab.errors import EmmclabError

#: Largest number of recordings for the reduction of one program.
_MOST_TRIES = 40
#: Largest numbers of cuts and of judged states of such a recording.
_CUTS, _STATES = 200, 2_000


def program_of(kept: Kept, finding: Finding) -> Program | None:
    """Return the generated program of a finding; `None` without one, or if a lower level is at fault.

    A broken promise of a device, layer or journal does not depend on the operations.
    """
    workload = kept.made.get("workload")
    if not workload or finding.level != "filesystem" or finding.way == COMMANDS:
        return None
    if not generated.is_programs(workload["name"]):
        return None
    run, _ = open_run(str(kept.log), base=kept.base)
    begun = [line for line in run.acknowledgements()[: finding.acknowledged] if line.startswith("begin ")]
    if not begun:
        return None
    return generated.load(workload["name"], workload["seed"])[int(begun[-1].split()[1])]


def reduced(
    program: Program,
    finding: Finding,
    options: Options,
    record: Callable[[Workload], Kept],
    folder: Path,
    guest: GuestMounts | None,
) -> Program | None:
    """Return the smallest program that shows a finding; `None` if the program alone does not show it.

    Args:
        program: the program of the finding.
        finding: what has to be shown: its level and promise count.
        options: of the exploration that made the finding.
        record: records a workload as the one of the finding was recorded.
        folder: for the programs.
        guest: mounts the states; `None` for this machine.
    """
    options = replace(options, cuts=min(options.cuts, _CUTS), share=(0, 1), only=None)
    tries = 0

    def still(places: list[int]) -> bool:
        nonlocal tries
        tries += 1
        one = Program(program.name, tuple(program.operations[place] for place in places))
        path = folder / f"reduced{generated.ENDING}"
        path.write_text(f"{one}\n", encoding="utf-8")
        try:
            return _shows(record(Workload(str(path))), options, finding, guest)
        except EmmclabError:
            # What cannot be recorded or judged shows nothing.
            return False

    every = list(range(len(program.operations)))
    if not still(every):
        return None
    places = fewest(every, still, lambda: tries < _MOST_TRIES)
    return Program(program.name, tuple(program.operations[place] for place in places))


def _shows(kept: Kept, options: Options, finding: Finding, guest: GuestMounts | None) -> bool:
    """Whether a state of a recording shows the finding."""
    run, _ = open_run(str(kept.log), base=kept.base)
    shown, _ = Search(run, options, finding, guest).first(explorer_of(run, options), _STATES)
    return shown is not None
