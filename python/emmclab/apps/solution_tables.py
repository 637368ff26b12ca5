"""Tables that compare the storage solutions of a FAST 2012 paper with the plain device."""

from statistics import median

from emmclab.apps.solutions import SolutionComparison
from emmclab.runtime.document import Cells, Column, TextTable, number_cell

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
