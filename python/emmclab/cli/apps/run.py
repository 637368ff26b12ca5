"""`emmclab apps run NAME` and `emmclab apps compare NAME...`."""

from typing import Annotated

from emmclab.apps.closed_loop import NETWORK, AppResult, FileOptions, SoftwareAndFiles, SoftwareOptions, parts_of
from emmclab.cli.apps.run_options import (
    RUN,
    Application,
    Devices,
    Host,
    Network,
    Networks,
    Page,
    Running,
    devices_of,
    networks_of,
    require_single,
    show_results,
    software,
    write_page,
)
from emmclab.cli.command import command
from emmclab.cli.console import print_stderr
from emmclab.cli.name_completion import application_names
from emmclab.cli.options import AsJson, Perfetto, argument, option
from emmclab.cli.simulation_options import Capacity, DeviceName, Events, Settings, configured, layered
from emmclab.runtime.lists import once
from emmclab.simulation.device import Provenance


@command(
    "emmclab apps run facebook --device nexus5 --network usb",
    "emmclab apps run email --what-if all",
    "emmclab apps run webbench --beside facebook --beside email",
    "emmclab apps run webbench --events webbench.parquet # its requests as a trace",
)
def run(
    *,
    application: Application,
    device: DeviceName = "nexus5",
    network: Network = NETWORK,
    host: Host = None,
    what_if: Annotated[
        list[str],
        option(
            "Run again with a part of the storage infinitely fast: partition=NAME, class=CLASS, op=read, op=fsync, "
            "op=write_back, or `all` for each part that the run used. May be repeated, with one run for each.",
            RUN,
            metavar="PART",
        ),
    ] = [],  # noqa: B006
    files: FileOptions,
    above: SoftwareOptions,
    settings: Settings = [],  # noqa: B006
    capacity: Capacity = None,
    running: Running,
    events: Events = None,
    perfetto: Perfetto = None,
    html: Page = None,
    as_json: AsJson = False,
) -> None:
    """Run an application on a simulated device and show what its user waits for."""
    require_single("run", device, network)
    device_settings, layer_settings = layered(settings, above["layers"])
    chosen = configured(device, device_settings, capacity)
    options: SoftwareAndFiles = {**files, **software(host, [chosen], layer_settings, above)}
    result = running.run(application, chosen, network, events=events, perfetto=perfetto, **options)
    faster: list[AppResult] = []
    if what_if:
        parts = parts_of(result) if what_if == ["all"] else once(what_if)
        faster = [running.run(application, chosen, network, what_if=[part], **options) for part in parts]
    if events is not None:
        print_stderr(f"requests: {events}")
    if perfetto is not None:
        print_stderr(f"picture: {perfetto}")
    provenance = Provenance([chosen]).to_dict()
    write_page([result], faster, html, provenance)
    show_results([result], faster, as_json, provenance)


@command("emmclab apps compare email maps --devices nexus5,sdcard --networks wifi,usb")
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
    """Run applications on several devices and over several networks, and compare the runs."""
    device_settings, layer_settings = layered(settings, above["layers"])
    chosen = devices_of(devices, device_settings, capacity)
    options: SoftwareAndFiles = {**files, **software(host, chosen, layer_settings, above)}
    results = [
        running.run(name, device, network, **options)
        for name in once(applications)
        for device in chosen
        for network in networks_of(networks)
    ]
    provenance = Provenance(chosen).to_dict()
    write_page(results, [], html, provenance)
    show_results(results, [], as_json, provenance)
