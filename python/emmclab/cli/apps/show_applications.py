"""Prints applications and their runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from emmclab.apps.closed_loop import (
    STATES,
    Agreement,
    AppResult,
    LearnedProgram,
    LearnedTime,
    durability_line,
    requests_line,
)
from emmclab.apps.run_tables import (
    all_settings_table,
    runs_answer,
    runs_table,
    settings_of,
    solutions_table,
    storage_table,
    time_and_share,
    what_if_table,
)
from emmclab.apps.solutions import SolutionComparison
from emmclab.cli.tables import framed, print_line, show_table, table_of
from emmclab.core_types import ThreadResult
from emmclab.runtime.document import bar

_BAR = 32
#: Minimum length of a part of the user's waiting time that is reported, in ns.
_LEAST_REPORTED_NS = 10_000_000
#: Maximum number of rows in the table of storage time; the JSON contains all.
_PARTS = 8


def show_applications(console: Console, rows: Sequence[Mapping[str, str]]) -> None:
    """Print the applications."""
    table = framed("Applications", "Name", "Activity of the user", words=2)
    for row in rows:
        table.add_row(row["name"], Text(row["about"]))
    console.print(table)
    console.print(Text("emmclab apps show NAME prints an application with its sources", "dim"))


def show_hosts(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the hosts."""
    for row in rows:
        console.print(Text.assemble((row["name"], "bold"), f"  {row['about']}"))
        cores = "1 core" if row["cores"] == 1 else f"{row['cores']} cores"
        title = f"{cores}, CPU factor {row['cpu_factor']:g}, {row['era']}"
        table = framed(title, "Partition", "Size", "File system", text=["File system"])
        for partition in row["partition"]:
            table.add_row(partition["name"], partition["size"] or "the rest", partition["filesystem"] or "not mounted")
        console.print(table)
        for network in row["network"]:
            line = f"{network['name']}: {network['rate_mbit_s']:g} Mbit/s, {network['round_trip_ms']:g} ms"
            console.print(Text(f"network {line} round trip"))
        console.print()


def show_app_warnings(console: Console, results: Sequence[AppResult]) -> None:
    """Print warnings about runs, without duplicates."""
    for text in dict.fromkeys(text for result in results for text in result.warnings):
        console.print(Text(f"warning: {text}", "yellow"), soft_wrap=True)


def _host_line(result: AppResult) -> str:
    """Return the host, the seed and the preconditioning of a run."""
    app = result.app
    return f"host {app.host} ({app.era}), seed {app.seed}, earlier data on the device: {result.options.precondition}"


def show_run(console: Console, result: AppResult) -> None:
    """Print the result of an application run: summary, parts of the runtime, threads, requests."""
    app = result.app
    runtime = app.runtime_ns
    show_app_warnings(console, [result])
    console.print(Text(runs_answer([result]), "bold"), soft_wrap=True)
    console.print(Text(f"{_host_line(result)}; storage {result.storage_s:,.2f} s", "dim"), soft_wrap=True)
    table = framed(f"Time that the user waited for `{app.user_waits_for}`, by part", "", "", "s", "%", words=2)
    most = max(app.states.values(), default=0)
    for state, label in STATES.items():
        if nanoseconds := app.states[state]:
            table.add_row(label, Text(bar(nanoseconds, most, _BAR), "cyan"), *time_and_share(nanoseconds, runtime))
    console.print()
    console.print(table)
    if storage := storage_table(result, _PARTS):
        show_table(console, storage)
    console.print()
    _show_threads(console, app.threads)
    console.print()
    console.print(Text(f"durability: {durability_line(result)}"), soft_wrap=True)
    console.print(Text(f"requests: {requests_line(result)}"), soft_wrap=True)
    for name, counts in (app.requests.classes if app.requests else {}).items():
        groups = [(op, counts[op]) for op in ("read", "write") if counts[op]["requests"]]
        parts = [f"{group['requests']:,} {op}s, {group['bytes'] / 2**20:,.2f} MB" for op, group in groups]
        console.print(Text(f"  {name.replace('_', ' ')}: {'; '.join(parts)}", "dim"), soft_wrap=True)
    cpu = f"{app.cpu_ns / 1e9:,.2f} s on cores"
    if app.kernel_cpu_ns is not None:
        cpu += f", {app.kernel_cpu_ns / 1e9:,.2f} s of kernel threads"
    network = f"{app.network_bytes / 2**20:,.1f} MB over the network"
    console.print(Text(f"processor: {cpu}; {network}; {app.file_operations:,} file operations"), soft_wrap=True)
    total = result.device.energy.total_mj
    energy = "–, because its power is not known" if total is None else f"{total:,.1f} mJ"
    console.print(Text(f"energy of the device: {energy}"), soft_wrap=True)


