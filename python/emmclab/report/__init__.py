"""The reports: self-contained HTML pages, for traces and for simulated runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from emmclab.apps import AppResult
from emmclab.device import Device
from emmclab.files import write_whole
from emmclab.probe import Probe
from emmclab.profile import Profile
from emmclab.report import applications, probed, simulation, solutions
from emmclab.report.page import render
from emmclab.result import Result
from emmclab.solutions import Comparison

__all__ = [
    "render",
    "write_apps_report",
    "write_probe_report",
    "write_report",
    "write_simulation_report",
    "write_solutions_report",
]


def write_report(profiles: Sequence[Profile], path: str | Path) -> None:
    """Write the report page for `profiles`; the file appears when it is whole, and never otherwise."""
    write_whole(path, render(profiles))


def write_simulation_report(results: Sequence[Result], devices: Sequence[Device], path: str | Path) -> None:
    """Write the page for simulated runs; the file appears when it is whole, and never otherwise."""
    write_whole(path, simulation.render(results, devices))


def write_probe_report(probe: Probe, path: str | Path) -> None:
    """Write the page for a probed device; the file appears when it is whole, and never otherwise."""
    write_whole(path, probed.render(probe))


def write_apps_report(results: Sequence[AppResult], faster: Sequence[AppResult], path: str | Path) -> None:
    """Write the page for runs of applications; the file appears when it is whole, and never otherwise."""
    write_whole(path, applications.render(results, faster))


def write_solutions_report(found: Comparison, path: str | Path) -> None:
    """Write the page for solutions; the file appears when it is whole, and never otherwise."""
    write_whole(path, solutions.render(found))
