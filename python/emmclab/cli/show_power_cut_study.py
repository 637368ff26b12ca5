"""Prints the verdicts of a power-cut study."""

from rich.console import Console
from rich.text import Text

from emmclab.cli.tables import framed
from emmclab.studies.power_cut_settings import DOCUMENTED, KEPT, LOST, RULE
from emmclab.studies.results import Results
from emmclab.studies.verdicts import NOT_JUDGED, Table, counts, headline, tables

_STYLES = {KEPT: "green", DOCUMENTED: "cyan", RULE: "yellow", LOST: "red", NOT_JUDGED: "dim"}


def show_cuts(console: Console, results: Results) -> None:
    """Print the summary sentence, the tables, and how often each verdict occurs."""
    console.print(Text(headline(results), "bold"), soft_wrap=True)
    for table in tables(results):
        console.print()
        _show(console, table)
    text = ", ".join(f"{count:,} {word}" for word, count in counts(results).items())
    console.print(Text(f"\nRuns: {text}", "dim"), soft_wrap=True)


def _show(console: Console, table: Table) -> None:
    """Print a table of verdicts by file system, device and layer; workloads with the same verdict share a row."""
    terminal_table = framed("", "ext4", "device", "layer", words=3)
    terminal_table.add_column("verdict", no_wrap=True)
    terminal_table.add_column("states", justify="right")
    terminal_table.add_column("workloads")
    for column in table.columns:
        groups: dict[str, list[str]] = {}
        for name in table.rows:
            if (cell := table.cells.get((name, column))) is not None:
                groups.setdefault(cell.text, []).append(name)
        first = True
        for text, names in groups.items():
            word = table.cells[names[0], column].word
            setting = (column.file_system, column.device, column.layer) if first else ("", "", "")
            states = sum(table.cells[name, column].states for name in names)
            workloads = ", ".join(name.removeprefix("sqlite-") for name in names)
            terminal_table.add_row(*setting, Text(text, _STYLES[word]), f"{states:,}", workloads)
            first = False
    console.print(terminal_table)
