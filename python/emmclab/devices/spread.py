"""Runs that differ by their seed alone: how much of a result is luck."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from emmclab.devices.device import Device
from emmclab.devices.preconditioning import parse_precondition
from emmclab.devices.result import Result
from emmclab.errors import ConfigError


class Spread(NamedTuple):
    """A figure over several runs, in its unit."""

    mean: float
    low: float
    high: float


def check_random(devices: Sequence[Device], precondition: str) -> None:
    """Refuse several seeds for a run in which nothing is random.

    Raises:
        ConfigError: preconditioning draws nothing and neither do the devices, so that every run is the same.

    >>> check_random([Device.preset("nexus5")], "none")
    >>> check_random([Device.preset("small-1gb")], "steady:1")
    """
    found = parse_precondition(precondition)
    if not isinstance(found, Path) and found.is_random:
        return
    rows = [row for device in devices for row in device.explain()]
    wakes = any(row["key"].startswith("power.wake_quantiles") and row["value"] != "[]" for row in rows)
    if not wakes and not any(row["key"] == "gc.seed" for row in rows):
        names = " and ".join(device.name for device in devices)
        raise ConfigError(
            f"nothing is random in a run on {names} with --precondition {precondition}, so that every seed "
            "gives the same run",
            kind="config",
            field="--seeds",
            hint="precondition at random (random:PCT, steady or used:AGE), or take a device with "
            "power.wake_quantiles, such as nexus5",
        )


def spread(values: Sequence[float | None]) -> Spread | None:
    """Sum up a figure of several runs; None where no run has it.

    >>> spread([1.0, 3.0, None])
    Spread(mean=2.0, low=1.0, high=3.0)
    """
    known = [value for value in values if value is not None]
    return Spread(sum(known) / len(known), min(known), max(known)) if known else None


def beside_spread(results: Sequence[Result]) -> dict[str, dict[str, dict[str, Any]]]:
    """Put the mean and the range of each simulated figure beside the recorded one, by group and operation.

    `error` is that of the mean: in percent for times, in points for shares; None where nothing is recorded.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for group, unit in (("response", "ms"), ("service", "ms"), ("no_wait", "pct")):
        for op in ("all", "read", "write"):
            fields = [result["recorded"][group][op] for result in results]
            was, over = fields[0][f"recorded_{unit}"], spread([one[f"simulated_{unit}"] for one in fields])
            error = None
            if over and fields[0]["error_pct" if unit == "ms" else "error_points"] is not None:
                error = 100 * (over.mean / was - 1) if unit == "ms" else over.mean - was
            simulated = over._asdict() if over else dict.fromkeys(Spread._fields)
            found.setdefault(group, {})[op] = {"recorded": was, **simulated, "error": error}
    return found
