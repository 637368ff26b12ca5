"""The sources that devices were fitted to, and whether they allow to rank devices by durable writes."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from emmclab.devices.device import Device
from emmclab.devices.result import Result

#: Settings of what a flush or a durable write costs beside the work of the flash, in us.
_COSTS = (("cache", "flush_us"), ("controller", "reliable_write_us"), ("interface", "fua_us"))


class Fitted(NamedTuple):
    """The sources that a device was fitted to, and what a flush or a durable write costs on it."""

    #: Names of the sources that the device was fitted to.
    sources: Sequence[str]
    #: The settings of what a flush, a reliable write and a write with FUA cost, in us.
    costs_us: Sequence[float]

    @staticmethod
    def of(settings: Mapping[str, Any]) -> Fitted:
        """Take it from the settings of a device, as nested tables."""
        costs = [(settings.get(group) or {}).get(key) or 0.0 for group, key in _COSTS]
        return Fitted(list(settings.get("fitted_to") or ()), costs)

    @staticmethod
    def device(device: Device) -> Fitted:
        """Take it from a device.

        >>> Fitted.device(Device.preset("ufs31"))
        Fitted(sources=['samsung20_eufs', 'ufs_fua_times'], costs_us=[535.0, 0.0, 610.0])
        """
        return Fitted.of(tomllib.loads(device.to_toml()))


def fitted_note(result: Result) -> str:
    """Say that a device was fitted to the trace of a run; empty if it was not.

    >>> import emmclab
    >>> fitted_note(emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0])))
    ''
    """
    made = result.fields.get("provenance")
    devices = made.get("devices", ()) if made else ()
    if not any(result.fields["trace"] in Fitted.of(device["settings"]).sources for device in devices[:1]):
        return ""
    return (
        f"{result.fields['device']} was fitted to this trace: "
        "that they agree in the mean does not test the preset"
    )


def order_note(devices: Mapping[str, Fitted]) -> str:
    """Say that the order of devices in flushes and durable writes is not known; empty if it may be.

    Two devices without a source in common are fitted to figures of two test benches. Those of which both are
    fitted to nothing, or have no such cost at all, claim nothing: as the designs of a paper.

    >>> one, other = Fitted(["x", "y"], [28.0]), Fitted(["z"], [535.0])
    >>> order_note({"a": one, "b": one}), order_note({"a": Fitted([], [1.0]), "b": Fitted([], [2.0])})
    ('', '')
    >>> order_note({"a": one, "b": other}).partition("; ")[0]
    'a is fitted to x and y, b to z, and no source measured both'
    """
    if not any(itertools.starmap(_apart, itertools.combinations(devices.values(), 2))):
        return ""
    parts = [f"{name} to {' and '.join(one.sources) or 'no measurement'}" for name, one in devices.items()]
    first = parts[0].replace(" to ", " is fitted to ", 1)
    every = "both" if len(devices) == 2 else "all of them"
    return (
        f"{', '.join([first, *parts[1:]])}, and no source measured {every}; their order in flushes and "
        "durable writes is therefore not known to be that of the real devices "
        "(`emmclab devices --check NAME` measures a device that was fitted to published figures beside them)"
    )


def _apart(one: Fitted, other: Fitted) -> bool:
    """Return whether two devices are fitted, to nothing that measured both."""
    fitted, priced = one.sources or other.sources, any((*one.costs_us, *other.costs_us))
    return bool(fitted) and priced and not {*one.sources} & {*other.sources}


def runs_note(results: Sequence[Mapping[str, Any]]) -> str:
    """Return `order_note` of the devices of runs whose workload has flushes or durable writes."""
    made = [one.get("provenance") or {} for one in results if is_durable(one)]
    # The simulated device comes first; another one beside it serves a layer.
    devices = [whence["devices"][0] for whence in made if whence.get("devices")]
    return order_note({device["name"]: Fitted.of(device["settings"]) for device in devices})


def pair_note(first: Device, second: Device) -> str:
    """Return `order_note` of two devices whose flushes or durable writes have costs that differ."""
    one, other = Fitted.device(first), Fitted.device(second)
    return "" if one.costs_us == other.costs_us else order_note({first.name: one, second.name: other})


def is_durable(result: Mapping[str, Any]) -> bool:
    """Return whether a run had flushes, or writes that promise durability or an order."""
    return bool(Result(dict(result)).shown("durable.requests"))
