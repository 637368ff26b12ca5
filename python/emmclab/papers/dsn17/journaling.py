"""Compares modes of the journal layer, using the results of the studies `dsn17` and `dsn17-crash`."""

import json
from collections.abc import Callable, Iterable
from functools import cache
from statistics import fmean, median

from emmclab.papers.measures import Measurement, measure
from emmclab.runtime.document import signed
from emmclab.studies.power_cut_settings import DOCUMENTED, KEPT, CutRun
from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run
from emmclab.traces.reading import bundled

#: Modes of the journaling layer, with a description of each; each mode is a grid of the study.
MODES = {
    "legacy": "as ext4 asks",
    "no_barrier": "no flushes (unsafe)",
    "no_journal": "writes of the journal left out (unsafe, a bound)",
    "ordered_fua": "forced and reliable writes",
    "delta": "changed sectors",
    "packed": "one write",
    "aware": "all three",
}
#: Modes of the journaling layer that keep the durability promises of ext4.
SAFE = ("ordered_fua", "delta", "packed", "aware")
BASE, BOUND, AWARE = "legacy", "no_journal", "aware"
#: Name of the grid that runs the programs on ext4 without a journal, and suffix of its input names.
IDEAL, _NO_JOURNAL = "ext4-no-journal", "-no-journal"
#: Device presets; claims are judged on the first one, which has a cache to flush, like the paper's prototype.
DEVICES = ("emmc50-cache", "emmc50-write-through", "emmc51-cache")
#: Names of the recorded applications.
APPLICATIONS = ("mail", "chat", "app-install", "camera")
SQLITE = ("sqlite-delete", "sqlite-truncate", "sqlite-persist", "sqlite-wal")
BENCHMARKS = (*SQLITE, "create-files")
PROGRAMS = (*BENCHMARKS, *APPLICATIONS)
#: Assumed factor by which computing takes longer on a core of a phone of 2014 than on the recording machine.
CPU_FACTOR = 4.0
_KERNELS = "-kernels"


@cache
def _cpu_s() -> dict[str, float]:
    """Return the processor time of each program and its system calls, on the recording machine, in s.

    The same time is used with and without a journal, because the difference is smaller than that between two
    recordings.
    """
    measured: dict[str, float] = json.loads(
        (bundled(annotated=True)[0].parent / "cpu_s.json").read_text(encoding="utf-8")
    )
    return measured


@cache
def _contents() -> dict[str, dict[str, float]]:
    """Return for each program how many blocks were logged repeatedly, and how much of their data was unchanged."""
    contents: dict[str, dict[str, float]] = json.loads(
        (bundled(annotated=True)[0].parent / "journal_contents.json").read_text(encoding="utf-8")
    )
    return contents


def seconds(run: Run, cpu_factor: float = CPU_FACTOR) -> float:
    """Return a program's run time in s: the time of its requests and the processor time between them."""
    program = run.input.removesuffix(_NO_JOURNAL)
    return float(run.run.simulated_s) + cpu_factor * _cpu_s().get(program, 0.0)


def durable_pct(run: Run) -> float:
    """Return the share of the run time that is spent in flushes and durable writes, in percent."""
    durable_ms = run["durable.requests"] * run["durable.mean_ms"]
    return float(100 * durable_ms / 1e3 / seconds(run))


def ideal_run(results: Results, name: str, device: str) -> Run:
    """Return the run without a journal: of a program on ext4, or of a user's trace in the mode `no_journal`."""
    if name in PROGRAMS:
        return results.run(IDEAL, input=name + _NO_JOURNAL, device=device)
    return results.run(BOUND, input=name, device=device)


def times(
    results: Results,
    mode: str,
    device: str = DEVICES[0],
    names: Iterable[str] = APPLICATIONS,
    cpu_factor: float = CPU_FACTOR,
) -> dict[str, float]:
    """Return the run times of programs in a journal mode, or on ext4 without a journal, in s."""
    runs = {
        name: ideal_run(results, name, device) if mode == IDEAL else results.run(mode, input=name, device=device)
        for name in names
    }
    return {name: seconds(run, cpu_factor) for name, run in runs.items()}


