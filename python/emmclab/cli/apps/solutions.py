"""`emmclab apps solutions [NAME...]`."""

import itertools
from pathlib import Path
from typing import Annotated

from emmclab.apps.closed_loop import NETWORK, AppResult, activities, host_for
from emmclab.apps.solutions import Solution, compare_solutions, find_solutions
from emmclab.cli.apps.run_options import RUN, Devices, Host, Networks, Running, devices_of, networks_of
from emmclab.cli.command import command
from emmclab.cli.console import in_a_folder, print_json, stdout, write_page
from emmclab.cli.name_completion import application_names, solution_names
from emmclab.cli.options import AsJson, argument, option
from emmclab.cli.simulation_options import Capacity, Settings
from emmclab.errors import ConfigError
from emmclab.runtime.lists import once
from emmclab.simulation.device import Provenance


@command("emmclab apps solutions email --device kingston-c4")
def solutions(
    *,
    names: Annotated[
        list[str] | None,
        argument(
            "[NAME|FILE]...",
            "Applications: presets (`emmclab apps`) or TOML files; default: all activities of a user.",
            autocompletion=application_names,
            show_default=False,
        ),
    ] = None,
    selected: Annotated[
        list[str],
        option(
            "Run only this solution (nvm-buffer, raid0, lfs, advil, selective-sync, no-sync); may be repeated.",
            RUN,
            "--solution",
            metavar="NAME",
            autocompletion=solution_names,
        ),
    ] = [],  # noqa: B006
    devices: Devices = "nexus5",
    networks: Networks = NETWORK,
    host: Host = None,
    settings: Settings = [],  # noqa: B006
    capacity: Capacity = None,
    running: Running,
    html: Annotated[Path | None, option("Also write a page.", callback=in_a_folder)] = None,
    as_json: AsJson = False,
) -> None:
    """Run applications with each pilot solution of FAST 2012, and print gain, cost and risk of each.

    A solution changes layers, file systems and syncs; all other settings are those of the plain device.
    """
    chosen = devices_of(devices, settings, capacity)
    settings_of_runs = [
        (name, device, network)
        for name in once(names or activities())
        for device in chosen
        for network in networks_of(networks)
    ]
    host_name = host or host_for(chosen)
    runs: list[tuple[Solution, AppResult]] = []
    impossible: list[dict[str, str]] = []
    for (name, device, network), solution in itertools.product(settings_of_runs, find_solutions(selected)):
        try:
            runs.append((solution, running.run(name, device, network, solution=solution, host=host_name)))
        except ConfigError as error:
            if solution.name == "plain" or len(settings_of_runs) == 1:
                raise
            # An error of this setting does not end the command: for example, one of the devices may be too small for
            # the file system.
            run_setting = {"application": name, "device": device.name, "network": network}
            impossible.append({**run_setting, "solution": solution.name, "reason": str(error)})
    comparison = compare_solutions(runs, impossible)
    provenance = Provenance(chosen).to_dict()
    if html is not None:
        from emmclab.pages.solutions import render

        write_page(html, render(comparison, provenance))
    if as_json:
        print_json(comparison.to_dict() | {"provenance": provenance})
    else:
        from emmclab.cli.apps.show_applications import show_comparison

        show_comparison(stdout(), comparison)
