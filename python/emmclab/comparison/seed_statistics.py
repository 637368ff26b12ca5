"""The effect of chance on results, measured with several seeds, and the fastest device beyond chance."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from emmclab.calibration.fit_sources import runs_note
from emmclab.errors import ConfigError
from emmclab.runtime.statistics import difference_interval
from emmclab.simulation.device import Device
from emmclab.simulation.result import Result
from emmclab.simulation.result_fields import result_field, shown_fields
from emmclab.simulation.result_text import mean_text, trusted
from emmclab.simulation.run_options import parse_precondition

#: With one seed, values that differ by at most this percentage are not distinguished.
CLOSE_PCT = 5.0

#: Figures whose spread over several seeds is reported.
SPREAD_FIGURES = shown_fields(
    (*("durable.mean_ms", "durable.p99_ms", "write_amplification.waf"), *("flash.block_erases", "run.simulated_s"))
)

#: How to request several seeds in a study; used in hints.
MORE_SEEDS = "`seeds = [1, 2, 3, 4, 5]` in the study"


class Spread(NamedTuple):
    """Mean and range of a figure over several runs, in its unit."""

    mean: float
    low: float
    high: float


class Order(NamedTuple):
    """The best of several candidates by a figure, and those that cannot be distinguished from it."""

    #: Index of the best candidate.
    best: int
    #: Indices of the candidates that cannot be distinguished from the best one (including equal ones), best first.
    indistinguishable: tuple[int, ...]
    #: Number of seeds with which all candidates were run.
    seeds: int
    #: Whether close values can be distinguished: there are several seeds, or nothing in the runs is random.
    is_tested: bool


def order_of(
    by_seed: Sequence[Mapping[int, float]],
    *,
    highest_is_best: bool = False,
    is_ratio: bool = True,
    is_random: bool = True,
) -> Order:
    """Find the best candidate by a figure; each candidate has a value for each seed.

    With several seeds, a candidate differs from the best if the confidence interval of their difference,
    paired by seed, does not contain 0. The confidence holds for all candidates together. With one seed it
    differs from the best if the values differ by more than 5 %, which is a rule of thumb, not a test. If
    nothing is random, only equal values count as equal.

    >>> order_of([{1: 1.0}, {1: 1.04}, {1: 2.0}])
    Order(best=0, indistinguishable=(1,), seeds=1, is_tested=False)
    >>> order_of([{1: 1.0, 2: 1.1, 3: 0.9}, {1: 1.04, 2: 1.15, 3: 0.94}, {1: 0.5, 2: 3.0, 3: 1.5}])
    Order(best=0, indistinguishable=(2,), seeds=3, is_tested=True)
    >>> order_of([{1: 1.0}, {1: 1.04}], is_random=False)
    Order(best=0, indistinguishable=(), seeds=1, is_tested=True)
    """
    means = [sum(values.values()) / len(values) for values in by_seed]
    order = sorted(range(len(means)), key=means.__getitem__, reverse=highest_is_best)
    best = order[0]
    seeds = len({seed for seed in by_seed[best] if all(seed in values for values in by_seed)})

    alike = tuple(
        other
        for other in order[1:]
        if not is_distinguished(by_seed[best], by_seed[other], len(order) - 1, is_ratio=is_ratio, is_random=is_random)
    )
    return Order(best, alike, seeds, seeds > 1 or not is_random)


def is_distinguished(
    first: Mapping[int, float],
    second: Mapping[int, float],
    comparisons: int = 1,
    *,
    is_ratio: bool = True,
    is_random: bool = True,
) -> bool:
    """Return whether two candidates differ by more than chance, by the rule of `order_of`.

    >>> is_distinguished({1: 1.0}, {1: 1.04}), is_distinguished({1: 1.0}, {1: 1.06})
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
    """Return a note that runs with one seed cannot rank close values; `cure` is the option that adds seeds.

    >>> untested("--seeds 5")
    'one seed was run, so the order of close values (within 5 %) is not tested: repeat with --seeds 5'
    """
    return f"one seed was run, so the order of close values (within {CLOSE_PCT:g} %) is not tested: repeat with {cure}"


def is_random(settings: Mapping[str, Any], precondition: str) -> bool:
    """Return whether a run on a device has any randomness; the settings are in nested tables.

    >>> import tomllib
    >>> tables = [tomllib.loads(Device.preset(name).to_toml()) for name in ("nexus5", "small-1gb")]
    >>> [is_random(table, "none") for table in tables], is_random(tables[1], "steady:1")
    ([True, False], True)
    """
    if parse_precondition(precondition).way.is_random:
        return True
    power = settings.get("power", {})
    wakes = any(stage.get("wake_quantiles") for stage in (power, *power.get("stages", ())))
    controller = settings.get("controller", {})
    stalls = controller.get("read_stalls") or controller.get("write_stalls")
    return wakes or bool(stalls) or "seed" in settings.get("gc", {})


def is_random_run(result: Result) -> bool:
    """Return whether a run has random elements, so that its figures depend on the seed.

    True if the result does not contain its devices.
    """
    devices = (result.provenance or {}).get("devices")
    if not devices:
        return True
    precondition = str(result.options["precondition"])
    return any(is_random(device["settings"], precondition) for device in devices)


