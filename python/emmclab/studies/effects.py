"""The effect of each swept key of a grid, paired over the other keys, the inputs and the seeds."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from emmclab.runtime.statistics import CONFIDENCE, Interval, difference_interval

#: Maximum exponent of a printed ratio; intervals over few seeds can exceed any number.
_MOST_EXPONENT = 100.0

#: The setting of a run: pairs of swept key and value, in the order of the study.
Setting = tuple[tuple[str, Any], ...]


class Effect(NamedTuple):
    """The best and the worst value of a key by a metric, with everything else equal."""

    key: str
    best: Any
    worst: Any
    best_mean: float
    worst_mean: float
    #: Pairs of runs that differ only in this key: one with the best value, one with the worst.
    pairs: int
    #: Pairs in which the best value is better.
    agreeing: int
    #: Difference of the worst from the best, in percent, or in points for a share; None with a single seed.
    interval: Interval | None
    #: Whether the difference is not chance: by the interval over the seeds, or by the signs of the pairs.
    is_told: bool


def effects_of(
    found: Mapping[tuple[str, Setting], Mapping[int, float]], *, highest_is_best: bool = False, is_ratio: bool = True
) -> list[Effect]:
    """Return the effect of each key on a metric, which `found` gives by input, setting and seed.

    Only combinations of an input and other settings count that have every value of the key. The interval is
    over the seeds, of means over these combinations. The test of signs takes the pairs as independent.

    >>> times = {("chat", (("op", op), ("gc", gc))): {seed: 100 / op + gc + seed / 9 for seed in (1, 2, 3)}
    ...     for op in (10, 20) for gc in (1, 2)}
    >>> [(one.key, one.best, one.pairs, one.agreeing, one.is_told) for one in effects_of(times)]
    [('op', 20, 6, 6, True), ('gc', 1, 6, 6, True)]
    """
    effects = []
    for key, _ in next(iter(found))[1] if found else ():
        # Compared as text: 1 and true are different settings, and a list in a file is not hashable.
        values: dict[str, Any] = {}
        groups: dict[tuple[str, str], dict[str, Mapping[int, float]]] = {}
        for (name, setting), by_seed in found.items():
            value = dict(setting)[key]
            values[repr(value)] = value
            others = repr([pair for pair in setting if pair[0] != key])
            groups.setdefault((name, others), {})[repr(value)] = by_seed
        whole = [group for group in groups.values() if len(group) == len(values) > 1]
        runs = [by_seed for group in whole for by_seed in group.values()]
        seeds = [seed for seed in runs[0] if all(seed in one for one in runs)] if runs else []
        if seeds:
            effects.append(_effect(key, values, whole, seeds, highest_is_best, is_ratio))
    return effects


def _effect(
    key: str,
    values: Mapping[str, Any],
    groups: Sequence[Mapping[str, Mapping[int, float]]],
    seeds: Sequence[int],
    highest_is_best: bool,
    is_ratio: bool,
) -> Effect:
    by_seed = {
        value: {seed: average([group[value][seed] for group in groups], arithmetic=not is_ratio) for seed in seeds}
        for value in values
    }
    means = {value: sum(found.values()) / len(seeds) for value, found in by_seed.items()}
    order = sorted(means, key=means.__getitem__, reverse=highest_is_best)
    best, worst = order[0], order[-1]
    changes = [group[worst][seed] - group[best][seed] for group in groups for seed in seeds]
    agreeing = sum(change < 0 if highest_is_best else change > 0 for change in changes)
    # The best and the worst were chosen from all pairs of values.
    chance = math.comb(len(values), 2) * _chance(agreeing, len(changes))
    first, last = by_seed[best], by_seed[worst]
    interval = difference_interval(first, last, len(values) - 1, ratio=is_ratio)
    return Effect(
        key,
        values[best],
        values[worst],
        means[best],
        means[worst],
        len(changes),
        agreeing,
        interval and as_change(interval, first, last, is_ratio=is_ratio),
        chance < 1 - CONFIDENCE or (interval is not None and interval.excludes_zero),
    )


def as_change(
    interval: Interval, first: Mapping[int, float], second: Mapping[int, float], *, is_ratio: bool
) -> Interval:
    """Convert the interval of a difference of logarithms to percent of the first; others are unchanged."""
    if not is_ratio or min(*first.values(), *second.values()) <= 0:
        return interval
    return Interval(*(100 * math.expm1(min(bound, _MOST_EXPONENT)) for bound in interval))


def _chance(agreeing: int, pairs: int) -> float:
    """Return the probability of so many pairs or more with the same sign, if both signs are equally probable.

    >>> _chance(6, 6), _chance(5, 6)
    (0.03125, 0.21875)
    """
    if 2 * agreeing <= pairs:
        return 1.0
    extreme: int = sum(math.comb(pairs, rest) for rest in range(pairs - agreeing + 1))
    return min(1.0, float(2 * extreme / 2**pairs))


def average(values: Sequence[float], *, arithmetic: bool = False) -> float:
    """Return the geometric mean, or the arithmetic mean if requested or if a value is not above 0.

    >>> average([1.0, 4.0]), average([1.0, 4.0], arithmetic=True)
    (2.0, 2.5)
    """
    if arithmetic or min(values) <= 0:
        return sum(values) / len(values)
    return math.exp(sum(map(math.log, values)) / len(values))