def faster(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Return by how many percent each program is faster: the ratio of run times before and after, minus 1."""
    return {name: 100 * (before[name] / after[name] - 1) for name in before}


def gains(
    results: Results,
    mode: str,
    device: str = DEVICES[0],
    names: Iterable[str] = APPLICATIONS,
    cpu_factor: float = CPU_FACTOR,
) -> dict[str, float]:
    """Return by how many percent each program is faster in a journal mode than in `legacy`."""
    names = tuple(names)
    return faster(times(results, BASE, device, names, cpu_factor), times(results, mode, device, names, cpu_factor))


def _plain(value: float) -> str:
    return f"{value:.1f}"


def _range(values: Iterable[float], text: Callable[[float], str] = _plain) -> str:
    numbers = list(values)
    return f"{text(min(numbers))} to {text(max(numbers))} %"


def _under_kernels(results: Results) -> str:
    """Describe the gain of journal mode `aware` for each simulated kernel (setting `host.kernel`)."""
    parts = []
    runs = {grid: list(results.select(grid + _KERNELS)) for grid in (BASE, AWARE)}
    for kernel in dict.fromkeys(run.settings["host.kernel"] for run in runs[BASE]):
        before, after = (
            {
                run.input: seconds(run)
                for run in runs[grid]
                if run.settings["host.kernel"] == kernel and run.input in APPLICATIONS
            }
            for grid in (BASE, AWARE)
        )
        parts.append(f"under {kernel} {_range(faster(before, after).values(), signed)}")
    return "; ".join(parts)


def _journals(results: Results, field: str, names: Iterable[str] = APPLICATIONS) -> dict[str, float]:
    return {name: float(results.profiles[name]["journal"][field]) for name in names}


def _recorded_shares(results: Results) -> dict[str, float]:
    """Return the share of the journal in each trace of the user whose journal is known by more than an upper bound."""
    ours = {*PROGRAMS, *(name + _NO_JOURNAL for name in PROGRAMS)}
    journals = {name: profile["journal"] for name, profile in results.profiles.items() if name not in ours}
    return {
        name: journal["journal_pct"]
        for name, journal in journals.items()
        if journal is not None
        and (journal["known_by"] == "roles" or any(row["kind"] == "journal" for row in journal["found"]))
    }


@measure
def journal_share(results: Results) -> Measurement:
    """Measure the journal's share of the written bytes, in percent: of recorded traces if any, else of programs."""
    shares = _journals(results, "journal_pct")
    benchmarks = _journals(results, "journal_pct", BENCHMARKS)
    phones = _recorded_shares(results)
    judged, what = (phones, "recorded traces") if phones else (shares, "applications")
    recorded = f"Recorded: {_values_text(phones, _plain)}. Programs beside them: " if phones else ""
    return Measurement(
        f"{median(judged.values()):.0f} % (median of {len(judged)} {what})",
        {"median_pct": median(judged.values())},
        f"{recorded}{_values_text(shares, _plain)}. Benchmarks of SQLite and of new files, which write little else, "
        f"have {_range(benchmarks.values())}. Small synchronous writes cause the share: photos and packages write "
        "mostly data.",
    )


@measure
def unchanged(results: Results) -> Measurement:
    """Measure the share of logged sectors that equal their last logged copy, over all programs."""
    logged = {name: results.profiles[name]["journal"]["logged"] for name in PROGRAMS}
    blocks = sum(log["compared"] for log in logged.values())
    share = sum(log["compared"] * log["unchanged_sectors_pct"] for log in logged.values()) / blocks
    shares = (log["unchanged_sectors_pct"] for log in logged.values())
    contents = _contents()
    compared = sum(part["compared"] for part in contents.values())
    by_byte = sum(part["compared"] * part["unchanged_bytes_pct"] for part in contents.values()) / compared
    return Measurement(
        f"{share:.1f} % of the sectors of {blocks:,} logged blocks, {by_byte:.1f} % of their bytes",
        {"sectors_pct": share, "bytes_pct": by_byte},
        f"By program {_range(shares)} of the sectors of 512 bytes, of which a few bytes may have changed, and "
        f"{_range(part['unchanged_bytes_pct'] for part in contents.values())} of the bytes. The paper does not "
        "state its unit. Traces have no contents: the bytes were read from the log after a run of each program.",
    )


@measure
def barrier(results: Results) -> Measurement:
    """Measure the share of the run time that is spent in flushes and durable writes."""
    shares_by_device = {
        device: [durable_pct(results.run(BASE, input=name, device=device)) for name in APPLICATIONS]
        for device in DEVICES
    }
    dropped = [
        100 * (1 - after / before)
        for before, after in zip(times(results, BASE).values(), times(results, "no_barrier").values(), strict=True)
    ]
    judged_shares, *others = shares_by_device.values()
    other_devices = "; ".join(
        f"on {device} {median(shares):.0f} % ({_range(shares)})"
        for device, shares in zip(DEVICES[1:], others, strict=True)
    )
    return Measurement(
        f"{median(judged_shares):.0f} % (median of {len(judged_shares)}; {_range(judged_shares)})",
        {"median_pct": median(judged_shares)},
        f"Flushes and writes with preflush and FUA in the run time in mode legacy on {DEVICES[0]}; "
        f"{other_devices}. Without any of them a run takes {_range(dropped)} less time. If a plain write leaves data "
        "in the cache, programming it is part of the flush; if a device writes through, it is part of the write.",
    )


@measure
def gain(results: Results) -> Measurement:
    """Measure the gain of journal mode `aware` over `legacy`."""
    judged_gains = gains(results, AWARE)
    saved = [100 * percent / (100 + percent) for percent in judged_gains.values()]
    alone = gains(results, AWARE, cpu_factor=0.0)
    return Measurement(
        f"{_range(judged_gains.values(), signed)} on {DEVICES[0]}",
        {"least_pct": min(judged_gains.values()), "most_pct": max(judged_gains.values())},
        f"{_values_text(judged_gains)}. As time saved {_range(saved)}; of the time of requests alone "
        f"{_range(alone.values(), signed)}. {_on_other_devices(results, AWARE)}. "
        f"On {DEVICES[0]} {_under_kernels(results)}. "
        f"Benchmarks {_range(gains(results, AWARE, names=BENCHMARKS).values(), signed)}. {_ASSUMED_CPU}",
    )


#: A note for figures that depend on a run time.
_ASSUMED_CPU = f"The processor is assumed to take {CPU_FACTOR:g} times as long as on the machine of the recording."


def _on_other_devices(results: Results, mode: str) -> str:
    """Describe the gains of a journal mode on the devices on which no claims are checked."""
    return "; ".join(f"on {device} {_range(gains(results, mode, device).values(), signed)}" for device in DEVICES[1:])


def over_ideal(results: Results, device: str, ideal: str = IDEAL, *, mode: str = AWARE) -> dict[str, float]:
    """Return by how many percent a journal mode takes longer than another mode (`ideal`), by program."""
    return faster(times(results, mode, device), times(results, ideal, device))


@measure
def ideal(results: Results) -> Measurement:
    """Measure how much longer programs run in journal mode `aware` than on ext4 without a journal."""
    costs = over_ideal(results, DEVICES[0])
    bound = fmean(over_ideal(results, DEVICES[0], BOUND).values())
    other_devices = "; ".join(
        f"on {device} {fmean(other_costs.values()):.0f} % ({_range(other_costs.values())})"
        for device in DEVICES[1:]
        for other_costs in (over_ideal(results, device),)
    )
    legacy = fmean(over_ideal(results, DEVICES[0], mode=BASE).values())
    return Measurement(
        f"{fmean(costs.values()):.0f} % on {DEVICES[0]} ({_range(costs.values())})",
        {"mean_pct": fmean(costs.values())},
        f"{_values_text(costs)}; {other_devices}. The unchanged journal of ext4 costs {legacy:.0f} %, so that "
        f"{legacy - fmean(costs.values()):.0f} points are saved. Without a journal, ext4 writes changed metadata "
        f"to its place at each fsync; compared with a bound that writes no metadata, the cost is {bound:.0f} % "
        f"instead of {fmean(costs.values()):.0f} %. A commit needs at least one durable write. {_ASSUMED_CPU}",
    )


def _values_text(value_by_name: dict[str, float], text: Callable[[float], str] = signed) -> str:
    return ", ".join(f"{name} {text(value)} %" for name, value in value_by_name.items())


@measure
def wal_truncate(results: Results) -> Measurement:
    """Compare SQLite's transactions per second with a write-ahead log and with a truncated rollback journal."""
    ratios = {}
    for device in DEVICES:
        program_times = times(results, BASE, device, SQLITE)
        ratios[device] = program_times["sqlite-truncate"] / program_times["sqlite-wal"]
    judged_ratio, *others = ratios.values()
    other_devices = "; ".join(f"on {device} {ratio:.1f}x" for device, ratio in zip(DEVICES[1:], others, strict=True))
    durable = {
        name: results.run(BASE, input=name, device=DEVICES[0])["durable.requests"]
        for name in ("sqlite-truncate", "sqlite-wal")
    }
    return Measurement(
        f"{judged_ratio:.1f}x",
        {"ratio": judged_ratio},
        f"{other_devices}. Both run 240 transactions; flushes and durable writes are "
        f"{durable['sqlite-truncate']:,} and {durable['sqlite-wal']:,}. The figure does not say whether the "
        "published write-ahead log was synced only at checkpoints or at each commit; here it is synced at each commit.",
    )


@measure
def journal_of_journal(results: Results) -> Measurement:
    """Measure how much longer SQLite takes because the file system has a journal, too."""
    costs, *others = (
        faster(times(results, BASE, device, SQLITE), times(results, IDEAL, device, SQLITE)) for device in DEVICES
    )
    others_text = "; ".join(
        f"on {device} {_range(other_costs.values())}" for device, other_costs in zip(DEVICES[1:], others, strict=True)
    )
    return Measurement(
        f"up to {max(costs.values()):.0f} %",
        {"most_pct": max(costs.values())},
        f"Time that the journal adds, in percent of the time without a journal: {_values_text(costs)}; {others_text}.",
    )


@measure
def delta_gain(results: Results) -> Measurement:
    """Measure the gain from logging only the changed sectors of a block."""
    judged_gains = gains(results, "delta")
    return Measurement(
        f"{signed(fmean(judged_gains.values()))} % (mean; {_range(judged_gains.values(), signed)})",
        {"mean_pct": fmean(judged_gains.values())},
        f"{_on_other_devices(results, 'delta')}. Fewer sectors do not save programs if each "
        "of a few small writes ends in a flush: the device programs pages of 16 KB, and a commit waits for a "
        "flush and a durable write.",
    )


@measure
def journal_bytes(results: Results) -> Measurement:
    """Measure the journal's share of the written bytes if each file is synced separately."""
    shares = _journals(results, "journal_pct", PROGRAMS)
    return Measurement(
        f"{shares['create-files']:.0f} %",
        {"share_pct": shares["create-files"]},
        "Creation of files of 4 KB, each with fsync, represents the published synchronous workload; mail "
        f"{shares['mail']:.0f} %, all programs {_range(shares.values())}.",
    )


#: Names of two groups of runs (grids): the tested group, and a control group. The test is valid only if data is lost in
#: the control group.
TESTED, CONTROL = "aware", "no_barrier"


def cells(results: Results, grid: str) -> list[CutRun]:
    """Return the power-cut runs in a grid of the study."""
    return [run for run in results.cut_runs() if run.cell.grid == grid]


def broken(runs: list[CutRun]) -> list[CutRun]:
    """Return the runs in which a crash state broke a documented promise."""
    return [run for run in runs if run.result.verdict not in (KEPT, DOCUMENTED)]


@measure
def recovers(results: Results) -> Measurement:
    """Count the runs with the journal layer that lose no durable data in any of the power cuts."""
    tested, control = cells(results, TESTED), cells(results, CONTROL)
    lost, lost_control = broken(tested), broken(control)
    cuts = sum(run.result.cuts for run in tested)
    states = sum(run.result.states for run in tested)
    names = ", ".join(dict.fromkeys(run.cell.input for run in lost))
    lost_text = f"Lost: {names}. " if lost else ""
    return Measurement(
        f"{len(tested) - len(lost)} of {len(tested)} runs recover from all of {cuts:,} cuts",
        {"broken_runs": float(len(lost)), "control_broken_runs": float(len(lost_control))},
        f"{lost_text}{states:,} different states that the contract of the device allows at these times were "
        f"recovered and checked. Without flushes {len(lost_control)} of {len(control)} runs lose promised data "
        f"({sum(run.result.lost_states for run in control):,} states of "
        f"{sum(run.result.states for run in control):,}), so the check detects losses. Because of durable writes "
        "only a few states are possible.",
    )
