"""`emmclab compare TRACE... --devices A,B,C --layers none,X,Y+Z`."""

import dataclasses
import itertools
from pathlib import Path
from typing import Annotated, Any

from emmclab.calibration.fit_sources import runs_note
from emmclab.cli.command import command
from emmclab.cli.console import in_a_folder, print_json, print_note, print_stderr, stdout
from emmclab.cli.name_completion import device_names, layer_names, several
from emmclab.cli.options import AsJson, Reading, TraceFiles, option
from emmclab.cli.profile import distinct
from emmclab.cli.simulation_options import (
    DEVICE_OPTION,
    AboveDevice,
    Capacity,
    Replay,
    Seeds,
    Settings,
    configured,
    end,
    layered,
    refuse_single_outputs,
    warn,
)
from emmclab.comparison.seed_statistics import check_random
from emmclab.runtime.lists import once, split_names
from emmclab.simulation.device import Provenance
from emmclab.simulation.layers import settings_of, stack, stacks
from emmclab.simulation.result import Result


@command(
    "emmclab compare trace.txt --devices iiswc15-4ps,iiswc15-hps",
    "emmclab compare live.parquet --devices emmc51-cache "
    "--layers none,journal:delta,journal:aware --set journal.log=8MB",
)
def compare(
    *,
    traces: TraceFiles,
    devices: Annotated[
        str,
        option(
            "Devices: presets or TOML files; the first is the baseline.",
            "Device",
            *DEVICE_OPTION,
            metavar="A,B,...",
            autocompletion=several(device_names),
        ),
    ] = "iiswc15-4ps,iiswc15-8ps,iiswc15-hps",
    layers: Annotated[
        str,
        option(
            "Stacks of layers above each device: `none` for no layer, or layers joined by +, the topmost first; "
            "the first stack is the baseline. --set NAME.KEY=VALUE applies to every stack with the layer.",
            "Layers",
            metavar="A,B+C,...",
            autocompletion=several(layer_names),
        ),
    ] = "none",
    settings: Settings = [],  # noqa: B006
    capacity: Capacity = None,
    replay: Replay,
    seeds: Seeds = None,
    html: Annotated[Path | None, option("Also write the report page.", callback=in_a_folder)] = None,
    as_json: AsJson = False,
    reading: Reading,
) -> None:
    """Replay each trace on several devices, under several stacks of layers, and compare the results.

    With --seeds, a device is reported as the fastest only if the difference is significant over the seeds.
    Exit status 3: a device stopped before the end of a trace (full or worn out).
    """
    if seeds is not None:
        refuse_single_outputs(("--html", html), ("--over-time", replay.over_time))
    names = split_names(devices, "device to compare", "--devices", "iiswc15-4ps,iiswc15-hps")
    chosen = stacks(split_names(layers, "stack of layers to compare", "--layers", "none,journal:delta"))
    replay.preflight()
    stacked = [name for stack_names in chosen for name in stack_names]
    device_settings, layer_settings = layered(settings, stacked)
    stack(stacked, layer_settings)
    configurations = [configured(name, device_settings, capacity) for name in names]
    replays = [dataclasses.replace(replay, seed=replay.seed + number) for number in range(seeds or 1)]
    sources = distinct([reading.open(path) for path in once(traces)])
    if seeds is not None:
        check_random(configurations, replay.precondition_text(sources))
    pictures = html is not None
    results = []
    for source in sources:
        for device, layer_stack, seed_replay in itertools.product(configurations, chosen, replays):
            software: AboveDevice = {"layers": layer_stack, "layer_settings": settings_of(layer_stack, layer_settings)}
            results.append(seed_replay.run(device, [source], pictures=pictures, **software))
        reading.note_changed(results[-1].trace, results[-1].ledger)
    # The provenance reuses the digests that the runs have computed, so the trace files are not hashed again.
    provenance = Provenance(configurations, sources).to_dict()
    if html is not None:
        from emmclab.pages.simulation import write_simulation_report

        write_simulation_report(results, configurations, html, made=provenance)
        print_stderr(f"report: {html}")
    replay.write(results)
    if as_json:
        warn(results)
        print_json([_with_gain(result, gain) for result, gain in _gains(results)])
    else:
        from emmclab.cli.show_runs import show_comparison

        show_comparison(stdout(), results)
    print_note(runs_note(results), aside=as_json)
    end(results)


def _with_gain(result: Result, gain: float) -> dict[str, Any]:
    fields = result.to_dict()
    fields["options"].setdefault("layers", [])
    fields["space"]["gain_ratio"] = gain
    return fields


def _gains(results: list[Result]) -> list[tuple[Result, float]]:
    """Return each result with its relative gain in space utilisation over the first device, 0.1 for 10 % more."""
    first: dict[str, float] = {}
    for result in results:
        first.setdefault(result.trace, result.space.space_utilisation)
    return [
        (result, result.space.space_utilisation / base - 1 if (base := first[result.trace]) else 0.0)
        for result in results
    ]