def _show_threads(console: Console, threads: Sequence[ThreadResult]) -> None:
    used = [state for state in STATES if any(thread.states[state] for thread in threads)]
    table = framed("Threads, each with its own time, s", "Thread", *(STATES[state] for state in used))
    table.columns[0].no_wrap = True
    for thread in threads:
        times = (thread.states[state] for state in used)
        table.add_row(Text(thread.name), *(f"{time / 1e9:,.2f}" if time else "–" for time in times))
    console.print(table)


def show_learned(console: Console, learned: LearnedProgram, output: Path, cpu_factor: float) -> None:
    """Print the learned program and the limits of the recording."""
    counts = learned.known
    if learned.only_calls:
        names = ", ".join(learned.only_calls)
        text = f"the recording contains only these calls, and the program contains no others: {names}"
        console.print(Text(text, "yellow"), soft_wrap=True)
    print_line(
        console,
        f"{output}: {counts['file_operations']:,} file operations of {learned.threads:,} threads on {learned.files:,} "
        f"files, {counts['read_bytes'] / 2**20:,.1f} MB read, {counts['written_bytes'] / 2**20:,.1f} MB written",
        "bold",
    )
    title = f"Time of the recording ({learned.length_ns / 1e9:,.3f} s) over all threads, by part"
    table = framed(title, "", "s", "In the program", text=["In the program"])
    for label, key, in_program in (
        (
            "between calls, and in calls that do not wait",
            "work_ns",
            f"work on a core of CPU factor {cpu_factor:g} (or a wait for one)",
        ),
        ("in calls that wait for an unknown cause", "pause_ns", "pauses of the same length"),
        ("asleep: sleeps, timeouts, stops by a signal", "asleep_ns", "pauses of the same length"),
        ("waiting for other threads and processes", "awaited_ns", "waits for the same threads"),
        ("waiting for the network", "network_ns", "the network of the host"),
        ("in calls on files", "storage_ns", "the model of host and device"),
    ):
        table.add_row(label, f"{counts[key] / 1e9:,.3f}", in_program)
    console.print(table)
    _show_user_time(console, learned.user)
    unseen = (
        ("mapped_files", "files mapped into memory, whose reads and writes are not recorded"),
        ("unseen_requests", "requests of io_uring or asynchronous I/O, which are not recorded"),
        ("unknown_descriptors", "calls on files whose opening is not in the recording"),
    )
    for key, label in unseen:
        if counts[key]:
            console.print(Text(f"{counts[key]:,} {label}", "yellow"), soft_wrap=True)
    if counts["untimed_calls"]:
        text = (
            f"{counts['untimed_calls']:,} calls have no duration (strace -T): waits and calls on files are assumed "
            "to last until the next call of their thread"
        )
        console.print(Text(text, "yellow"), soft_wrap=True)
    if learned.dropped:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(learned.dropped.items()))
        console.print(Text(f"left out of the program: {kinds}"), soft_wrap=True)
    if learned.unreadable_lines:
        text = f"{learned.unreadable_lines:,} of {learned.lines:,} lines are not calls and were left out"
        console.print(Text(text, "yellow"), soft_wrap=True)
    console.print(Text(f"Next: emmclab apps run {output} --device nexus5 --host phone-2020", "dim"), soft_wrap=True)


