"""Compares modes of the journal layer, using the results of the studies `dsn17` and `dsn17-crash`."""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files
from statistics import fmean, median
from typing import Any

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
#: Name of the grid that runs SQLite with the journal of ext4 in NVRAM, and suffix of its input names.
NVRAM, _IN_NVRAM = "nvram", "-nvram"
#: Devices on which claims are judged: both the time of a write and that of a flush were measured on a real device.
JUDGED = ("emmc50-write-through", "emmc51-cache")
#: All devices; of the last one, only the sum of a write and a flush was measured.
DEVICES = (*JUDGED, "emmc50-cache")
#: Names of the recorded applications.
APPLICATIONS = ("mail", "chat", "app-install", "camera")
#: SQLite with each way to end a rollback journal, which is its default, and with a write-ahead log.
ROLLBACK = ("sqlite-delete", "sqlite-truncate", "sqlite-persist")
SQLITE = (*ROLLBACK, "sqlite-wal")
BENCHMARKS = (*SQLITE, "create-files")
PROGRAMS = (*BENCHMARKS, *APPLICATIONS)
#: Transactions of each program of SQLite: the first half are inserts, the others updates.
TRANSACTIONS = 240
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


def program_of(name: str) -> str:
    """Return the program of a recording, without the place of its journal."""
    return name.removesuffix(_NO_JOURNAL).removesuffix(_IN_NVRAM)


def seconds(run: Run, cpu_factor: float = CPU_FACTOR) -> float:
    """Return a program's run time in s: the time of its requests and the processor time between them."""
    program = program_of(run.input)
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
    results: Results, mode: str, device: str, names: Iterable[str] = APPLICATIONS, cpu_factor: float = CPU_FACTOR
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
    results: Results, mode: str, device: str, names: Iterable[str] = APPLICATIONS, cpu_factor: float = CPU_FACTOR
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
    """Describe the gain of journal mode `aware` on each device under other kernels than the study's."""
    runs: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for grid in (BASE, AWARE):
        for run in results.select(grid + _KERNELS, among=APPLICATIONS):
            case = (str(run.settings["host.kernel"]), run.device)
            runs.setdefault(case, {}).setdefault(grid, {})[run.input] = seconds(run)
    kernels = dict.fromkeys(kernel for kernel, _ in runs)

    def text(kernel: str) -> str:
        by_device = {device: faster(*runs[kernel, device].values()) for device in JUDGED}
        return f"{kernel} {_on_each(lambda device: _range(by_device[device].values(), signed))}"

    return "; ".join(map(text, kernels))


def _journals(results: Results, field: str, names: Iterable[str] = APPLICATIONS) -> dict[str, float]:
    return {name: float(results.profiles[name]["journal"][field]) for name in names}


def _recorded_shares(results: Results) -> dict[str, float]:
    """Return the share of the journal in each trace of the user whose journal is known by more than an upper bound."""
    journals = {
        name: profile["journal"] for name, profile in results.profiles.items() if program_of(name) not in PROGRAMS
    }
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


def _on_each(text: Callable[[str], str], devices: Iterable[str] = JUDGED) -> str:
    """Return the text of each device, by default of those on which claims are judged, with its name."""
    return ", ".join(f"{text(device)} on {device}" for device in devices)


def _judged(text: Callable[[str], str], values: Mapping[str, Mapping[str, float]], note: str) -> Measurement:
    """Return a measurement whose verdict is the weakest of the devices in `JUDGED`; the note has the others."""
    beside = _on_each(text, DEVICES[len(JUDGED) :])
    by_device = {device: values[device] for device in JUDGED}
    return Measurement(
        _on_each(text),
        dict(values[JUDGED[0]]),
        f"Not judged, as only the sum of a write and a flush was measured: {beside}. {note}",
        by_device,
    )


