"""`emmclab simulate TRACE --device DEVICE`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emmclab.cli.console import print_json, say, stdout
from emmclab.cli.options import AsJson, Reading, TraceFiles, with_groups
from emmclab.cli.simulation import (
    DeviceName,
    Drain,
    Layers,
    Replay,
    Second,
    Settings,
    configured,
    layered,
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Example: [cyan]emmclab simulate trace.txt --device nexus5 --set timing.parallelism=both[/]"
    )(with_groups(simulate))


def simulate(
    *,
    traces: TraceFiles,
    device: DeviceName = "nexus5",
    settings: Settings = [],  # noqa: B006
    layers: Layers = [],  # noqa: B006
    second: Second = None,
    drain: Drain = False,
    replay: Replay,
    events: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Output file: one row per request (times, waits by cause), as Parquet."
        ),
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the report page.")] = None,
    as_json: AsJson = False,
    reading: Reading,
) -> None:
    """Replay traces (several: together, on one clock) on a simulated eMMC device."""
    own, layer_settings = layered(settings, layers)
    configuration = configured(device, own)
    opened = [reading.open(path) for path in traces]
    beside = None if second is None else configured(second, [])
    software = {"layers": layers, "layer_settings": layer_settings, "second": beside, "drain": drain}
    result = replay.run(configuration, opened, events, **software)
    reading.note_changed(result["trace"], result["ledger"])
    if as_json:
        print_json(result.to_dict())
    else:
        from emmclab.cli.show_runs import show_result

        show_result(stdout(), result)
    if html is not None:
        from emmclab.report import write_simulation_report

        write_simulation_report([result], [configuration], html)
        say(f"report: {html}")
