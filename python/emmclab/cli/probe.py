"""`emmclab probe DEVICE|/dev/X|FILE`."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from emmclab.cli.command import command
from emmclab.cli.console import in_a_folder, json_text, output_option, print_json, stderr, stdout
from emmclab.cli.name_completion import device_names
from emmclab.cli.options import AsJson, argument, option
from emmclab.cli.progress import Meter
from emmclab.cli.simulation_options import Capacity, Settings, configured, names_a_disk
from emmclab.cli.tables import framed
from emmclab.errors import ConfigError
from emmclab.real_devices.probe import Disk, Probe, Simulated
from emmclab.real_devices.probe import probe as measure
from emmclab.runtime.files import write_atomically

#: Default size of the probed region, MB: of a simulated device (`_SIMULATED_MB`), and of a real device (`_REAL_MB`).
_SIMULATED_MB = 1024
_REAL_MB = 256


@command(
    "emmclab probe galaxys2",
    "emmclab probe /dev/mmcblk0",
    "emmclab probe scratch.bin --write --html probe.html -o probe.json",
)
def probe(
    target: Annotated[
        str,
        argument(
            "DEVICE|/dev/X|FILE",
            "A simulated device (preset or TOML file), a block device, or a file.",
            autocompletion=device_names,
        ),
    ],
    settings: Settings = [],  # noqa: B006 (typer needs it as the default of a repeated option)
    capacity: Capacity = None,
    write: Annotated[
        bool,
        option(
            "Also measure writes; this destroys the data in the first part of a real target. "
            "Simulated targets are always written."
        ),
    ] = False,
    yes: Annotated[bool, option("Do not ask before a real target is overwritten.")] = False,
    span_mb: Annotated[
        int | None,
        option(
            f"Size of the part to use, MB; default: {_SIMULATED_MB} for a simulated target, {_REAL_MB} for a "
            "real target, or the whole target if smaller.",
            metavar="MB",
        ),
    ] = None,
    seed: Annotated[int, option("Seed of the random orders.", min=0)] = 1,
    html: Annotated[Path | None, option("Also write a page with the curves.", callback=in_a_folder)] = None,
    output: Annotated[Path | None, output_option("Also write the result as JSON, as `--json` prints it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Infer clustered page and clustered block of a device from its bandwidth (Kim et al., MASCOTS 2009).

    Without `--write`, real devices are only read. Reads may be sufficient for the clustered page; the clustered
    block needs writes.
    """
    path = Path(target)
    if not names_a_disk(target):
        result = _run(Simulated(configured(target, settings, capacity)), True, span_mb, _SIMULATED_MB, seed)
    else:
        if settings:
            raise ConfigError("the settings of a real device cannot be changed", field="--set", hint="leave --set out")
        if write and not yes:
            confirm_overwriting(str(path))
        with Disk(path, write=write) as disk:
            result = _run(disk, write, span_mb, _REAL_MB, seed)
    if html is not None:
        from emmclab.pages.probe import render

        write_atomically(html, render(result))
    if output is not None:
        write_atomically(output, json_text(result.to_dict()) + "\n")
    if as_json:
        print_json(result.to_dict())
    else:
        _show(result)


def _run(target: Disk | Simulated, write: bool, span_mb: int | None, default_mb: int, seed: int) -> Probe:
    span_kb = min(default_mb * 1024, target.size_kb) if span_mb is None else span_mb * 1024
    with Meter(f"probe {target.name}") as meter:
        return measure(target, write=write, span_kb=span_kb, seed=seed, progress=meter)


def confirm_overwriting(path: str) -> None:
    """Ask for confirmation before data is destroyed."""
    if not sys.stdin.isatty():
        raise ConfigError(
            f"--write destroys the data on {path}", field="--write", hint="give --yes, since stdin is not a terminal"
        )
    stderr().print(f"This destroys data on {path}.", style="bold red", markup=False)
    if not typer.confirm("Overwrite it?", err=True):
        raise typer.Exit(1)


def _show(result: Probe) -> None:
    columns = list(dict.fromkeys((point.op, point.order) for point in result.points))
    headings = ["Size\nKB", *(f"{order}\n{op}" for op, order in columns)]
    table = framed(f"Bandwidth of {result.target}, MB/s", *headings, words=0)
    speeds = {(point.op, point.order, point.size_kb): point.mb_per_s for point in result.points}
    for size_kb in dict.fromkeys(point.size_kb for point in result.points):
        table.add_row(f"{size_kb:,}", *(f"{speeds[op, order, size_kb]:,.2f}" for op, order in columns))
    console = stdout()
    console.print(table)
    for finding in result.findings:
        console.print(Text(finding))
    console.print(
        Text(f"{result.span_mb:,} MB used, {'written' if result.wrote else 'only read'}; MB of 2^20 bytes", "dim")
    )
