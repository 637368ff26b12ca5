"""The sources to which devices were fitted, and whether devices may be ranked by durable writes or single reads."""

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from emmclab import _core
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
        Fitted(sources=['samsung20_eufs', 'ufs_fua_times', 'linaro25_pixel6'], costs_us=[535.0, 0.0, 610.0])
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


def order_note(durable: Mapping[str, Fitted], reads: Mapping[str, Fitted] | None = None) -> str:
    """Return a note on what devices must not be ranked by; empty if there is nothing.

    `durable` are the devices whose runs had flushes or durable writes, and `reads` those whose runs consisted of single
    reads. The note is needed if two devices were fitted to different sources, because their figures then come from
    different test benches; for single reads, if no source measured these of both. It is not needed if both devices were
    fitted to no source, or, for durable writes, if neither device has costs of them.

    >>> first, second = Fitted(["x", "y"], [28.0]), Fitted(["z"], [535.0])
    >>> order_note({"a": first, "b": first}), order_note({"a": Fitted([], [1.0]), "b": Fitted([], [2.0])})
    ('', '')
    >>> order_note({"a": first, "b": second}).partition("; ")[0]
    'a is fitted to x and y, b to z, and no source measured both'
    >>> order_note({}, {"a": first, "b": second}).partition(" is therefore")[0].partition(", and ")[2]
    'no source measured single reads of both; their order in single reads'
    """
    rules = (
        (durable, "flushes and durable writes", "", _have_no_common_source),
        (reads or {}, "single reads", "single reads of ", _have_no_common_reads),
    )
    unknown = [
        (devices, order, measured)
        for devices, order, measured, rule in rules
        if any(itertools.starmap(rule, itertools.combinations(devices.values(), 2)))
    ]
    if not unknown:
        return ""
    devices, _, measured = unknown[0]
    both = "both" if len(devices) == 2 else "all of them"
    parts = [f"{name} to {' and '.join(fitted.sources) or 'no measurement'}" for name, fitted in devices.items()]
    first = parts[0].replace(" to ", " is fitted to ", 1)
    return (
        f"{', '.join([first, *parts[1:]])}, and no source measured {measured}{both}; "
        f"their order in {' and in '.join(order for _, order, _ in unknown)} is therefore not known to be that of the "
        "real devices (`emmclab devices --check NAME` compares a device that was fitted to published figures with them)"
    )


def _have_no_common_source(first: Fitted, second: Fitted) -> bool:
    """Return whether two fitted devices share no source, and at least one has costs of durable writes."""
    fitted, priced = first.sources or second.sources, any((*first.costs_us, *second.costs_us))
    return bool(fitted) and priced and not {*first.sources} & {*second.sources}


def _have_no_common_reads(first: Fitted, second: Fitted) -> bool:
    """Return whether no source of two fitted devices measured reads that were executed one at a time."""
    common = {*first.sources} & {*second.sources}
    return bool(first.sources or second.sources) and common <= _core.sources_without_single_reads()


def runs_note(results: Sequence[Mapping[str, Any]]) -> str:
    """Return a note if the devices of these runs must not be ranked by what the runs consist of; see `order_note`."""
    return order_note(*(_devices([run for run in results if rule(run)]) for rule in (is_durable, is_of_single_reads)))


def _devices(results: Sequence[Mapping[str, Any]]) -> dict[str, Fitted]:
    provenances = [result.get("provenance") or {} for result in results]
    # The first device is the simulated device. A second device, which only a layer uses, is ignored.
    devices = [provenance["devices"][0] for provenance in provenances if provenance.get("devices")]
    return {device["name"]: Fitted.of(device["settings"]) for device in devices}


def pair_note(first: Device, second: Device) -> str:
    """Return `order_note` of two devices; empty if their costs of flushes and durable writes are equal."""
    fits = {device.name: Fitted.device(device) for device in (first, second)}
    return order_note(fits) if len({tuple(fitted.costs_us) for fitted in fits.values()}) > 1 else ""


def is_of_single_reads(result: Mapping[str, Any]) -> bool:
    """Return whether most of a run's requests were reads, and most requests waited for no other one."""
    run = Result(dict(result))
    return run.requests.read > run.requests.write and (run.measured("requests.no_wait_pct") or 0.0) > 50.0


def is_durable(result: Mapping[str, Any]) -> bool:
    """Return whether a run had flushes, or writes with a guarantee of durability or order."""
    return bool(Result(dict(result)).measured("durable.requests"))
