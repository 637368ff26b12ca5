"""Two profiles compared field by field on the terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from emmclab.cli.show_profile import framed
from emmclab.traces.profile import FieldDifference, Profile
from emmclab.traces.profile_fields import TABLES
from emmclab.traces.workload import difference_text


def show_differences(console: Console, profiles: Sequence[Profile], rows: Sequence[FieldDifference]) -> None:
    """Print the fields of Tables III and IV of two profiles, with their differences."""
    fields = {field.name: field for _, fields in TABLES for field in fields}
    table = framed("Profiles compared", "")
    for heading in (*(profile.name for profile in profiles), "Difference"):
        table.add_column(Text(heading), justify="right")
    for row in rows:
        field = fields[row["field"]]
        table.add_row(field.heading, field.text(row["first"]), field.text(row["second"]), difference_text(row))
    console.print(table)
