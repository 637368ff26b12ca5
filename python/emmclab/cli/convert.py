"""`emmclab convert IN OUT`."""

from __future__ import annotations

import contextlib

import typer

from emmclab.cli.console import print_json, say
from emmclab.cli.helping import examples
from emmclab.cli.meter import Meter
from emmclab.cli.options import AsJson, Reading, TraceFile, with_groups
from emmclab.cli.outputs import To, TraceOutput, note_picture, report, to_stdout
from emmclab.errors import ConfigError
from emmclab.traces.ledger import ledger_line


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "emmclab convert log106_Messaging.txt messaging.parquet",
            "emmclab convert trace.dat trace.csv.zst",
            "emmclab convert trace.dat - --to csv | head",
            "emmclab convert trace.parquet picture.pftrace # for ui.perfetto.dev",
        )
    )(with_groups(convert))


def convert(
    *,
    trace: TraceFile,
    output: TraceOutput,
    to: To = None,
    reading: Reading,
    as_json: AsJson = False,
) -> None:
    """Write a trace in another format. The output file appears only when it is complete."""
    to_stdout(output, as_json)
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
        report(output, f"{output}: {ledger_line(written.ledger)}")
    note_picture(output, to)
    if written.left_out:
        _note(f"{written.left_out:,} requests were left out: the format cannot store their operation")
    if written.lost:
        values = ", ".join(f"{column} of {count:,} requests" for column, count in written.lost.items())
        _note(f"the format cannot store {values}")


def _note(text: str) -> None:
    say(f"note: {text}")
