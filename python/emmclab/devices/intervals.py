"""Confidence intervals over seeds: of a mean, and of the difference of two settings paired by seed."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: Confidence of every interval.
CONFIDENCE = 0.95
#: The confidence as text.
CONFIDENCE_TEXT = f"{100 * CONFIDENCE:g} %"
#: Number of bisection steps in the search for a quantile.
_HALVINGS = 200


class Interval(NamedTuple):
    """The bounds of an interval."""

    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether both bounds are on the same side of 0."""
        return self.low > 0 or self.high < 0


def within(t: float, degrees: int) -> float:
    """Return the probability of Student's t distribution between -t and t.

    It is computed by the sums of Abramowitz and Stegun, 26.7.3 for odd and 26.7.4 for even degrees of
    freedom.

    >>> round(within(12.706, 1), 4), round(within(2.571, 5), 4), round(within(2.228, 10), 4)
    (0.95, 0.95, 0.95)
    """
    angle = math.atan(t / math.sqrt(degrees))
    sine, squared = math.sin(angle), math.cos(angle) ** 2
    odd = degrees % 2
    if degrees == 1:
        return 2 * angle / math.pi
    term = math.cos(angle) if odd else 1.0
    total = term
    for number in range(2 + odd, degrees - 1, 2):
        term *= squared * (number - 1) / number
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


@functools.cache
def t_quantile(confidence: float, degrees: int) -> float:
    """Return the two-sided quantile: the t for which `within` is `confidence`.

    >>> [round(t_quantile(0.95, degrees), 3) for degrees in (1, 2, 4, 30)]
    [12.706, 4.303, 2.776, 2.042]
    """
    low, high = 0.0, 1e12
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, degrees) < confidence else (low, middle)
    return high


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Return the confidence interval of a mean; None for a single value.

    >>> low, high = mean_interval([1.0, 2.0, 3.0])
    >>> round(low, 3), round(high, 3)
    (-0.484, 4.484)
    >>> mean_interval([1.0]) is None
    True
    """
    count = len(values)
    if count < 2:
        return None
    mean = math.fsum(values) / count
    squares = math.fsum((value - mean) ** 2 for value in values)
    half = t_quantile(confidence, count - 1) * math.sqrt(squares / (count - 1) / count)
    return Interval(mean - half, mean + half)


def positive_interval(values: Sequence[float]) -> Interval | None:
    """Return the confidence interval of a mean, computed on logarithms if every value is above 0.

    The bounds of times and ratios are then above 0, too.

    >>> low, high = positive_interval([1.0, 1.0])
    >>> low, high
    (1.0, 1.0)
    """
    if min(values) <= 0:
        return mean_interval(values)
    found = mean_interval([math.log(value) for value in values])
    return found and Interval(math.exp(found.low), math.exp(found.high))


def difference_interval(
    first: Mapping[int, float], second: Mapping[int, float], comparisons: int, *, ratio: bool
) -> Interval | None:
    """Return the confidence interval of the difference of two settings, paired by seed.

    Both have the same inputs for a seed, so that the interval is that of the differences per seed: of
    logarithms if `ratio` is set and every value is above 0. The confidence holds for `comparisons`
    comparisons together (Bonferroni). None if they have fewer than two seeds in common.

    >>> apart = difference_interval({1: 1.0, 2: 1.1, 3: 0.9}, {1: 2.0, 2: 2.2, 3: 1.8}, 1, ratio=True)
    >>> round(math.exp(apart.low), 6), round(math.exp(apart.high), 6), apart.excludes_zero
    (2.0, 2.0, True)
    >>> difference_interval({1: 1.0}, {1: 2.0}, 1, ratio=True) is None
    True
    """
    pairs = [(first[seed], second[seed]) for seed in first if seed in second]
    if ratio and all(min(pair) > 0 for pair in pairs):
        differences = [math.log(after / before) for before, after in pairs]
    else:
        differences = [after - before for before, after in pairs]
    return mean_interval(differences, 1 - (1 - CONFIDENCE) / max(comparisons, 1))
