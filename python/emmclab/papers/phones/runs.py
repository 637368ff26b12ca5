"""Selects the inputs, devices and runs of the study `phones` for its page."""

from __future__ import annotations

import functools
import tomllib
from typing import Any

from emmclab.simulation.device import Device
from emmclab.simulation.result_types import WriteBoosterUse
from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run
from emmclab.traces.workload import workload_groups

#: Grids of new devices. Further devices in a new grid here appear in the tables and figures of responses.
NEW_GRIDS = ("new", "zoned")
#: The device on which settings are swept, and the device of its kind with pages of two sizes.
UFS = "ufs31"
_INSTALL = "Install"
_RECORDED = "Recorded"


def in_use(results: Results) -> list[str]:
    """Return the applications in use, without re-issues and clock jumps, in the order of the study."""
    return [name for name in _models(results) if not name.endswith(_INSTALL)]


def installations(results: Results) -> list[str]:
    """Return the names of the installations."""
    return [name for name in _models(results) if name.endswith(_INSTALL)]


def workloads_of(results: Results) -> list[str]:
    """Return the names of all drawn inputs: applications, their installations, and recorded traces."""
    return [*in_use(results), *installations(results), *results.recorded]


def as_recorded(results: Results) -> dict[str, str]:
    """Return by application the name of the model of its trace with re-issues and clock jumps."""
    names = {name.removesuffix(_RECORDED): name for name in workload_groups()["phones-recorded"]}
    return {name: names[name] for name in in_use(results) if names.get(name) in results.profiles}


def _models(results: Results) -> list[str]:
    return [name for name in workload_groups()["phones"] if name in results.profiles]


def device_of(run: Run) -> str:
    """Return the preset of a run's device, without the capacity to which it was scaled.

    >>> device_of({"device": "ufs31-128GB", "options": {"capacity": "128GB"}})
    'ufs31'
    """
    name: str = run["device"]
    return name.removesuffix(f"-{run['options'].get('capacity', '')}")


def by_input(results: Results, grid: str, device: str = "", **settings: Any) -> dict[str, Run]:
    """Return the runs of a grid by input, on one device with these settings (`__` in a name means `.`)."""
    return {
        run["input"]: run
        for run in results.select(grid)
        if device in ("", device_of(run))
        and all(run["settings"].get(key.replace("__", ".")) == value for key, value in settings.items())
    }


def new_devices(results: Results) -> list[str]:
    """Return the names of the devices on which every workload ran while new, in the order of the study."""
    return list(dict.fromkeys(device_of(run) for grid in NEW_GRIDS for run in results.select(grid)))


def on_new(results: Results, device: str) -> dict[str, Run]:
    """Return the runs on a new device by input."""
    return {name: run for grid in NEW_GRIDS for name, run in by_input(results, grid, device).items()}


def ufs_devices(results: Results) -> list[str]:
    """Return the names of the UFS devices among the new devices."""
    return [
        device
        for device in new_devices(results)
        if any(run.get("ufs") is not None for run in on_new(results, device).values())
    ]


def mean_ms(run: Run) -> float:
    """Return the mean response, ms."""
    return float(run["response"]["mean_response_ms"])


def programmed(run: Run) -> float:
    """Return the bytes that were programmed into the flash."""
    return float(run["write_amplification"]["waf"] * run["requests"]["bytes_written"])


def swept(results: Results, grid: str, key: str) -> list[Any]:
    """Return the values of a setting in a grid, in the order of the study."""
    return list(dict.fromkeys(run["settings"][key] for run in results.select(grid)))


@functools.cache
def _settings(device: str) -> dict[str, Any]:
    return tomllib.loads(Device.preset(device).to_toml())


def _booster(run: Run) -> WriteBoosterUse | None:
    return run["ufs"]["write_booster"] if "ufs" in run else None


def booster_life_tb(run: Run) -> float | None:
    """Return the TB that the host can write until all blocks of WriteBooster have reached their erase limit.

    This is the data that the blocks can store over all their erases, divided by the bytes that the run wrote
    to them for each byte of the host. None without WriteBooster, or if nothing was written.
    """
    booster = _booster(run)
    limit = _settings(device_of(run))["slc"]["erase_limit"]
    if not booster or not booster["size_bytes"] or not booster["bytes_written"]:
        return None
    per_byte = booster["bytes_written"] / run["requests"]["bytes_written"]
    return float(booster["size_bytes"] * limit / per_byte / 1e12)


def cells_life_tb(run: Run) -> float | None:
    """Return the TB that the host can write until all other blocks, evenly worn, reach their erase limit.

    None if nothing was written to them.
    """
    booster = _booster(run)
    reached = programmed(run) - (booster["bytes_written"] if booster else 0)
    if reached <= 0:
        return None
    given = _settings(device_of(run))
    limit = given["geometry"]["block_groups"][0]["erase_limit"]
    raw = run["configuration"]["capacity_bytes"] * (1 + given["capacity"]["over_provisioning_pct"] / 100)
    return float(raw * limit * run["requests"]["bytes_written"] / reached / 1e12)