@measure
def barrier(results: Results) -> Measurement:
    """Measure the share of the run time that is spent in flushes and durable writes."""
    shares = {
        device: [durable_pct(results.run(BASE, input=name, device=device)) for name in APPLICATIONS]
        for device in DEVICES
    }
    dropped = [
        100 * (1 - after / before)
        for device in JUDGED
        for before, after in zip(
            times(results, BASE, device).values(), times(results, "no_barrier", device).values(), strict=True
        )
    ]
    return _judged(
        lambda device: f"{median(shares[device]):.0f} % (median of {len(APPLICATIONS)}; {_range(shares[device])})",
        {device: {"median_pct": median(shares[device])} for device in DEVICES},
        "Flushes and writes with preflush and FUA in the run time in mode legacy. "
        f"Without any of them a run takes {_range(dropped)} less time. If a plain write leaves data "
        "in the cache, programming it is part of the flush; if a device writes through, it is part of the write.",
    )


@measure
def gain(results: Results) -> Measurement:
    """Measure the gain of journal mode `aware` over `legacy`."""
    by_name = {device: gains(results, AWARE, device) for device in DEVICES}
    alone = {device: gains(results, AWARE, device, cpu_factor=0.0) for device in DEVICES}
    benchmarks = {device: gains(results, AWARE, device, BENCHMARKS) for device in DEVICES}
    return _judged(
        lambda device: _range(by_name[device].values(), signed),
        {
            device: {"least_pct": min(values.values()), "most_pct": max(values.values())}
            for device, values in by_name.items()
        },
        f"{_on_each(lambda device: _values_text(by_name[device]))}. The least gain is that of the camera, which "
        "writes little else than data; the programs of the paper are not known. Of the time of requests alone "
        f"{_on_each(lambda device: _range(alone[device].values(), signed))}; benchmarks "
        f"{_on_each(lambda device: _range(benchmarks[device].values(), signed))}. "
        f"Under other kernels (`host.kernel`): {_under_kernels(results)}. {_ASSUMED_CPU}",
    )


#: A note for figures that depend on a run time.
_ASSUMED_CPU = f"The processor is assumed to take {CPU_FACTOR:g} times as long as on the machine of the recording."


def over_ideal(results: Results, device: str, ideal: str = IDEAL, *, mode: str = AWARE) -> dict[str, float]:
    """Return by how many percent a journal mode takes longer than another mode (`ideal`), by program."""
    return faster(times(results, mode, device), times(results, ideal, device))


@measure
def ideal(results: Results) -> Measurement:
    """Measure how much longer programs run in journal mode `aware` than on ext4 without a journal."""
    costs = {device: over_ideal(results, device) for device in DEVICES}
    legacy, bound = (
        {device: fmean(over_ideal(results, device, *of, mode=mode).values()) for device in DEVICES}
        for mode, of in ((BASE, ()), (AWARE, (BOUND,)))
    )
    return _judged(
        lambda device: f"{fmean(costs[device].values()):.0f} % ({_range(costs[device].values())})",
        {device: {"mean_pct": fmean(costs[device].values())} for device in DEVICES},
        f"{_on_each(lambda device: _values_text(costs[device]))}. The unchanged journal of ext4 costs "
        f"{_on_each(lambda device: f'{legacy[device]:.0f} %')}. Without a journal, ext4 writes changed metadata "
        "to its place at each fsync; compared with a bound that writes no metadata, the cost is "
        f"{_on_each(lambda device: f'{bound[device]:.0f} %')}. A commit needs at least one durable write. "
        f"{_ASSUMED_CPU}",
    )


def _values_text(value_by_name: dict[str, float], text: Callable[[float], str] = signed) -> str:
    return ", ".join(f"{name} {text(value)} %" for name, value in value_by_name.items())


def rates(results: Results, device: str) -> dict[str, float]:
    """Return the transactions per second of SQLite in each journal mode."""
    return {name: TRANSACTIONS / time_s for name, time_s in times(results, BASE, device, SQLITE).items()}


@measure
def wal_truncate(results: Results) -> Measurement:
    """Measure SQLite's transactions per second with a write-ahead log and with a truncated rollback journal."""
    per_s = {device: rates(results, device) for device in DEVICES}
    wal, truncate = "sqlite-wal", "sqlite-truncate"
    durable = (results.run(BASE, input=name, device=JUDGED[0])["durable.requests"] for name in (truncate, wal))
    return _judged(
        lambda device: (
            f"{per_s[device][wal]:,.0f} and {per_s[device][truncate]:,.0f} a second "
            f"({per_s[device][wal] / per_s[device][truncate]:.1f}x)"
        ),
        {device: {"wal_per_s": of[wal], "truncate_per_s": of[truncate]} for device, of in per_s.items()},
        f"Both run {TRANSACTIONS} transactions, of which half are inserts and half updates; flushes and durable "
        f"writes are {' and '.join(f'{count:,}' for count in durable)}. The figure does not say whether the "
        "published write-ahead log was synced only at checkpoints or at each commit; here it is synced at each commit.",
    )


