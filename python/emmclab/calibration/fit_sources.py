"""The sources to which devices were fitted, and whether devices may be ranked by durable writes."""

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from emmclab.simulation.device import Device
from emmclab.simulation.result import Result

#: Settings for the time that a flush or a durable write takes in addition to its flash operations, in us: table and
#: key.
_COSTS = (("cache", "flush_us"), ("controller", "reliable_write_us"), ("interface", "fua_us"))


class Fitted(NamedTuple):
    """The sources to which a device was fitted, and the cost of its flushes and durable writes."""

    #: Names of the sources to which the device was fitted.
    sources: Sequence[str]
    #: Additional time of a flush, a reliable write and a FUA write, in us.
    costs_us: Sequence[float]

    @staticmethod
    def of(settings: Mapping[str, Any]) -> "Fitted":
        """Return the sources to which a device was fitted, and its costs of durable writes, from its settings."""
        costs = [(settings.get(group) or {}).get(key) or 0.0 for group, key in _COSTS]
        return Fitted(list(settings.get("fitted_to") or ()), costs)

    @staticmethod
    def device(device: Device) -> "Fitted":
        """Return the sources to which a device was fitted, and the cost of its flushes and durable writes.

        >>> Fitted.device(Device.preset("ufs31"))
        Fitted(sources=['samsung20_eufs', 'ufs_fua_times'], costs_us=[535.0, 0.0, 610.0])
        """
        return Fitted.of(tomllib.loads(device.to_toml()))


def fitted_note(result: Result) -> str:
    """Return a note that a device was fitted to the trace of the run; empty if it was not.

    >>> import emmclab
    >>> fitted_note(emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0])))
    ''
    """
    provenance = result.provenance
    devices = provenance.get("devices", ()) if provenance else ()
    if not any(result.trace in Fitted.of(device["settings"]).sources for device in devices[:1]):
        return ""
    return (
        f"{result.device} was fitted to this trace, so an "
        "agreement of the means proves nothing about the accuracy of the preset"
    )


def order_note(devices: Mapping[str, Fitted]) -> str:
    """Return a note if devices must not be ranked by flushes and durable writes; empty if they may be ranked.

    The note is needed if two devices were fitted to different sources, because their figures then come from different
    test benches. It is not needed if both devices were fitted to no source, or if neither device has costs of durable
    writes.

    >>> first, second = Fitted(["x", "y"], [28.0]), Fitted(["z"], [535.0])
    >>> order_note({"a": first, "b": first}), order_note({"a": Fitted([], [1.0]), "b": Fitted([], [2.0])})
    ('', '')
    >>> order_note({"a": first, "b": second}).partition("; ")[0]
    'a is fitted to x and y, b to z, and no source measured both'
    """
    if not any(itertools.starmap(_have_no_common_source, itertools.combinations(devices.values(), 2))):
        return ""
    parts = [f"{name} to {' and '.join(fitted.sources) or 'no measurement'}" for name, fitted in devices.items()]
    first = parts[0].replace(" to ", " is fitted to ", 1)
    measured = "both" if len(devices) == 2 else "all of them"
    return (
        f"{', '.join([first, *parts[1:]])}, and no source measured {measured}; their order in flushes and "
        "durable writes is therefore not known to be that of the real devices "
        "(`emmclab devices --check NAME` compares a device that was fitted to published figures with them)"
    )


def _have_no_common_source(first: Fitted, second: Fitted) -> bool:
    """Return whether two fitted devices share no source, and at least one has costs of durable writes."""
    fitted, priced = first.sources or second.sources, any((*first.costs_us, *second.costs_us))
    return bool(fitted) and priced and not {*first.sources} & {*second.sources}


def runs_note(results: Sequence[Mapping[str, Any]]) -> str:
    """Return a note if the devices of these runs must not be ranked by flushes and durable writes.

    Runs without flushes and durable writes are ignored. See `order_note`.
    """
    provenances = [result.get("provenance") or {} for result in results if is_durable(result)]
    # The first device is the simulated device. A second device, which only a layer uses, is ignored.
    devices = [provenance["devices"][0] for provenance in provenances if provenance.get("devices")]
    return order_note({device["name"]: Fitted.of(device["settings"]) for device in devices})


def pair_note(first: Device, second: Device) -> str:
    """Return `order_note` of two devices; empty if their costs of flushes and durable writes are equal."""
    fits = {device.name: Fitted.device(device) for device in (first, second)}
    return order_note(fits) if len({tuple(fitted.costs_us) for fitted in fits.values()}) > 1 else ""


def is_durable(result: Mapping[str, Any]) -> bool:
    """Return whether a run had flushes, or writes with a guarantee of durability or order."""
    return bool(Result(dict(result)).measured("durable.requests"))
