"""Times in a log: when lines were printed, and the commands before a cut."""

import json
from dataclasses import dataclass

from emmclab import _core
from emmclab.crash.explore import CoreOptions

#: The `writer` of logs whose times only count entries, and the nanoseconds assigned to each entry.
DM_WRITER, DM_ENTRY_NS = "dm-log-writes", 2_000


@dataclass(frozen=True)
class LoggedCommand:
    """A command that arrived before a cut."""

    number: int
    op: str
    sector: int
    sectors: int
    flags: tuple[str, ...]
    arrival_ns: int
    #: `None` if it was not complete at the power cut.
    complete_ns: int | None


def acknowledged_at(run: _core.CrashRun) -> list[int]:
    """Return the time of each line that the workload printed, in nanoseconds."""
    times: list[int] = []
    if not run.acknowledgements():
        return times
    explorer = _core.Explorer(run, _options(1 << 62, None))
    # The explorer skips a moment with the same contents and lines as an earlier one, but none with a new
    # line.
    while (text := explorer.next_state()) is not None:
        state = json.loads(text)
        times += [state["at_ns"]] * (state["acknowledged"] - len(times))
    return times


def time_of(run: _core.CrashRun, cut: int) -> int:
    """Return the time of a moment in nanoseconds."""
    text = _core.Explorer(run, _options(1, (cut, 0))).next_state()
    return 0 if text is None else int(json.loads(text)["at_ns"])


def commands_before(run: _core.CrashRun, cut: int) -> list[LoggedCommand]:
    """Return the commands that had arrived when power was cut at a moment, in order."""
    return [
        LoggedCommand(number, op, sector, sectors, tuple(flags), arrival, complete)
        for number, op, sector, sectors, flags, arrival, complete in run.commands(0, cut + 1)
    ]


def _options(cuts: int, only: tuple[int, int] | None) -> CoreOptions:
    return {
        "cuts": cuts,
        "states": "device",
        "seed": 1,
        "tear": "none",
        "from_mark": None,
        "only": only,
        "share": (0, 1),
    }
