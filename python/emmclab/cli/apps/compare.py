"""`emmclab apps compare NAME...`."""

from typing import Annotated

import typer

from emmclab.apps.closed_loop import NETWORK, FileOptions, SoftwareAndFiles, SoftwareOptions
from emmclab.cli.apps.run_options import (
    Devices,
    Host,
    Networks,
    Page,
    Running,
    devices_of,
    networks_of,
    show_results,
    software,
    write_page,
)
from emmclab.cli.declared_options import argument
from emmclab.cli.help_format import examples
from emmclab.cli.name_completion import application_names
from emmclab.cli.options import AsJson
from emmclab.cli.simulation_options import Capacity, Settings, layered
from emmclab.runtime.lists import once
from emmclab.simulation.provenance import Provenance


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=examples("emmclab apps compare email maps --devices nexus5,sdcard --networks wifi,usb"))(compare)


def compare(
    *,
    applications: Annotated[
        list[str],
        argument(
            "NAME|FILE...", "Applications: presets (`emmclab apps`) or TOML files.", autocompletion=application_names
        ),
    ],
    devices: Devices = "nexus5",
    networks: Networks = NETWORK,
    host: Host = None,
    files: FileOptions,
    above: SoftwareOptions,
    settings: Settings = [],  # noqa: B006
    capacity: Capacity = None,
    running: Running,
    html: Page = None,
    as_json: AsJson = False,
) -> None:
    """Run applications on several devices and over several networks, and put the runs side by side."""
    own, layer_settings = layered(settings, above["layers"])
    chosen = devices_of(devices, own, capacity)
    options: SoftwareAndFiles = {**files, **software(host, chosen, layer_settings, above)}
    results = [
        running.run(name, device, network, **options)
        for name in once(applications)
        for device in chosen
        for network in networks_of(networks)
    ]
    made = Provenance(chosen).to_dict()
    write_page(results, [], html, made)
    show_results(results, [], as_json, made)