@measure
def journal_of_journal(results: Results) -> Measurement:
    """Measure how much longer SQLite takes because the file system has a journal, too."""
    costs = {
        device: faster(times(results, BASE, device, SQLITE), times(results, IDEAL, device, SQLITE))
        for device in DEVICES
    }
    return _judged(
        lambda device: f"up to {max(costs[device].values()):.0f} %",
        {device: {"most_pct": max(costs[device].values())} for device in DEVICES},
        "Time that the journal adds, in percent of the time without a journal: "
        f"{_on_each(lambda device: _values_text(costs[device]), DEVICES)}.",
    )


@measure
def delta_gain(results: Results) -> Measurement:
    """Measure how much faster SQLite is if the journal of ext4 stores the changed sectors of a block in NVRAM."""
    by_name = {}
    for device in DEVICES:
        moved = {name: seconds(results.run(NVRAM, input=name + _IN_NVRAM, device=device)) for name in SQLITE}
        by_name[device] = faster(times(results, BASE, device, SQLITE), moved)
    means = {device: fmean(values[name] for name in ROLLBACK) for device, values in by_name.items()}
    on_flash = {device: gains(results, "delta", device, ROLLBACK) for device in DEVICES}
    return _judged(
        lambda device: f"{signed(means[device])} %",
        {device: {"mean_pct": mean} for device, mean in means.items()},
        f"{_on_each(lambda device: _values_text(by_name[device]), DEVICES)}. A commit still flushes the flash, because "
        "its data must be durable first. The times of the NVRAM (pcm-16mb) are assumed. With the changed sectors in "
        f"a log on the flash the gain is {_on_each(lambda device: _range(on_flash[device].values(), signed))}.",
    )


@cache
def _mail_server() -> dict[str, Any]:
    """Return what the journal of ext4 wrote under Filebench's mail server (benches/fast_commits.py)."""
    measured: dict[str, Any] = json.loads(files(__package__).joinpath("fast-commits.json").read_text("utf-8"))
    return measured


def _by_threads(text: Callable[[dict[str, Any]], str]) -> tuple[str, dict[str, Any], str]:
    """Return text and figures for the first number of threads, which is judged, and a note with the others."""
    measured = _mail_server()
    (first, judged), *others = measured["by_threads"].items()
    beside = ", ".join(f"{threads} {text(figures)}" for threads, figures in others)
    note = (
        f"By threads: {beside}. Medians of {measured['runs']} runs of {measured['loops']:,} loops on a served "
        f"emmc51-cache under Linux {measured['kernel']} (benches/fast_commits.py)."
    )
    return f"{text(judged)} with {first} threads", judged, note


@measure
def journal_bytes(_results: Results) -> Measurement:
    """Measure the journal's share of the written bytes under Filebench's mail server, without fast commits."""
    text, judged, by_threads = _by_threads(lambda figures: f"{figures['journal_pct']:.0f} %")
    note = "Threads that wait at the same time share a commit. Behind NFS each change is synced alone."
    return Measurement(text, {"share_pct": judged["journal_pct"]}, f"{note} {by_threads}")


@measure
def commit_sizes(_results: Results) -> Measurement:
    """Measure the share of fast commits that fit one block, by the kernel's own count."""
    text, judged, by_threads = _by_threads(
        lambda figures: f"{figures['one_block_pct']:.0f} % of {figures['fast_commits']:,.0f} fast commits"
    )
    low, high = judged["one_block_range_pct"]
    note = f"The runs have {low:.0f} to {high:.0f} %: a commit has the changes of all threads that wait."
    return Measurement(text, {"one_block_pct": judged["one_block_pct"]}, f"{note} {by_threads}")


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
