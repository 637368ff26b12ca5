"""`emmclab devices`."""

from __future__ import annotations

import tomllib
from typing import Any

import typer
from rich.text import Text

from emmclab.cli.console import print_json, stdout
from emmclab.cli.options import AsJson
from emmclab.cli.show import framed
from emmclab.device import Device, presets


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: [cyan]emmclab explain nexus5[/] prints every setting of a device.")(devices)


def devices(as_json: AsJson = False) -> None:
    """List the simulated devices that come with emmclab."""
    rows = [_row(name) for name in presets()]
    if as_json:
        print_json(rows)
        return
    table = framed("Devices")
    for heading in ("Name", "Flash\nGB", "Pages\nKB", "Planes"):
        table.add_column(heading, justify="left" if heading == "Name" else "right")
    table.add_column("Description")
    for row in rows:
        pages = " + ".join(f"{size:g}" for size in row["page_kb"])
        table.add_row(row["name"], f"{row['flash_gb']:,.1f}", pages, str(row["planes"]), Text(row["about"]))
    console = stdout()
    console.print(table)
    console.print("timing.parallelism selects what is a way: chip, die or plane", style="dim")


def _row(name: str) -> dict[str, Any]:
    settings = tomllib.loads(Device.preset(name).to_toml())
    geometry = settings["geometry"]
    planes = 1
    for part in ("channels", "chips_per_channel", "dies_per_chip", "planes_per_die"):
        planes *= geometry[part]
    groups = geometry["block_groups"]
    plane_kb = sum(group["page_kb"] * group["blocks"] * group["pages_per_block"] for group in groups)
    return {
        "name": name,
        "about": settings["about"],
        "planes": planes,
        "page_kb": [group["page_kb"] for group in groups],
        "flash_gb": planes * plane_kb / 2**20,
    }
