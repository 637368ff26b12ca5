"""Runs that differ by their seed alone: how much of a result is luck."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from emmclab.devices.device import Device
from emmclab.devices.intervals import difference_interval
from emmclab.devices.preconditioning import parse_precondition
from emmclab.devices.result import Result
from emmclab.devices.result_fields import shown_fields
from emmclab.errors import ConfigError

#: Values that differ by no more than this are not told apart by one seed.
CLOSE_PCT = 5.0

#: Figures of runs with several seeds, beside those that a recording has, too.
SPREAD_FIGURES = shown_fields(
    (
        *("durable.mean_ms", "durable.p99_ms", "write_amplification.waf"),
        *("flash.block_erases", "run.simulated_s"),
    )
)

#: What gives a study several seeds.
MORE_SEEDS = "`seeds = [1, 2, 3, 4, 5]` in the study"


class Spread(NamedTuple):
    """A figure over several runs, in its unit."""

    mean: float
    low: float
    high: float


class Order(NamedTuple):
    """Which of several candidates is the best by a figure, and which are not told apart from it."""

    #: Place of the best.
    best: int
    #: Places of those that are not told apart from the best, in their order; all that are equal to it are.
    alike: tuple[int, ...]
    #: Seeds that all candidates were run with.
    seeds: int
    #: Whether something decides about close values: several seeds, or that nothing is random.
    is_tested: bool


def order_of(
    by_seed: Sequence[Mapping[int, float]],
    *,
    highest_is_best: bool = False,
    is_ratio: bool = True,
    is_random: bool = True,
) -> Order:
    """Decide which candidate is the best by a figure, of which each has a value for each seed.

    With several seeds, a candidate is told from the best where the confidence interval of their difference,
    paired by seed, does not contain 0. The confidence holds for all candidates together. With one seed it is
    told from the best where it differs by more than 5 %, which is a rule and no test. Where nothing is
    random, equal values alone are alike.

    >>> order_of([{1: 1.0}, {1: 1.04}, {1: 2.0}])
    Order(best=0, alike=(1,), seeds=1, is_tested=False)
    >>> order_of([{1: 1.0, 2: 1.1, 3: 0.9}, {1: 1.04, 2: 1.15, 3: 0.94}, {1: 0.5, 2: 3.0, 3: 1.5}])
    Order(best=0, alike=(2,), seeds=3, is_tested=True)
    >>> order_of([{1: 1.0}, {1: 1.04}], is_random=False)
    Order(best=0, alike=(), seeds=1, is_tested=True)
    """
    means = [sum(values.values()) / len(values) for values in by_seed]
    order = sorted(range(len(means)), key=means.__getitem__, reverse=highest_is_best)
    best = order[0]
    seeds = len({seed for seed in by_seed[best] if all(seed in values for values in by_seed)})

    alike = tuple(
        other
        for other in order[1:]
        if not is_told(by_seed[best], by_seed[other], len(order) - 1, is_ratio=is_ratio, is_random=is_random)
    )
    return Order(best, alike, seeds, seeds > 1 or not is_random)


def is_told(
    first: Mapping[int, float],
    second: Mapping[int, float],
    comparisons: int = 1,
    *,
    is_ratio: bool = True,
    is_random: bool = True,
) -> bool:
    """Return whether two candidates differ by more than luck, by the rule of `order_of`.

    >>> is_told({1: 1.0}, {1: 1.04}), is_told({1: 1.0}, {1: 1.06})
    (False, True)
    """
    means = [sum(values.values()) / len(values) for values in (first, second)]
    if means[0] == means[1] or not is_random:
        return means[0] != means[1]
    interval = difference_interval(first, second, comparisons, ratio=is_ratio)
    if interval is None:
        return abs(means[1] - means[0]) > CLOSE_PCT / 100 * abs(means[0])
    return interval.excludes_zero


def untested(cure: str) -> str:
    """Say that one seed was run, what that leaves open, and what repeats the runs.

    >>> untested("--seeds 5")
    'one seed was run, so the order of close values (within 5 %) is not tested: repeat with --seeds 5'
    """
    return (
        f"one seed was run, so the order of close values (within {CLOSE_PCT:g} %) is not tested: "
        f"repeat with {cure}"
    )


def is_random(settings: Mapping[str, Any], precondition: str) -> bool:
    """Return whether anything is random in a run on a device with these settings, in nested tables.

    >>> import tomllib
    >>> tables = [tomllib.loads(Device.preset(name).to_toml()) for name in ("nexus5", "small-1gb")]
    >>> [is_random(table, "none") for table in tables], is_random(tables[1], "steady:1")
    ([True, False], True)
    """
    found = parse_precondition(precondition)
    if not isinstance(found, Path) and found.is_random:
        return True
    wakes = settings.get("power", {}).get("wake_quantiles")
    controller = settings.get("controller", {})
    stalls = controller.get("read_stalls") or controller.get("write_stalls")
    return bool(wakes or stalls) or "seed" in settings.get("gc", {})


def is_random_run(result: Result) -> bool:
    """Return whether other seeds may give other figures; True if the result does not say it."""
    devices = (result.get("provenance") or {}).get("devices")
    if not devices:
        return True
    precondition = str(result.fields["options"]["precondition"])
    return any(is_random(one["settings"], precondition) for one in devices)


def check_random(devices: Sequence[Device], precondition: str) -> None:
    """Refuse several seeds for a run in which nothing is random.

    Raises:
        ConfigError: preconditioning draws nothing and neither do the devices, so that every run is the same.

    >>> check_random([Device.preset("nexus5")], "none")
    >>> check_random([Device.preset("small-1gb")], "steady:1")
    """
    if not any(is_random(tomllib.loads(device.to_toml()), precondition) for device in devices):
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
    """Sum up a figure of several runs; None if no run has it.

    >>> spread([1.0, 3.0, None])
    Spread(mean=2.0, low=1.0, high=3.0)
    """
    known = [value for value in values if value is not None]
    return Spread(sum(known) / len(known), min(known), max(known)) if known else None


def figures_spread(results: Sequence[Result]) -> dict[str, Spread | None]:
    """Return the spread of the figures of runs that have no recorded counterpart, by their paths."""
    return {field.path: spread([one.shown(field.path) for one in results]) for field in SPREAD_FIGURES}
