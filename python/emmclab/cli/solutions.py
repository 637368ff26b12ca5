"""`emmclab apps solutions [NAME...]`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from emmclab.apps.closed_loop import AppResult, applications
from emmclab.apps.solutions import Solution, compare_solutions, solutions_named
from emmclab.cli.console import print_json, say, stdout
from emmclab.devices.provenance import Provenance
from emmclab.errors import ConfigError

if TYPE_CHECKING:
    from emmclab.cli.apps import Running
    from emmclab.devices.device import Device


def show_solutions(
    running: Running,
    names: Sequence[str],
    devices: Sequence[Device],
    networks: Sequence[str],
    wanted: Sequence[str],
    as_json: bool,
    html: Path | None,
) -> None:
    """Run applications with each solution, and print gain, cost and risk."""
    names = names or [row["name"] for row in applications()]
    runs: list[tuple[Solution, AppResult]] = []
    impossible: list[dict[str, str]] = []
    for name, device, network, solution in itertools.product(
        names, devices, networks, solutions_named(wanted)
    ):
        try:
            runs.append((solution, running.run(name, device, network, solution=solution)))
        except ConfigError as error:
            if solution.name == "plain" or len(names) * len(devices) * len(networks) == 1:
                raise
            # The rest is shown without it: a file system may need more room than one of many devices has.
            place = {"application": name, "device": device.name, "network": network}
            impossible.append({**place, "solution": solution.name, "reason": str(error)})
    found = compare_solutions(runs, impossible)
    made = Provenance(devices).to_dict()
    if html is not None:
        from emmclab.pages.solutions import write_solutions_report

        write_solutions_report(found, html, made)
        say(f"report: {html}")
    if as_json:
        print_json(found.to_dict() | {"provenance": made})
    else:
        from emmclab.cli.show_solutions import show_comparison

        show_comparison(stdout(), found)
