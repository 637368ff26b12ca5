"""`emmclab compare-profiles A B`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from emmclab.cli.console import print_json, say, stdout
from emmclab.cli.helping import examples
from emmclab.cli.options import AsJson, Reading, with_groups
from emmclab.cli.profile import run
from emmclab.cli.show import framed
from emmclab.traces.profile_fields import TABLES
from emmclab.traces.workload import difference_text, differences, jump_notes, open_input

_HELP = "A trace, a workload of the paper by name, or a model (.toml)."
_First = Annotated[str, typer.Argument(metavar="FIRST", help=_HELP)]
_Second = Annotated[str, typer.Argument(metavar="SECOND", help=_HELP)]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compare-profiles", epilog=examples("emmclab compare-profiles trace.txt Messaging"))(
        with_groups(compare_profiles)
    )


def compare_profiles(
    *,
    first: _First,
    second: _Second,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of synthetic traces.")] = 1,
    reading: Reading,
    as_json: AsJson = False,
) -> None:
    """Compare Tables III and IV of two traces; differences in percent of the first, of shares in points.

    Duration and rates are compared without clock jumps where there are some. Options of reading are those of
    recorded traces.
    """
    profiles = [run(open_input(name, seed, **reading.given())) for name in (first, second)]
    for found in profiles:
        if found["header"]["format"] != "synthetic":
            reading.note_changed(found.name, found["ledger"])
    rows, notes = differences(*profiles), jump_notes(profiles)
    for text in notes:
        say(f"warning: {text}")
    if as_json:
        names = {"first": profiles[0].name, "second": profiles[1].name}
        print_json(names | {"fields": rows, "warnings": notes})
        return
    fields = {field.name: field for _, fields in TABLES for field in fields}
    table = framed("Profiles compared")
    table.add_column("")
    for heading in (profiles[0].name, profiles[1].name, "Difference"):
        table.add_column(Text(heading), justify="right")
    for row in rows:
        field = fields[row["field"]]
        table.add_row(
            field.heading,
            field.text(row["first"]),
            field.text(row["second"]),
            difference_text(row),
        )
    stdout().print(table)