def check_random(devices: Sequence[Device], precondition: str) -> None:
    """Reject several seeds for a run without randomness.

    >>> check_random([Device.preset("nexus5")], "none")
    >>> check_random([Device.preset("small-1gb")], "steady:1")
    """
    if not any(is_random(tomllib.loads(device.to_toml()), precondition) for device in devices):
        names = " and ".join(device.name for device in devices)
        raise ConfigError(
            f"nothing is random in a run on {names} with --precondition {precondition}, so that every seed "
            "gives the same run",
            field="--seeds",
            hint="use a random precondition (random:PCT, steady or used:AGE), or a device with random wake-up "
            "times (power.wake_quantiles), such as nexus5",
        )


def spread(values: Sequence[float | None]) -> Spread | None:
    """Summarise a figure of several runs; None if no run has it.

    >>> spread([1.0, 3.0, None])
    Spread(mean=2.0, low=1.0, high=3.0)
    """
    present = [value for value in values if value is not None]
    return Spread(sum(present) / len(present), min(present), max(present)) if present else None


def figures_spread(results: Sequence[Result]) -> dict[str, Spread | None]:
    """Return the spread of the figures that have no recorded counterpart, by path."""
    return {field.path: spread([result.measured(field.path) for result in results]) for field in SPREAD_FIGURES}


_MEAN = result_field("response.mean_response_ms")
#: Smallest ratio of two times that does not round to 1.00 with two decimals.
_TWO_DIGITS = 1.005


def comparison_headlines(results: Sequence[Result]) -> list[str]:
    """Return one line of text per trace: the device with the lowest mean response time, if it is distinguishable.

    Runs of one device that differ only by their seed are combined. Runs that ended early or were overloaded do not
    characterise a device and are omitted.

    >>> import emmclab
    >>> devices = [emmclab.Device.preset(name) for name in ("iiswc15-4ps", "iiswc15-hps")]
    >>> results = emmclab.compare([emmclab.read(emmclab.bundled()[0])], devices)
    >>> "fastest" in comparison_headlines(results)[0]
    True
    """
    traces = list(dict.fromkeys(result.trace for result in results))
    lines = []
    for trace in traces:
        name = f"{trace}: " if len(traces) > 1 else ""
        lines.append(name + _fastest([run for run in results if run.trace == trace]))
    return lines


def runs_by_device(results: Sequence[Result]) -> list[tuple[str, list[Result]]]:
    """Return name and runs of each device; the runs differ by their seed.

    Devices of the same name are distinguished by their order.
    """
    runs_of: dict[tuple[str, int], list[Result]] = {}
    for run in results:
        seed, number = run.options.get("seed", 1), 0
        while any(other.options.get("seed", 1) == seed for other in runs_of.get((run.run_name, number), ())):
            number += 1
        runs_of.setdefault((run.run_name, number), []).append(run)
    return [(name, runs) for (name, _), runs in runs_of.items()]


def means_by_seed(runs: Sequence[Result]) -> dict[int, float]:
    """Return the mean response of runs of one device by their seed."""
    return {run.options.get("seed", 1): run.response.mean_response_ms for run in runs}


def _fastest(results: Sequence[Result]) -> str:
    """Return a line on the fastest device of one trace, and on the second fastest."""
    measured = [(name, means_by_seed(runs)) for name, runs in runs_by_device(results) if all(map(trusted, runs))]
    if not measured:
        return "no device served the whole trace and kept up with it"
    names, by_seed = [name for name, _ in measured], [values for _, values in measured]
    order = order_of(by_seed, is_random=any(map(is_random_run, results)))
    means = [sum(values.values()) / len(values) for values in by_seed]
    best = names[order.best]
    least, most = means[order.best], max(means[place] for place in (order.best, *order.indistinguishable))
    lowest, highest = _MEAN.compared_texts(least, most)
    alike, together = (
        order.indistinguishable,
        ", ".join(names[place] for place in (order.best, *order.indistinguishable)),
    )
    if len(names) == 1:
        others = len(runs_by_device(results)) > 1
        only = f"only {best} served the whole trace and kept up with it" if others else best
        line = f"{only}: {mean_text(least)}"
    elif alike and most == least:
        line = f"{together} are equally fast: {mean_text(least)}"
    elif alike and order.seeds > 1:
        line = f"{order.seeds} seeds do not tell {together} apart: {_MEAN.name} {lowest} to {highest}"
    elif alike:
        line = f"{together} are not told apart: {_MEAN.name} {lowest} to {highest}"
    else:
        doubt = " in the simulation; the order of the real devices is not known" if runs_note(results) else ""
        line = f"{best} is the fastest{doubt}: "
        slower = sorted((place for place in range(len(names)) if place != order.best), key=means.__getitem__)
        if slower and least:
            times = means[slower[0]] / least
            # A smaller ratio would be printed as 1.00, so the difference is printed in percent instead.
            ratio = f"{times:.2f} times" if times >= _TWO_DIGITS else f"{100 * (times - 1):+.2g} %"
            first, second = _MEAN.compared_texts(least, means[slower[0]])
            line += f"{_MEAN.name} {first}, {names[slower[0]]} {second} ({ratio})"
        else:
            line += mean_text(least)
    recorded = results[0].recorded.response.all.recorded_ms
    line += "" if recorded is None else f"; recorded {_MEAN.in_words(recorded)}"
    if len(names) > 1 and not order.is_tested:
        line += f"; {untested('--seeds 5')}"
    return line
