"""Modes of the journal layer against each other: the measures of the claims on results of `dsn17`."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean, median

from emmclab.papers.measuring import Measurement, measure
from emmclab.studies.results import Results
from emmclab.studies.tables import Run

#: Modes of the layer, which are the grids of the study, with what they are.
MODES = {
    "legacy": "as ext4 asks",
    "no_barrier": "no flushes (unsafe)",
    "no_journal": "no journal (unsafe, the ideal)",
    "ordered_fua": "forced and reliable writes",
    "delta": "changed sectors",
    "packed": "one write",
    "aware": "all three",
}
#: Modes that keep what ext4 promises.
SAFE = ("ordered_fua", "delta", "packed", "aware")
BASE, IDEAL, AWARE = "legacy", "no_journal", "aware"
#: The device of the prototype's class first.
DEVICES = ("emmc50-cache", "emmc51-cache")
#: The recorded applications; traces of one's own are shown, not judged.
SQLITE = ("sqlite-delete", "sqlite-truncate", "sqlite-persist", "sqlite-wal")
APPLICATIONS = (*SQLITE, "create-files", "mail", "chat", "app-install", "camera")
_KERNELS = "-kernels"


def seconds(run: Run) -> float:
    """Time of a run: closed loop without time of the host."""
    return float(run["run"]["simulated_s"])


def durable_pct(run: Run) -> float:
    """Share of the time of a run that passes in flushes and durable writes, percent."""
    durable = run["durable"]
    return 100 * float(durable["requests"]) * float(durable["mean_ms"]) / 1e3 / seconds(run)


def times(results: Results, mode: str, device: str = DEVICES[0]) -> dict[str, float]:
    """Seconds of each application in a mode."""
    return {name: seconds(results.run(mode, input=name, device=device)) for name in APPLICATIONS}


def gains(results: Results, mode: str, device: str = DEVICES[0], over: str = BASE) -> dict[str, float]:
    """Percent by which each application is faster in a mode than in another, by the ratio of times."""
    before, after = times(results, over, device), times(results, mode, device)
    return {name: 100 * (before[name] / after[name] - 1) for name in before}


def won(results: Results, name: str, mode: str, device: str) -> float:
    """Share of the way from `legacy` to `no_journal` that a mode goes, percent of the time between them."""
    base, found, ideal = (
        seconds(results.run(grid, input=name, device=device)) for grid in (BASE, mode, IDEAL)
    )
    return 100 * (base - found) / (base - ideal) if base != ideal else 0.0


def _range(values: Iterable[float], sign: str = "") -> str:
    found = list(values)
    return f"{min(found):{sign}.1f} to {max(found):{sign}.1f} %"


def _under_kernels(results: Results, mode: str, over: str) -> str:
    """Return the range of a gain under the kernels of the other readings."""
    parts = []
    runs = {grid: list(results.select(grid + _KERNELS)) for grid in (mode, over)}
    for kernel in dict.fromkeys(run["settings"]["host.kernel"] for run in runs[mode]):
        of = {
            grid: {run["input"]: seconds(run) for run in found if run["settings"]["host.kernel"] == kernel}
            for grid, found in runs.items()
        }
        known = [100 * (of[over][name] / of[mode][name] - 1) for name in APPLICATIONS]
        parts.append(f"under {kernel} {_range(known, '+')}, mean {fmean(known):+.1f} %")
    return "; ".join(parts)


def _journals(results: Results, field: str) -> dict[str, float]:
    return {name: float(results.profiles[name]["journal"][field]) for name in APPLICATIONS}


@measure
def journal_share(results: Results) -> Measurement:
    """Share of the journal in written bytes."""
    shares = _journals(results, "journal_pct")
    above = [name for name, share in shares.items() if share > 40]
    return Measurement(
        f"{median(shares.values()):.0f} % (median of {len(shares)}; {_range(shares.values())})",
        {"median_pct": median(shares.values())},
        f"Above 40 %: {', '.join(above)}. Small synchronous writes decide: photos and packages write "
        "mostly data.",
    )


@measure
def unchanged(results: Results) -> Measurement:
    """Share of logged sectors that are as in the last logged copy, over the blocks of all applications."""
    logged = {name: results.profiles[name]["journal"]["logged"] for name in APPLICATIONS}
    blocks = sum(found["compared"] for found in logged.values())
    share = sum(found["compared"] * found["unchanged_sectors_pct"] for found in logged.values()) / blocks
    each = (found["unchanged_sectors_pct"] for found in logged.values())
    return Measurement(
        f"{share:.1f} % of the sectors of {blocks:,} logged blocks",
        {"sectors_pct": share},
        f"By application {_range(each)}. Counted in sectors of 512 bytes, of which a few bytes may have "
        "changed: the share "
        "by byte is higher, and the traces have no contents.",
    )


@measure
def barrier(results: Results) -> Measurement:
    """Share of the time that passes in flushes and durable writes."""
    found = {
        device: [durable_pct(results.run(BASE, input=name, device=device)) for name in APPLICATIONS]
        for device in DEVICES
    }
    dropped = [
        100 * (1 - after / before)
        for before, after in zip(
            times(results, BASE).values(), times(results, "no_barrier").values(), strict=True
        )
    ]
    own, other = (found[device] for device in DEVICES)
    return Measurement(
        f"{median(own):.0f} % (median of {len(own)}; {_range(own)})",
        {"median_pct": median(own)},
        f"Flushes and writes with preflush and FUA in the time of a run in mode legacy on {DEVICES[0]}; "
        f"on {DEVICES[1]} "
        f"{median(other):.0f} % ({_range(other)}). Without any of them a run takes {_range(dropped)} less "
        "time. The program "
        "of data that a plain write left in the cache is part of the flush.",
    )


@measure
def gain(results: Results) -> Measurement:
    """Gain of `aware` over `legacy`."""
    own, other = (gains(results, AWARE, device) for device in DEVICES)
    saved = [100 * found / (100 + found) for found in own.values()]
    return Measurement(
        f"{_range(own.values(), '+')} on {DEVICES[0]}",
        {"least_pct": min(own.values()), "most_pct": max(own.values())},
        f"Mean {fmean(own.values()):+.1f} %: {_said(own)}. As time saved {_range(saved)}. On {DEVICES[1]} "
        f"{_range(other.values(), '+')}, mean {fmean(other.values()):+.1f} %. On {DEVICES[0]} "
        f"{_under_kernels(results, AWARE, BASE)}. The host takes no time here, so that all of a run is I/O.",
    )


@measure
def ideal(results: Results) -> Measurement:
    """Time that `aware` takes over `no_journal`."""
    own, other = (
        {
            name: 100 * (after / before - 1)
            for (name, after), before in zip(
                times(results, AWARE, device).items(), times(results, IDEAL, device).values(), strict=True
            )
        }
        for device in DEVICES
    )
    return Measurement(
        f"{fmean(own.values()):.0f} % on {DEVICES[0]} ({_range(own.values())})",
        {"mean_pct": fmean(own.values())},
        f"{_said(own)}. On {DEVICES[1]} {fmean(other.values()):.0f} % ({_range(other.values())}). A "
        "commit needs one durable "
        "write at least, which costs a program; the ideal drops the writes of the journal and has nothing "
        "in their place, not "
        "even the writes of metadata that a file system without a journal makes at home. The share is of "
        "I/O alone.",
    )


def _said(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:+.1f} %" for name, value in found.items())


@measure
def wal_truncate(results: Results) -> Measurement:
    """Transactions a second through a write-ahead log over those with a truncated rollback journal."""
    ratios = {}
    for device in DEVICES:
        found = times(results, BASE, device)
        ratios[device] = found["sqlite-truncate"] / found["sqlite-wal"]
    own, other = ratios.values()
    durable = {
        name: results.run(BASE, input=name, device=DEVICES[0])["durable"]["requests"]
        for name in ("sqlite-truncate", "sqlite-wal")
    }
    return Measurement(
        f"{own:.1f}x",
        {"ratio": own},
        f"On {DEVICES[1]} {other:.1f}x. Both make 240 transactions; flushes and durable writes are "
        f"{durable['sqlite-truncate']:,} and {durable['sqlite-wal']:,}. The published write-ahead log was "
        "synced at checkpoints "
        "only or at each commit, which the figure does not say; here it is synced at each commit.",
    )


@measure
def journal_of_journal(results: Results) -> Measurement:
    """What the file system's journal costs SQLite."""
    own, other = (
        {name: found for name, found in gains(results, IDEAL, device).items() if name in SQLITE}
        for device in DEVICES
    )
    return Measurement(
        f"up to {max(own.values()):.0f} %",
        {"most_pct": max(own.values())},
        f"Time that the journal adds to that without it: {_said(own)}; on {DEVICES[1]} "
        f"{_range(other.values())}. Without a "
        "journal its writes vanish, and nothing stands in their place.",
    )


@measure
def delta_gain(results: Results) -> Measurement:
    """Gain of logging only changed sectors."""
    own, other = (gains(results, "delta", device) for device in DEVICES)
    return Measurement(
        f"{fmean(own.values()):+.1f} % (mean; {_range(own.values(), '+')})",
        {"mean_pct": fmean(own.values())},
        f"On {DEVICES[1]} {fmean(other.values()):+.1f} %. Fewer sectors are no fewer programs where each "
        "of a few small "
        "writes ends in a flush: the device programs pages of 16 KB, and a commit waits for a flush and a "
        "durable write.",
    )


@measure
def journal_bytes(results: Results) -> Measurement:
    """Share of the journal where files are made durable one by one."""
    shares = _journals(results, "journal_pct")
    return Measurement(
        f"{shares['create-files']:.0f} %",
        {"share_pct": shares["create-files"]},
        "Creation of files of 4 KB, each with fsync, stands for the published synchronous workload; mail "
        f"{shares['mail']:.0f} %, all applications {_range(shares.values())}.",
    )
