"""`emmclab calibrate TRACE|FIO -o preset.toml`."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console

from emmclab.calibration.calibrate import calibrate as calibrate_device
from emmclab.calibration.calibrate import is_fio, refuse_probe
from emmclab.cli.command import command
from emmclab.cli.console import PresetFile, PresetName, in_a_folder, print_json, print_stderr, stderr
from emmclab.cli.options import AsJson, Reading, argument, key_values, option
from emmclab.cli.progress import Working
from emmclab.cli.simulation_options import Assume, BaseDevice, FigureHost
from emmclab.cli.tables import framed
from emmclab.core_types import Calibration
from emmclab.errors import ConfigError, EmmclabError, FormatError
from emmclab.runtime.files import write_atomically
from emmclab.simulation.device import Device

if TYPE_CHECKING:
    from emmclab.calibration.measured_figures import MeasuredFigure

#: Largest file that may be the result of a benchmark, in bytes; a larger file is a trace.
_MOST_RESULT_BYTES = 16 << 20
#: Capacity of a preset without a base, in GB.
_USUAL_GB = 32


@command(
    "emmclab calibrate trace.txt -o my-phone.toml",
    "emmclab calibrate fio.json -o card.toml --capacity-gb 64",
    "emmclab calibrate fio.txt figures.csv --base ufs31 -o phone.toml # figures at any queue depth",
)
def calibrate(
    *,
    sources: Annotated[
        list[Path],
        argument(
            "TRACE|RESULT...",
            "A trace with service times, the results of `fio --output-format=json`, or, with --base, results of "
            "benchmarks at any queue depth.",
        ),
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
    assume: Assume = None,
    fio_host: FigureHost = None,
    host_output: Annotated[
        Path | None,
        option(
            "Output file for the host of --fio-host, a TOML file, with costs of direct I/O fitted to submission "
            "latencies.",
            metavar="FILE",
            callback=in_a_folder,
        ),
    ] = None,
    as_json: AsJson = False,
    reading: Reading,
) -> None:
    """Fit a device preset to measured service times or benchmark figures, with error bars and a hold-out error.

    Figures of benchmarks with several jobs or queue depths are fitted by simulation, from the settings of --base.
    """
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
    if base is not None and (figures := _figures(sources, assume, reading)):
        if skip_packed or seed != 1:
            option = "--skip-packed" if skip_packed else "--seed"
            raise ConfigError(f"`{option}` has no effect on figures of benchmarks", field=option, hint="leave it out")
        _fit_figures(figures, base, fio_host, name, output, host_output, as_json=as_json)
        return
    if len(sources) > 1:
        raise ConfigError("only figures of benchmarks can be in several files", hint="give one trace; or give --base")
    source = sources[0]
    fio = reading.format is None and source.is_file() and is_fio(source)
    name = name or (output.stem if output is not None else "calibrated")
    if not fio:
        refuse_probe(source)
    try:
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
    except EmmclabError:
        if base is None and not fio and _is_benchmark(source):
            raise ConfigError(
                f"{source} has figures of a benchmark, which are fitted to a device",
                field="--base",
                hint="name a preset of its class, for example --base ufs22",
            ) from None
        raise
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


def _is_benchmark(source: Path) -> bool:
    """Return whether a file has figures of a benchmark."""
    from emmclab.calibration.benchmark_results import read_benchmark

    try:
        return source.is_file() and source.stat().st_size <= _MOST_RESULT_BYTES and bool(read_benchmark(source))
    except EmmclabError:
        return False


def _figures(sources: Sequence[Path], assume: str | None, reading: Reading) -> "list[MeasuredFigure]":
    """Return the figures in results of benchmarks; none if the only source is a trace."""
    from emmclab.calibration.benchmark_results import read_benchmark

    if len(sources) == 1 and (not sources[0].is_file() or sources[0].stat().st_size > _MOST_RESULT_BYTES):
        return []
    try:
        figures = read_benchmark(*sources, assume=key_values(assume, "--assume", "depth=1,jobs=1"))
    except FormatError as error:
        if len(sources) > 1:
            raise
        try:
            reading.open(sources[0]).open()
        except EmmclabError:
            raise error from None
        return []
    for condition in reading.only or ():
        key, _, value = condition.partition("=")
        names = sorted({figure.device for figure in figures})
        figures = [figure for figure in figures if key == "device" and figure.device == value]
        if not figures:
            hint = f"write --only device=NAME; the devices are: {', '.join(names)}"
            raise ConfigError(f"`{condition}` selects no figure", field="--only", hint=hint)
    return figures


def _fit_figures(
    figures: "Sequence[MeasuredFigure]",
    base: str,
    host: str | None,
    name: str | None,
    output: Path | None,
    host_output: Path | None,
    *,
    as_json: bool,
) -> None:
    """Fit a base to figures of benchmarks, write the preset, and print what the figures determine."""
    from emmclab.calibration.figure_fit import fit_figures

    name = name or (output.stem if output is not None else "calibrated")
    with Working(f"fit {base} to {len(figures)} figures"):
        fit = fit_figures(figures, Device.named(base), name=name, host=host)
    if host_output is not None:
        if not fit.host_toml:
            raise ConfigError(
                "there are no costs of a host to write",
                field="--host-output",
                hint="give the host as a TOML file (--fio-host) and figures with submission latencies (slat)",
            )
        write_atomically(host_output, fit.host_toml)
    if output is not None:
        write_atomically(output, fit.toml)
    if as_json:
        print_json(
            {
                "toml": fit.toml,
                "settings": [row._asdict() for row in fit.settings],
                "figures": [row.to_dict() for row in fit.comparisons],
                "held_out": asdict(fit.held_out),
            }
        )
        return
    if output is None:
        sys.stdout.write(fit.toml)
        return
    headings = ("Setting", "Base", "Value", "At most 1 %\nworse within")
    table = framed(f"Settings of {base} fitted to the figures", *headings, text=["Setting"])
    for row in fit.settings:
        low, high = ("any" if bound is None else f"{bound:,.3g}" for bound in (row.low, row.high))
        value = (f"{row.value:,.3g}", f"{low} to {high}") if row.is_determined else ("–", "not determined")
        table.add_row(row.setting, f"{row.base:,.3g}", *value)
    console = stderr()
    console.print(table)
    console.print(f"held-out jobs: {fit.held_out}", soft_wrap=True)
    print_stderr(f"{output}: `emmclab devices --check {output} --figures FILE` compares it with every figure")


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
