"""`emmclab devices`."""

import tomllib
from collections.abc import Sequence
from dataclasses import asdict, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

from rich.table import Table
from rich.text import Text

from emmclab.cli.command import command
from emmclab.cli.console import print_json, stdout
from emmclab.cli.name_completion import device_names
from emmclab.cli.options import AsJson, key_values, option
from emmclab.cli.progress import Counter, Working
from emmclab.cli.simulation_options import Assume, Capacity, FigureHost
from emmclab.cli.tables import framed, print_line, show_table
from emmclab.core_types import DeviceCapabilities, FittedFigure
from emmclab.errors import ConfigError
from emmclab.runtime.document import signed
from emmclab.simulation.device import Device, presets, setup_of

if TYPE_CHECKING:
    from emmclab.calibration.measured_figures import FigureComparison, MeasuredFigure


@command(
    "emmclab devices",
    "emmclab explain nexus5 # prints every setting of a device",
    "emmclab devices --capacity 128GB # each device scaled to this capacity",
    "emmclab devices --check emmc51-cache # compares it with the published figures that it was fitted to",
    "emmclab devices --check ufs22 --figures mine.csv # compares it with figures that you measured",
)
def devices(
    check: Annotated[
        str | None,
        option(
            "Print how far this device is from the published figures that it was fitted to, and from figures that were "
            "measured on real devices.",
            metavar="NAME",
            autocompletion=device_names,
        ),
    ] = None,
    figures: Annotated[
        list[Path],
        option(
            "Compare the device with the figures in this file instead of the included ones: the output of fio or of "
            "another benchmark, or a CSV table with rw, bs_kb, jobs, depth, and metrics such as iops.",
            metavar="FILE",
        ),
    ] = [],  # noqa: B006
    assume: Assume = None,
    fio_host: FigureHost = None,
    capacity: Capacity = None,
    as_json: AsJson = False,
) -> None:
    """List the included simulated devices, also scaled to another capacity."""
    if check is not None:
        if capacity is not None:
            raise ConfigError(
                "`--capacity` cannot be used with `--check`", field="--capacity", hint="leave out --capacity"
            )
        _check(check, _figures(check, figures, assume, fio_host), as_json)
        return
    rows = [_row(name, capacity) for name in presets()]
    if as_json:
        print_json(rows)
        return
    headings = ("Name", "Flash\nGB", "Capacity\nGB", "Pages\nKB", "Planes", "Description")
    table = framed("Devices", *headings, text=["Description"])
    for row in rows:
        pages = " + ".join(f"{size:g}" for size in row["page_kb"])
        table.add_row(
            row["name"], _gb(row["flash_gb"]), _gb(row["capacity_gb"]), pages, str(row["planes"]), Text(row["about"])
        )
    console = stdout()
    console.print(table)
    note = "Planes are counted for the whole device; timing.parallelism sets which work at the same time."
    console.print(note, markup=False, soft_wrap=True, style="dim")


def _figures(name: str, tables: Sequence[Path], assume: str | None, fio_host: str | None) -> "list[MeasuredFigure]":
    """Return the measured figures with which a device is compared: those of the tables, or the included ones."""
    from emmclab.calibration.benchmark_results import read_benchmark
    from emmclab.calibration.measured_figures import measured_devices

    values = key_values(assume, "--assume", "depth=1,jobs=1")
    if tables:
        found = [replace(figure, preset=name) for figure in read_benchmark(*tables, assume=values)]
    else:
        found = [figure for figure in measured_devices() if figure.preset == name]
    if fio_host not in (None, "none"):
        setup_of(fio_host)
    return [figure.on_host(fio_host) for figure in found]


def _check(name: str, figures: "Sequence[MeasuredFigure]", as_json: bool) -> None:
    """Compare a device with the figures that it was fitted to and with measured ones, and print them."""
    from emmclab.calibration.measured_figures import FigureSummary, compare_figures

    device = Device.named(name)
    rows: list[FittedFigure] = []
    with Working(f"checking {name}"):
        try:
            rows = device.fitted_figures()
        except ConfigError as error:
            if not figures:
                hint = f"{error.hint}; or give measured figures: --figures FILE"
                raise ConfigError(str(error), field=error.field, hint=hint) from None
    with Counter(f"measuring {name}", "jobs") as meter:
        comparisons = compare_figures(figures, lambda _: device, progress=lambda done, total: meter(done, total, 0))
    if as_json:
        summary = asdict(FigureSummary.of(comparisons))
        print_json({"fitted_to": rows, "measured": [row.to_dict() for row in comparisons], "summary": summary})
        return
    if rows:
        _show_fitted(name, rows)
    if rows and comparisons:
        stdout().print()
    if comparisons:
        _show_measured(name, comparisons)


