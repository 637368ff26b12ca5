"""`emmclab simulate TRACE --device DEVICE`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emmclab.cli.console import print_json, stderr, stdout
from emmclab.cli.options import AsJson, Columns, Format, Lenient, Reading, SizeUnit, TimeUnit, TraceFiles
from emmclab.cli.simulation import (
    Check,
    Fold,
    Images,
    Layers,
    Mode,
    Passes,
    Precondition,
    Rate,
    Replay,
    Second,
    Seed,
    Settings,
    configured,
    device_names,
    layered,
    show_result,
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Example: [cyan]emmclab simulate trace.txt --device nexus5 --set timing.parallelism=both[/]"
    )(simulate)


def simulate(
    traces: TraceFiles,
    device: Annotated[
        str,
        typer.Option(
            metavar="PRESET|FILE",
            help="The device: a preset (`emmclab devices`) or a TOML file.",
            autocompletion=device_names,
            rich_help_panel="Device",
        ),
    ] = "nexus5",
    settings: Settings = [],  # noqa: B006
    mode: Mode = "open",
    precondition: Precondition = "none",
    rate: Rate = 1.0,
    passes: Passes = 1,
    fold: Fold = False,
    seed: Seed = 1,
    check: Check = False,
    images: Images = None,
    layers: Layers = [],  # noqa: B006
    second: Second = None,
    events: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write one row per request (times, waits by cause) to this Parquet file."
        ),
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the report page.")] = None,
    as_json: AsJson = False,
    format: Format = None,
    lenient: Lenient = False,
    columns: Columns = None,
    time_unit: TimeUnit = None,
    size_unit: SizeUnit = None,
) -> None:
    """Replay traces (several: at once, on one clock) on a simulated eMMC device."""
    own, layer_settings = layered(settings, layers)
    configuration = configured(device, own)
    reading = Reading(format, lenient, columns, time_unit, size_unit)
    replay = Replay(
        mode, precondition, rate, passes, fold, seed, check, images, layers, layer_settings, second
    )
    result = replay.run(configuration, [reading.open(path) for path in traces], events)
    if as_json:
        print_json(result.to_dict())
    else:
        show_result(stdout(), result)
    if html is not None:
        from emmclab.report import write_simulation_report

        write_simulation_report([result], [configuration], html)
        stderr().print(f"report: {html}", markup=False, soft_wrap=True)
