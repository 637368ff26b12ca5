"""What stands against comparing devices: their durable writes were measured by different people."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from emmclab.devices.result import Result

#: How much the durable writes of two devices of one kind differ: the two eMMC of one publication take 350 and
#: 1,200 us for a reliable write of 4 KB (`presets/published/hunter23_command_times.csv`).
_OF_ONE_KIND = 1200 / 350


def sources_apart(results: Sequence[Result]) -> list[str]:
    """Return for each trace a caution, where its durable writes cannot rank the devices.

    That is so where two devices were fitted to different sources, and their mean response to flushes and
    synchronous writes differs by less than that of two devices of one kind.

    >>> import emmclab
    >>> devices = [emmclab.Device.preset(name) for name in ("emmc51-cache", "ufs31")]
    >>> trace = next(path for path in emmclab.bundled() if path.stem == "messages-wal")
    >>> sources_apart(emmclab.compare([emmclab.read(trace)], devices))[0].partition(":")[0]
    'flushes and synchronous writes do not rank emmc51-cache and ufs31'
    """
    found = []
    traces = dict.fromkeys(result["trace"] for result in results)
    for trace in traces:
        runs = {run["device"]: run for run in results if run["trace"] == trace and _sources(run)}
        near = [pair for pair in combinations(runs.values(), 2) if _unsure(*pair)]
        names = [name for name, run in runs.items() if any(run in pair for pair in near)]
        if names:
            where = f"{trace}: " if len(traces) > 1 else ""
            found.append(where + _caution(names))
    return found


def _caution(names: Sequence[str]) -> str:
    return (
        f"flushes and synchronous writes do not rank {', '.join(names[:-1])} and {names[-1]}: these presets "
        "were fitted to different sources, and their times differ by less than those of two devices of one "
        f"kind ({_OF_ONE_KIND:.1f} times); `emmclab devices --check NAME` lists the sources, "
        "`emmclab calibrate` fits a device of your own"
    )


def _sources(run: Result) -> frozenset[str]:
    """Return the measurements that the simulated device was fitted to."""
    devices = (run.get("provenance") or {}).get("devices") or [{}]
    return frozenset(devices[0].get("settings", {}).get("fitted_to", ()))


def _unsure(one: Result, other: Result) -> bool:
    """Return whether two runs have durable writes whose times are close, from sources that share nothing."""
    times = [run.shown("durable.mean_ms") for run in (one, other)]
    if not all(times) or _sources(one) & _sources(other):
        return False
    return bool(max(times) < _OF_ONE_KIND * min(times))
