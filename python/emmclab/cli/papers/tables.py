"""`emmclab papers tables`."""

from rich.table import Table
from rich.text import Text

from emmclab.cli.command import command
from emmclab.cli.console import print_json, stdout
from emmclab.cli.options import AsJson
from emmclab.cli.show_profile import as_printed
from emmclab.cli.tables import framed
from emmclab.traces.profile_fields import TABLES
from emmclab.traces.published import Inconsistency, doubts, published


@command("emmclab papers tables --json")
def tables(as_json: AsJson = False) -> None:
    """Print Tables III and IV of IISWC 2015; figures that contradict others are marked."""
    printed = published()
    if as_json:
        print_json(printed)
        return
    console = stdout()
    for title, fields in TABLES:
        marked = [any(doubts(row, field.name) for row in printed["rows"]) for field in fields]
        headings = ("\n".join([*field.label.split(), field.unit]).rstrip() for field in fields)
        table = framed(f"{title} (Zhou et al., IISWC 2015)", "Application", *headings)
        for row in printed["rows"]:
            cells = [
                as_printed(field, row[field.name]) + ("*" if doubts(row, field.name) else " " * has_marks)
                for field, has_marks in zip(fields, marked, strict=True)
            ]
            table.add_row(Text(row["name"]), *map(Text, cells))
        console.print(table)
        console.print()
    console.print(_inconsistencies(printed["inconsistencies"]))


def _inconsistencies(entries: list[Inconsistency]) -> Table:
    table = framed(
        f"* {len(entries)} figures that contradict other figures of the paper", "Application", "Reason", words=2
    )
    last = None
    for entry in entries:
        table.add_row(Text("" if entry["name"] == last else entry["name"]), Text(entry["explanation"]))
        last = entry["name"]
    return table
