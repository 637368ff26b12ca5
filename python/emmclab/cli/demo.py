"""`emmclab demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from emmclab.cli.console import print_json, stdout
from emmclab.cli.helping import examples
from emmclab.cli.options import AsJson
from emmclab.cli.outputs import in_a_folder
from emmclab.cli.profile import run
from emmclab.cli.show import show_compared
from emmclab.errors import EmmclabError
from emmclab.traces.reading import bundled, read


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=examples("emmclab demo --html /tmp/demo.html"))(demo)


def demo(
    html: Annotated[
        Path, typer.Option(metavar="FILE", callback=in_a_folder, help="Output file: the report page.")
    ] = Path("emmclab-demo.html"),
    as_json: AsJson = False,
) -> None:
    """Profile the traces that come with emmclab and write the report page."""
    from emmclab.pages.profiles import write_report  # Here, because charts take long to import.

    paths = bundled()
    if not paths:
        raise EmmclabError(
            "no trace came with this installation",
            hint="install emmclab again, or run `make demo` in a clone",
        )
    profiles = [run(read(path)) for path in paths]
    write_report(profiles, html)
    if as_json:
        print_json({"report": str(html.resolve()), "profiles": [profile.to_dict() for profile in profiles]})
        return
    console = stdout()
    show_compared(console, profiles)
    console.print("Next: [cyan]emmclab profile YOUR-TRACE --html report.html[/]")
    console.print(Text(f"Report: {html.resolve()}"), soft_wrap=True)
