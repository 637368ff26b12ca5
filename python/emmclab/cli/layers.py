"""`emmclab layers`."""

import json

from rich.text import Text

from emmclab.cli.command import command
from emmclab.cli.console import print_json, stdout
from emmclab.cli.options import AsJson
from emmclab.cli.tables import framed, show_explained
from emmclab.simulation.layers import layers as kinds


@command("emmclab layers", "emmclab simulate trace.txt --layer advil --set advil.reserved=64MiB")
def layers(as_json: AsJson = False) -> None:
    """List the layers (host software above a device) with their settings."""
    rows = kinds()
    if as_json:
        print_json(rows)
        return
    console = stdout()
    for row in rows:
        table = framed(f"{row['name']}: {row['about']}", "Setting", "Default", "Unit", words=3)
        for setting in row["settings"]:
            table.add_row(f"{row['name']}.{setting['name']}", default_text(setting["default"]), setting["unit"])
        show_explained(console, table, [Text(setting["about"], "dim") for setting in row["settings"]])
        console.print()


def default_text(value: str | float | bool | None) -> str:
    """Format a default as the value of a setting; a default of None is computed from other settings."""
    if value is None:
        return "derived"
    return value if isinstance(value, str) else json.dumps(value)