def _show_user_time(console: Console, user: LearnedTime) -> None:
    """Print how much time is the same on every device, and how much work of other threads the program leaves out."""
    name = f"{user['thread']} ({user['runs']})" if user["runs"] else user["thread"]
    parts = ((user["asleep_ns"], "asleep"), (user["unexplained_ns"], "in waits for unknown causes"))
    texts = [f"{ns / 1e9:,.3f} s {state}" for ns, state in parts if ns >= _LEAST_REPORTED_NS]
    if texts:
        text = f"of {user['lasted_ns'] / 1e9:,.3f} s of {name}, for which the user waits, {' and '.join(texts)}: "
        console.print(Text(f"{text}the same on every device", "yellow"), soft_wrap=True)
    if user["behind_ns"] >= _LEAST_REPORTED_NS:
        text = f"other threads work for {user['behind_ns'] / 1e9:,.3f} s after the end of {name}; "
        console.print(Text(f"{text}the program leaves this out", "yellow"), soft_wrap=True)


def show_agreement(console: Console, rows: Sequence[Agreement], preparation: Mapping[str, Any]) -> None:
    """Print a comparison of a live run with the simulated run, and what precedes the live run and is not in it."""
    console.print()
    table = framed("Live and in the model", "", "Live", "Model", "Model / live")
    for row in rows:
        digits = 2 if row["unit"] else 0
        values = (f"{value:,.{digits}f}" for value in (row["live"], row["model"]))
        label = f"{row['name']}, {row['unit']}" if row["unit"] else row["name"]
        table.add_row(label, *values, "–" if row["ratio"] is None else f"{row['ratio']:.2f}")
    console.print(table)
    megabytes = (preparation["bytes_read"] + preparation["bytes_written"]) / 2**20
    requests = f"{preparation['read']:,} reads and {preparation['write']:,} writes, {megabytes:,.1f} MB"
    for text in (
        f"not counted: {requests}, before the run, to make and mount the file systems and to write the first files",
        "the live runtime depends on the load of this machine: on a busy one, timers commit and write back more often",
    ):
        console.print(Text(text, "dim"), soft_wrap=True)


def show_runs(console: Console, results: Sequence[AppResult]) -> None:
    """Print a comparison of applications, devices and networks."""
    show_app_warnings(console, results)
    console.print(Text(_host_line(results[0]), "dim"), soft_wrap=True)
    for name in dict.fromkeys(result.app.program for result in results):
        runs = [result for result in results if result.app.program == name]
        console.print(Text(runs_answer(runs), "bold"), soft_wrap=True)
        console.print(table_of(runs_table(runs)))
        console.print()


def show_what_if(console: Console, result: AppResult, faster: Sequence[AppResult]) -> None:
    """Print the runtimes if a part of the storage were infinitely fast, a row for each part, largest gain first."""
    show_table(console, what_if_table(result, faster))
    best_of_kind: dict[str, AppResult] = {}
    for run in sorted(faster, key=lambda run: run.runtime_s):
        best_of_kind.setdefault(run.app.what_if[0].partition("=")[0], run)
    gains = [f"{run.app.what_if[0]} ({result.runtime_s - run.runtime_s:,.2f} s)" for run in best_of_kind.values()]
    console.print(Text(f"dominates: {', '.join(gains)}", "bold"), soft_wrap=True)


def show_comparison(console: Console, comparison: SolutionComparison) -> None:
    """Print gain, cost and risk of each solution."""
    settings = settings_of(comparison)
    if len(settings) > 1:
        console.print(table_of(all_settings_table(comparison)))
        console.print()
    for application, device, network in settings:
        console.print(Text(f"{application} on {device} over {network}", "bold"), soft_wrap=True)
        console.print(table_of(solutions_table(comparison, (application, device, network))))
        console.print()
    for row in comparison.impossible:
        where = f"{row['solution']} for {row['application']} on {row['device']} over {row['network']}"
        console.print(Text(f"{where} is not possible: {row['reason']}"), soft_wrap=True)
    if comparison.impossible:
        console.print()
    console.print(Text("Losses after a cut of power", "bold"))
    for row in comparison.solutions:
        console.print(Text.assemble((row["name"], "bold"), f": {row['about']}"), soft_wrap=True)
        console.print(Text(f"  {row['risk']}"), soft_wrap=True)
    console.print(
        Text(f"measured on {comparison.risks['device']} by {comparison.risks['command']}", "dim"), soft_wrap=True
    )
