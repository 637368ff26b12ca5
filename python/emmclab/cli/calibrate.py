"""`emmclab calibrate TRACE|FIO -o preset.toml`."""

import sys
from pathlib import Path
from typing import Annotated

from rich.console import Console

from emmclab.calibration.calibrate import calibrate as calibrate_device
from emmclab.calibration.calibrate import is_fio, refuse_probe
from emmclab.cli.command import command
from emmclab.cli.console import print_json, print_stderr, stderr
from emmclab.cli.declared_options import argument, option
from emmclab.cli.options import AsJson, Reading
from emmclab.cli.output_files import PresetFile, PresetName
from emmclab.cli.progress import Working
from emmclab.cli.simulation_options import BaseDevice
from emmclab.cli.tables import framed
from emmclab.core_types import Calibration
from emmclab.errors import ConfigError
from emmclab.runtime.files import write_atomically
from emmclab.simulation.device import Device

#: Capacity of a preset without a base, in GB.
_USUAL_GB = 32


@command("emmclab calibrate trace.txt -o my-phone.toml", "emmclab calibrate fio.json -o card.toml --capacity-gb 64")
def calibrate(
    *,
    source: Annotated[
        Path, argument("TRACE|FIO", "A trace with service times, or the results of `fio --output-format=json`.")
    ],
    output: PresetFile = None,
    name: PresetName = None,
    capacity_gb: Annotated[int, option("Capacity that the host sees, 1 to 1024 GB.", metavar="GB")] = _USUAL_GB,
    seed: Annotated[int, option("Seed; the same seed results in the same preset.", min=0)] = 1,
    skip_packed: Annotated[
        bool,
        option(
            "Leave packed commands out of the fit: if a device programs their entries one by one, a fit to all "
            "requests is an average of both kinds."
        ),
    ] = False,
    base: BaseDevice = None,
    as_json: AsJson = False,
    reading: Reading,
) -> None:
    """Fit a device preset to measured service times, with error bars and a hold-out error."""
    if not 1 <= capacity_gb <= 1024:
        raise ConfigError(
            f"a capacity of {capacity_gb} GB is impossible", field="--capacity-gb", hint="the range is 1 to 1,024 GB"
        )
    if base is not None and capacity_gb != _USUAL_GB:
        raise ConfigError(
            f"--capacity-gb {capacity_gb} contradicts --base {base}, whose capacity the preset has",
            field="--capacity-gb",
            hint="leave it out, or give a base of that capacity",
        )
    name = name or (output.stem if output is not None else "calibrated")
    fio = reading.format is None and source.is_file() and is_fio(source)
    if not fio:
        refuse_probe(source)
    trace = None if fio else reading.open(source)
    with Working(f"calibrate on {source}"):
        fitted = calibrate_device(
            trace or source,
            name=name,
            capacity_gb=capacity_gb,
            seed=seed,
            skip_packed=skip_packed,
            base=None if base is None else Device.named(base),
        )
    if trace is not None and reading.changes and not trace.is_pipe:
        reading.note_changed(trace.name, trace.ledger)
    if output is not None:
        write_atomically(output, fitted.toml)
    if as_json:
        print_json(fitted)
        return
    if output is None:
        sys.stdout.write(fitted.toml)
        return
    _show(stderr(), fitted)
    line = f"{output}: `emmclab simulate TRACE --device {output}` simulates this device"
    print_stderr(line)


def _show(console: Console, fitted: Calibration) -> None:
    pages = " + ".join(str(kb) for kb in fitted.page_kb)
    title = f"Pages of {pages} KB, {fitted.units}-way"
    table = framed(title, "Figure", "Value", "90 % range", "Unit", text=["Unit"])
    for figure in fitted.figures:
        if figure.value is None:
            table.add_row(figure.name, "–", "not measured", figure.unit)
            continue
        span = f"{figure.low:,.1f} to {figure.high:,.1f}"
        table.add_row(figure.name, f"{figure.value:,.1f}", span, figure.unit)
    console.print(table)
    for row in fitted.durability:
        price = f"see {row.setting}" if row.setting else "not fitted"
        console.print(
            f"{row.kind}: {row.requests:,} requests, {row.median_us:,.0f} us in the median; {price}", soft_wrap=True
        )
    for stall in fitted.stalls:
        console.print(
            f"stalls: {stall.stalls:,} of {stall.requests:,} {stall.op}s took at least twice their time, "
            f"{stall.median_us:,.0f} us more in the median; see controller.{stall.op}_stalls",
            soft_wrap=True,
        )
    for stage in fitted.stages:
        console.print(
            f"stage of sleep: {stage.requests:,} requests left it, {stage.median_us:,.0f} us in the median; it begins "
            f"between idle gaps of {stage.longest_before_us:,.0f} and {stage.shortest_after_us:,.0f} us",
            soft_wrap=True,
        )
    if fitted.queue_depth > 1 and fitted.overlapping:
        console.print(
            f"queue of {fitted.queue_depth}: {fitted.overlapping:,} requests began while others were "
            "served; see controller.queue_depth",
            soft_wrap=True,
        )
    for warning in fitted.warnings:
        console.print(f"warning: {warning}", soft_wrap=True, markup=False)
    console.print(
        f"held-out half: median error {fitted.held_out_request_error_pct:.1f} % by request, "
        f"{fitted.held_out_median_error_pct:.1f} % by size; "
        f"{fitted.held_out_within_10_pct:.1f} % of its requests are of sizes with at most 10 % error",
        soft_wrap=True,
    )
