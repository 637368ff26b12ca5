"""`emmclab convert IN OUT`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from emmclab import _core
from emmclab.cli.console import print_json, say, stdout
from emmclab.cli.meter import Meter
from emmclab.cli.options import AsJson, Reading, TraceFile, with_groups
from emmclab.errors import ConfigError
from emmclab.profile import ledger_line


def _writable_formats(incomplete: str) -> list[str]:
    return [
        entry["name"] for entry in _core.formats() if entry["writes"] and entry["name"].startswith(incomplete)
    ]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: [cyan]emmclab convert log106_Messaging.txt messaging.parquet[/]")(
        with_groups(convert)
    )


def convert(
    *,
    trace: TraceFile,
    output: Annotated[
        Path, typer.Argument(metavar="OUT", help="The file to write; its ending selects the format.")
    ],
    to: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Write this format, whatever the ending.", autocompletion=_writable_formats
        ),
    ] = None,
    reading: Reading,
    as_json: AsJson = False,
) -> None:
    """Write a trace in another format. The output file appears only when it is complete."""
    with contextlib.suppress(FileNotFoundError):
        if output.samefile(trace):
            raise ConfigError(
                f"{output} is the input itself",
                kind="config",
                file=str(output),
                hint="name another output file",
            )
    source = reading.open(trace)
    with Meter(f"convert {source.name}") as meter:
        written = source.write(output, to, meter)
    reading.note_changed(source.name, written.ledger)
    if as_json:
        header = {name: text for name, text in source.header.items() if name != "clock_jumps"}
        place = {"input": str(trace), "output": str(output), "header": header}
        print_json(place | {"clock_jumps": source.clock_jumps} | written._asdict())
    else:
        stdout().print(f"{output}: {ledger_line(written.ledger)}", markup=False, soft_wrap=True)
    if written.left_out:
        _note(f"{written.left_out:,} requests were left out: the format cannot store their operation")
    if written.lost:
        values = ", ".join(f"{column} of {count:,} requests" for column, count in written.lost.items())
        _note(f"the format cannot store {values}")


def _note(text: str) -> None:
    say(f"note: {text}")