def _show_measured(name: str, comparisons: "Sequence[FigureComparison]") -> None:
    """Print the measured figures of real devices beside those of a simulated one."""
    from emmclab.calibration import measured_figures_text as texts
    from emmclab.calibration.measured_figures import FigureSummary

    console = stdout()
    print_line(console, f"{name} and real devices: {FigureSummary.of(comparisons)}", "bold")
    names = dict.fromkeys(row.figure.device for row in comparisons)
    if len(names) > 1:
        print_line(console, f"the figures are of {len(names)} devices, each of which is compared with {name}")
        if any(row.is_test for row in comparisons):
            show_table(console, texts.summary_table(comparisons, "Device"))
    for table in texts.figure_tables(comparisons):
        show_table(console, table)
    if left_out := texts.not_compared_table(comparisons):
        show_table(console, left_out)


def _show_fitted(name: str, rows: Sequence[FittedFigure]) -> None:
    """Print the figures to which a device was fitted beside its own."""
    console = stdout()
    console.print(Text(f"{name}: {_within(rows)}", "bold"), soft_wrap=True)
    console.print()
    for source in dict.fromkeys(row.source for row in rows):
        console.print(_check_table(f"{name} and what it was fitted to: {source}", rows, source))
        console.print()
    console.print(
        "agreement with fitted figures is no evidence; the device file states the reason for each deviation",
        style="dim",
    )


def _within(rows: Sequence[FittedFigure]) -> str:
    """Return how many figures are within their bounds, and list the other figures, largest deviation first."""
    outside = [row for row in rows if not row.least <= row.here <= (inf if row.most is None else row.most)]
    line = f"{len(rows) - len(outside)} of {len(rows)} figures are within their bounds"
    if not outside:
        return line
    outside.sort(key=lambda row: -abs(row.deviation_pct))
    others = (f"{row.figure} ({signed(row.deviation_pct)} %)" for row in outside)
    return f"{line}; not: {', '.join(others)}"


def _check_table(title: str, rows: Sequence[FittedFigure], source: str) -> Table:
    """Return the table of the fitted figures of a device that come from one source."""
    table = framed(title, "Figure", "Unit", "Published", "Bounds", "Here", "Deviation\n%", words=2)
    for row in rows:
        if row.source == source:
            table.add_row(
                Text(row.figure),
                row.unit,
                _figure(row.published),
                f"{_figure(row.least)} – {_figure(row.most)}" if row.most is not None else f"from {_figure(row.least)}",
                _figure(row.here),
                signed(row.deviation_pct),
            )
    return table


def _figure(value: float) -> str:
    """Format a figure or one of its bounds; small values need more decimals."""
    return f"{value:,.2f}" if value >= 0.1 else f"{value:,.3f}"


def _gb(amount: float | None) -> str:
    """Format a size in GB, with enough decimals that a small size is not shown as 0."""
    return "–" if amount is None else f"{amount:,.1f}" if amount >= 0.1 else f"{amount:.2g}"


class _Preset(TypedDict):
    """A device preset and its sizes, which are None if it cannot be scaled to the requested capacity."""

    name: str
    about: str
    capabilities: DeviceCapabilities
    planes: int
    page_kb: list[int]
    flash_gb: float | None
    capacity_gb: float | None


def _row(name: str, capacity: str | None) -> _Preset:
    """Describe a preset, scaled to a capacity if one is given."""
    device, possible = Device.preset(name), True
    if capacity is not None:
        try:
            device = device.with_capacity(capacity)
        except ConfigError as error:
            if error.field != "capacity":
                raise
            possible = False
    settings = tomllib.loads(device.to_toml())
    geometry = settings["geometry"]
    planes = 1
    for part in ("channels", "chips_per_channel", "dies_per_chip", "planes_per_die"):
        planes *= geometry[part]
    groups = geometry["block_groups"]
    plane_kb = sum(group["page_kb"] * group["blocks"] * group["pages_per_block"] for group in groups)
    return {
        "name": device.name,
        "about": settings["about"],
        "capabilities": device.capabilities.values_,
        "planes": planes,
        "page_kb": [group["page_kb"] for group in groups],
        "flash_gb": planes * plane_kb / 2**20 if possible else None,
        "capacity_gb": device.capacity_bytes / 2**30 if possible else None,
    }
