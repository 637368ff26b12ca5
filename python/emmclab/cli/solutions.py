"""`emmclab apps solutions [NAME...]`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from emmclab.apps import AppResult, applications
from emmclab.cli.console import print_json, say, stdout
from emmclab.solutions import Solution, compare_solutions, solutions_named

if TYPE_CHECKING:
    from emmclab.cli.apps import Running
    from emmclab.device import Device


def show_solutions(
    running: Running,
    names: Sequence[str],
    devices: Sequence[Device],
    networks: Sequence[str],
    wanted: Sequence[str],
    as_json: bool,
    html: Path | None,
) -> None:
    """Run applications with each solution, and print what is gained, spent and risked."""
    names = names or [row["name"] for row in applications()]
    runs: list[tuple[Solution, AppResult]] = [
        (solution, running.run(name, device, network, solution=solution))
        for name in names
        for device in devices
        for network in networks
        for solution in solutions_named(wanted)
    ]
    found = compare_solutions(runs)
    if as_json:
        print_json(found.to_dict())
    else:
        from emmclab.cli.show_solutions import show_comparison

        show_comparison(stdout(), found)
    if html is not None:
        from emmclab.report import write_solutions_report

        write_solutions_report(found, html)
        say(f"report: {html}")
