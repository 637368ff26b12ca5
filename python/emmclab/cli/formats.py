"""`emmclab formats`."""

from emmclab import _core
from emmclab.cli.command import command
from emmclab.cli.console import print_json, stdout
from emmclab.cli.options import AsJson


@command("emmclab formats --json")
def formats(as_json: AsJson = False) -> None:
    """List the trace formats that can be read and written."""
    entries = _core.formats()
    if as_json:
        print_json(entries)
        return
    from rich.text import Text

    from emmclab.cli.tables import framed, show_explained

    table = framed("", "Format", "Read", "Write", "About", words=4)
    for entry in entries:
        support = ("yes" if entry[name] else "" for name in ("reads", "writes"))
        table.add_row(entry["name"], *support, Text(entry["about"]))
    show_explained(stdout(), table, [Text(f"recognised by {entry['known_by']}", "dim") for entry in entries])
