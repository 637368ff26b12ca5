"""Tables and summary sentences of application runs, and of storage solutions, for the terminal and for HTML pages."""

from collections.abc import Sequence
from statistics import median

from emmclab.apps.closed_loop import STATES, AppResult, dominating
from emmclab.apps.solutions import SolutionComparison
from emmclab.runtime.document import Cells, Column, TextTable, change_pct, number_cell, signed


def runs_answer(runs: Sequence[AppResult]) -> str:
    """Return a sentence: one run's runtime and its largest part, or the runtimes of the fastest and slowest run."""
    fastest, slowest = (choose(runs, key=lambda run: run.runtime_s) for choose in (min, max))
    if len(runs) == 1:
        words, share = dominating(fastest)
        name = f"{fastest.app.program} on {fastest.run_name}"
        return f"{name}: {fastest.runtime_s:,.2f} s; {share:.0f} % of it is {words}"
    line = f"{fastest.app.program}: {fastest.runtime_s:,.2f} s on {fastest.run_name}"
    if fastest is slowest or not fastest.runtime_s:
        return line
    change = change_pct(fastest.runtime_s, slowest.runtime_s) or 0.0
    return f"{line}, {slowest.runtime_s:,.2f} s on {slowest.run_name} ({signed(change, 0)} %)"


def runs_table(results: Sequence[AppResult], *, is_joined: bool = False) -> TextTable:
    """Return a table with a row for each run, which contains the time in each thread state.

    `is_joined` adds a column with the application.
    """
    used = [state for state in STATES if any(run.app.states[state] for run in results)]
    names = ["Application", Column("Run", is_text=True)] if is_joined else ["Run"]
    rows: list[Cells] = [
        [
            *([run.app.program] if is_joined else []),
            run.run_name,
            number_cell(run.runtime_s, 2),
            number_cell(run.storage_s, 2),
            number_cell(run.app.file_syncs),
            number_cell(run.sync_mean_ms, 3),
            *(number_cell(run.app.states[state] / 1e9, 2) for state in used),
        ]
        for run in results
    ]
    headings = [
        *names,
        *(Column(label, "s") for label in ("Runtime", "Storage")),
        Column("Syncs of files", short="Syncs"),
        Column("Mean of a sync", "ms", "Mean\nsync"),
        *(Column(STATES[state], "s", STATES[state].replace(" ", "\n")) for state in used),
    ]
    return TextTable("Runtime, and its parts along the critical path", headings, rows, style="sortable dense")


def storage_table(result: AppResult, most: int | None = None) -> TextTable | None:
    """Return the table of the time spent waiting for parts of the storage; None if there were no such waits.

    The first `most` parts have a row each; all other parts share one row.
    """
    parts = [part for part in result.app.spent if part.wait]
    first, others = parts[:most], parts[len(parts[:most]) :]
    names = [[part.wait or "", part.class_ or "all", part.partition or "all"] for part in first]
    times = [part.ns for part in first]
    if others:
        names.append([f"{len(others)} more", "", ""])
        times.append(sum(part.ns for part in others))
    rows = [
        [*(name.replace("_", " ") for name in words[:2]), words[2], *time_and_share(time, result.app.runtime_ns)]
        for words, time in zip(names, times, strict=True)
    ]
    headings = ["Waited for", "Files", "Partition", "s", "%"]
    return TextTable("Storage, by file and partition", headings, rows, 3) if rows else None


def time_and_share(nanoseconds: int, runtime: int) -> tuple[str, str]:
    """Format a part of the runtime twice: in seconds, and as a percentage of the runtime."""
    return f"{nanoseconds / 1e9:,.3f}", f"{100 * nanoseconds / max(runtime, 1):.1f}"


def what_if_table(result: AppResult, faster: Sequence[AppResult]) -> TextTable:
    """Return a table of the runtimes if a part of the storage were infinitely fast, largest gain first."""
    rows = []
    for run in sorted(faster, key=lambda run: run.runtime_s):
        gain = result.runtime_s - run.runtime_s
        share = 100 * gain / result.runtime_s if result.runtime_s else 0.0
        rows.append([run.app.what_if[0], f"{run.runtime_s:,.2f}", signed(gain, 2), f"{share:.1f}"])
    return TextTable("With a part of the storage infinitely fast", ["Part", "Runtime, s", "Gain, s", "%"], rows)


#: Runs that are faster than the run on the plain device by at most this factor count as equally fast.
_NO_CHANGE = 1.01


def settings_of(comparison: SolutionComparison) -> list[tuple[str, str, str]]:
    """Return each tested combination of application, device and network, in order."""
    return list(dict.fromkeys((run["application"], run["device"], run["network"]) for run in comparison.runs))


def solutions_table(comparison: SolutionComparison, setting: tuple[str, str, str] | None = None) -> TextTable:
    """Return gains and costs of the storage solutions for an application, device and network; default: for all."""
    hardware = {row["name"]: row["hardware"] or "nothing" for row in comparison.solutions}
    rows: list[Cells] = []
    for run in comparison.runs:
        of_run = (run["application"], run["device"], run["network"])
        if setting not in (None, of_run):
            continue
        plain = run["plain_page_programs"]
        rows.append(
            [
                *(of_run if setting is None else ()),
                run["solution"],
                number_cell(run["runtime_s"], 2),
                number_cell(run["gain"], 2),
                number_cell(run["storage_s"], 2),
                number_cell(run["page_programs"]),
                number_cell(100 * run["page_programs"] / plain if plain else None),
                number_cell(run["block_erases"]),
                number_cell(run["second_bytes"] / 2**20 if run["second_bytes"] else None, 1),
                hardware[run["solution"]],
            ]
        )
    names = ["Application", "Device", "Network", "Solution"] if setting is None else ["Solution"]
    headings: list[str | Column] = [
        *names,
        *(Column(label, unit) for label, unit in (("Runtime", "s"), ("Gain", "times"), ("Storage", "s"))),
        "Pages programmed",
        Column("of plain", "%"),
        "Blocks erased",
        Column("To NVM", "MB"),
        Column("Buys", is_text=True),
    ]
    return TextTable("Compared with the plain device", headings, rows, len(names), "sortable")


def all_settings_table(comparison: SolutionComparison) -> TextTable:
    """Return the gain of each solution over all applications, devices and networks."""
    rows: list[Cells] = []
    for solution in comparison.solutions:
        runs = [run for run in comparison.runs if run["solution"] == solution["name"]]
        gains = [run["gain"] for run in runs if run["gain"] is not None]
        pages = [100 * run["page_programs"] / run["plain_page_programs"] for run in runs if run["plain_page_programs"]]
        rows.append(
            [
                solution["name"],
                *(number_cell(pick(gains) if gains else None, 2) for pick in (min, median, max)),
                f"{sum(gain > _NO_CHANGE for gain in gains)} of {len(runs)}",
                number_cell(median(pages) if pages else None),
            ]
        )
    gains_of = [Column(label, "times") for label in ("Gain: least", "Median", "Most")]
    headings: list[str | Column] = [
        "Solution",
        *gains_of,
        "Faster in",
        Column("Pages programmed: median of plain", "%"),
    ]
    return TextTable("Over all applications, devices and networks", headings, rows)
