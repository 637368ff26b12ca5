"""Prints the verdicts of a power-cut study."""

from rich.console import Console
from rich.text import Text

from emmclab.cli.tables import framed
from emmclab.studies.power_cut_settings import DOCUMENTED, KEPT, LOST, RULE
from emmclab.studies.results import Results
from emmclab.studies.verdicts import NOT_JUDGED, Table, counts, headline, tables

_STYLES = {KEPT: "green", DOCUMENTED: "cyan", RULE: "yellow", LOST: "red", NOT_JUDGED: "dim"}


def show_cuts(console: Console, results: Results) -> None:
    """Print the answer, the tables, and the count of each verdict."""
    console.print(Text(headline(results), "bold"), soft_wrap=True)
    for table in tables(results):
        console.print()
        _show(console, table)
    found = ", ".join(f"{count:,} {word}" for word, count in counts(results).items())
    console.print(Text(f"\nRuns: {found}", "dim"), soft_wrap=True)


def _show(console: Console, table: Table) -> None:
    """Print a table with a row for each column of the page; workloads with the same verdict share a row."""
    shown = framed("", "ext4", "device", "layer", words=3)
    shown.add_column("verdict", no_wrap=True)
    shown.add_column("states", justify="right")
    shown.add_column("workloads")
    for column in table.columns:
        groups: dict[str, list[str]] = {}
        for name in table.rows:
            if (cell := table.cells.get((name, column))) is not None:
                groups.setdefault(cell.text, []).append(name)
        first = True
        for text, names in groups.items():
            word = table.cells[names[0], column].word
            place = (column.file_system, column.device, column.layer) if first else ("", "", "")
            states = sum(table.cells[name, column].states for name in names)
            workloads = ", ".join(name.removeprefix("sqlite-") for name in names)
            shown.add_row(*place, Text(text, _STYLES[word]), f"{states:,}", workloads)
            first = False
    console.print(shown)
