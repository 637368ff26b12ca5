"""`emmclab compare TRACE... --devices A,B,C`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from emmclab.cli.console import print_json, say, stdout
from emmclab.cli.options import AsJson, Reading, TraceFiles, with_groups
from emmclab.cli.profile import distinct
from emmclab.cli.simulation import (
    Capacity,
    Replay,
    Settings,
    configured,
    device_names,
    end,
    warn,
)
from emmclab.errors import ConfigError
from emmclab.result import Result


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Example: [cyan]emmclab compare trace.txt --devices iiswc15-4ps,iiswc15-hps --html out.html[/]"
    )(with_groups(compare))


def compare(
    *,
    traces: TraceFiles,
    devices: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="Devices: presets or TOML files; the first is the baseline.",
            autocompletion=device_names,
            rich_help_panel="Device",
        ),
    ] = "iiswc15-4ps,iiswc15-8ps,iiswc15-hps",
    settings: Settings = [],  # noqa: B006
    capacity: Capacity = None,
    replay: Replay,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the report page.")] = None,
    as_json: AsJson = False,
    reading: Reading,
) -> None:
    """Replay each trace on several devices and put the results side by side.

    Exit status 3: a device stopped before the end of a trace (full or worn out).
    """
    names = [name.strip() for name in devices.split(",") if name.strip()]
    if not names:
        raise ConfigError(
            "there is no device to compare",
            kind="config",
            field="--devices",
            hint="as `--devices iiswc15-4ps,iiswc15-hps`",
        )
    replay.preflight()
    configurations = [configured(name, settings, capacity) for name in names]
    sources = distinct([reading.open(path) for path in traces])
    pictures = html is not None
    results = [
        replay.run(device, [source], pictures=pictures) for source in sources for device in configurations
    ]
    for result in results[:: len(configurations)]:
        reading.note_changed(result["trace"], result["ledger"])
    if as_json:
        warn(results)
        print_json([_with_gain(result, gain) for result, gain in _gains(results)])
    else:
        from emmclab.cli.show_runs import show_compared_results

        show_compared_results(stdout(), results)
    if html is not None:
        from emmclab.report import write_simulation_report

        write_simulation_report(results, configurations, html)
        say(f"report: {html}")
    replay.write(results)
    end(results)


def _with_gain(result: Result, gain: float) -> dict[str, Any]:
    fields = result.to_dict()
    fields["space"]["gain_ratio"] = gain
    return fields


def _gains(results: list[Result]) -> list[tuple[Result, float]]:
    """Put to each result how much better it uses its space than the first device, as a ratio - 1."""
    first: dict[str, float] = {}
    for result in results:
        first.setdefault(result["trace"], result["space.space_utilisation"])
    return [
        (result, result["space.space_utilisation"] / base - 1 if (base := first[result["trace"]]) else 0.0)
        for result in results
    ]
