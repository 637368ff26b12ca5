"""`emmclab simulate TRACE --device DEVICE`."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from emmclab.cli.command import command
from emmclab.cli.console import in_a_folder, print_json, print_stderr, stdout
from emmclab.cli.options import AsJson, Perfetto, Reading, TraceFiles, option
from emmclab.cli.simulation_options import (
    AboveDevice,
    Capacity,
    DeviceName,
    Drain,
    Events,
    Layers,
    Replay,
    Second,
    Seeds,
    Settings,
    configured,
    end,
    layered,
    refuse_single_outputs,
    warn,
)
from emmclab.errors import ConfigError
from emmclab.simulation.device import runs_as_jobs


@command("emmclab simulate trace.txt --device nexus5 --set timing.parallelism=both")
def simulate(
    *,
    traces: TraceFiles,
    device: DeviceName = "nexus5",
    settings: Settings = [],  # noqa: B006
    capacity: Capacity = None,
    layers: Layers = [],  # noqa: B006
    second: Second = None,
    drain: Drain = False,
    replay: Replay,
    seeds: Seeds = None,
    events: Events = None,
    perfetto: Perfetto = None,
    fio_json: Annotated[
        Path | None,
        option(
            "Also write the figures of a fio job file in the form of `fio --output-format=json`.",
            advanced=True,
            callback=in_a_folder,
        ),
    ] = None,
    html: Annotated[Path | None, option("Also write the report page.", callback=in_a_folder)] = None,
    as_json: AsJson = False,
    reading: Reading,
) -> None:
    """Replay a trace, or several traces on one clock, on a simulated eMMC or UFS device.

    Exit status 3: the device stopped before the end of the trace (full or worn out).
    """
    replay.preflight()
    device_settings, layer_settings = layered(settings, layers)
    configuration = configured(device, device_settings, capacity)
    opened = [reading.open(path) for path in traces]
    if fio_json is not None and not runs_as_jobs(opened[0], replay.mode):
        problem = f"`--fio-json` needs a fio job file in closed loop, and {opened[0].name} is run as a trace"
        hint = "give a job file and leave out --mode, or use --json for the figures of a trace"
        raise ConfigError(problem, field="--fio-json", hint=hint)
    partner = None if second is None else configured(second, [])
    software: AboveDevice = {"layers": layers, "layer_settings": layer_settings, "second": partner, "drain": drain}
    if seeds is not None:
        refuse_single_outputs(
            ("--fio-json", fio_json),
            ("--events", events),
            ("--perfetto", perfetto),
            ("--html", html),
            ("--over-time", replay.over_time),
        )
        from emmclab.comparison.seed_statistics import check_random

        devices = [device for device in (configuration, partner) if device is not None]
        check_random(devices, replay.precondition_text(opened))
        replays = [dataclasses.replace(replay, seed=replay.seed + number) for number in range(seeds)]
        runs = [each.run(configuration, opened, None, **software) for each in replays]
        _show_seeds(runs, as_json)
        end(runs)
        return
    pictures = html is not None
    result = replay.run(configuration, opened, events, pictures=pictures, perfetto=perfetto, **software)
    reading.note_changed(result.trace, result.ledger)
    if perfetto is not None:
        print_stderr(f"picture: {perfetto}")
    if html is not None:
        from emmclab.pages.simulation import write_simulation_report

        write_simulation_report([result], [configuration], html, made=result.provenance)
        print_stderr(f"report: {html}")
    if fio_json is not None:
        from emmclab.runtime.files import write_atomically
        from emmclab.simulation.fio_figures import fio_json as json_of_fio

        write_atomically(fio_json, json_of_fio(result))
        print_stderr(f"figures of fio: {fio_json}")
    replay.write([result])
    if as_json:
        warn([result])
        print_json(result.to_dict())
    else:
        from emmclab.cli.show_runs import show_result

        show_result(stdout(), result)
    end([result])


def _show_seeds(runs: list[Any], as_json: bool) -> None:
    from emmclab.comparison.comparison_tables import comparison_spread
    from emmclab.comparison.seed_statistics import figures_spread

    if as_json:
        warn(runs)
        figures = {path: None if row is None else row._asdict() for path, row in figures_spread(runs).items()}
        spreads = {**comparison_spread(runs), "figures": figures}
        fields = {"spread": spreads, "runs": [run.to_dict() for run in runs]}
        print_json(fields | {"provenance": runs[0].provenance})
        return
    from emmclab.cli.show_runs import show_spread

    show_spread(stdout(), runs)
