"""Statistics of small samples: confidence intervals, and tests of differences.

Python's standard library has no such tests. SciPy would double the size of an installation; the tests compare
these functions with it.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

#: Confidence of the interval of a mean.
CONFIDENCE = 0.95
#: The confidence as text.
CONFIDENCE_TEXT = f"{100 * CONFIDENCE:g} %"
#: Number of bisection steps in the search for a quantile.
_HALVINGS = 200
#: Maximum number of values in both sets together for which the distribution of the rank sum is computed exactly.
_MOST_EXACT = 60
#: Upper bound of the absolute value of Cliff's delta for each name of an effect size (Romano et al., 2006).
_EFFECTS = ((0.147, "negligible"), (0.33, "small"), (0.474, "medium"), (1.0, "large"))
#: Statistical power: the probability that a difference of a given size is shown.
_POWER = 0.8


class Interval(NamedTuple):
    """The bounds of an interval."""

    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether both bounds are on the same side of 0."""
        return self.low > 0 or self.high < 0


def within(t: float, degrees: int) -> float:
    """Return the probability that a value of Student's t distribution is between -t and t.

    It is computed by the sums of Abramowitz and Stegun, 26.7.3 for odd and 26.7.4 for even degrees of freedom.

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
    return _bisected(lambda t: within(t, degrees) < confidence, 1e12).high


def _bisected(holds: Callable[[float], bool], most: float) -> Interval:
    """Bisect between 0 and `most` for the largest value for which `holds` is true; return an interval around it."""
    low, high = 0.0, most
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return Interval(low, high)


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

    The bounds are then above 0 as well.

    >>> low, high = positive_interval([1.0, 1.0])
    >>> low, high
    (1.0, 1.0)
    """
    if min(values) <= 0:
        return mean_interval(values)
    interval = mean_interval([math.log(value) for value in values])
    return interval and Interval(math.exp(interval.low), math.exp(interval.high))


def difference_interval(
    first: Mapping[int, float], second: Mapping[int, float], comparisons: int, *, ratio: bool
) -> Interval | None:
    """Return the confidence interval of the difference of two settings, whose values are paired by seed.

    Both settings have the same inputs for a seed, so the interval is that of the differences per seed, or of the
    differences of logarithms if `ratio` is set and every value is above 0. The confidence holds for
    `comparisons` comparisons together (Bonferroni). None if fewer than two seeds are in both.

    >>> ratio = difference_interval({1: 1.0, 2: 1.1, 3: 0.9}, {1: 2.0, 2: 2.2, 3: 1.8}, 1, ratio=True)
    >>> round(math.exp(ratio.low), 6), round(math.exp(ratio.high), 6), ratio.excludes_zero
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


def binomial_interval(hits: int, trials: int, confidence: float) -> Interval:
    """Return the confidence interval of a probability, by Clopper and Pearson (1934).

    The error probability is split between both sides, so that the interval contains the probability with at least the
    given confidence, whatever the probability is.

    >>> [round(bound, 4) for bound in binomial_interval(0, 459, 0.99)]
    [0.0, 0.0115]
    >>> [round(bound, 4) for bound in binomial_interval(3, 20, 0.99)]
    [0.0176, 0.4495]
    """
    if trials == 0:
        return Interval(0.0, 1.0)
    doubt = (1 - confidence) / 2
    # At the lower bound, at least `hits` hits have the probability `doubt`. At the upper bound, at most `hits` hits
    # have it.
    low = 0.0 if hits == 0 else _bisected(lambda p: 1 - _at_most(hits - 1, trials, p) < doubt, 1.0).low
    high = 1.0 if hits == trials else _bisected(lambda p: _at_most(hits, trials, p) > doubt, 1.0).low
    return Interval(low, high)


def _at_most(hits: int, trials: int, probability: float) -> float:
    """Return the binomial probability of at most `hits` hits; `probability` is between 0 and 1, both excluded."""
    log_p, log_q = math.log(probability), math.log1p(-probability)
    log_factorial = math.lgamma(trials + 1)
    return math.fsum(
        math.exp(log_factorial - math.lgamma(k + 1) - math.lgamma(trials - k + 1) + k * log_p + (trials - k) * log_q)
        for k in range(hits + 1)
    )


def fisher_exact(hits: tuple[int, int], trials: tuple[int, int]) -> float:
    """Return the two-sided p-value of Fisher's exact test: the probability of tables at most as likely as this one.

    >>> round(fisher_exact((0, 5), (5, 5)), 6)
    0.007937
    >>> fisher_exact((3, 3), (10, 10))
    1.0
    """
    (first, second), total = trials, sum(hits)
    least, most = max(0, total - second), min(first, total)
    # Exact number of combinations for each possible 2x2 table.
    weights = [math.comb(first, least) * math.comb(second, total - least)]
    for i in range(least, most):
        weights.append(weights[-1] * (first - i) * (total - i) // ((i + 1) * (second - total + i + 1)))
    observed = weights[hits[0] - least]
    return sum(weight for weight in weights if weight <= observed) / sum(weights)


def trials_to_show(shares: tuple[float, float], alpha: float, power: float) -> int | None:
    """Return how many trials of each of two settings show a difference of their shares of hits.

    With this many trials, Fisher's exact test gives a p below `alpha` with at least the probability `power`, by the
    formula of Casagrande, Pike and Smith (Applied Statistics, 1978). If a share is near 0 or 1, two thirds of the
    trials may be enough. None if the shares are equal.

    >>> [trials_to_show(shares, 0.01, 0.9) for shares in ((0.0, 0.98), (0.05, 0.09), (1.0, 1.0))]
    [7, 1258, None]
    """
    first, second = shares
    if first == second:
        return None
    normal, mean, distance = NormalDist(), (first + second) / 2, abs(first - second)
    both = normal.inv_cdf(1 - alpha / 2) * math.sqrt(2 * mean * (1 - mean))
    each = normal.inv_cdf(power) * math.sqrt(first * (1 - first) + second * (1 - second))
    uncorrected = (both + each) ** 2 / distance**2
    return math.ceil(uncorrected / 4 * (1 + math.sqrt(1 + 4 / (uncorrected * distance))) ** 2)


def cliffs_delta(before: Sequence[float], after: Sequence[float]) -> float:
    """Return Cliff's delta: the share of pairs in which `after` is larger, minus that in which it is smaller; -1 to 1.

    >>> cliffs_delta([1, 2], [3, 4]), cliffs_delta([1, 2], [1, 2])
    (1.0, 0.0)
    """
    pairs = len(before) * len(after)
    ranks, _ = _ranks([*before, *after])
    larger = sum(ranks[len(before) :]) / 2 - len(after) * (len(after) + 1) / 2
    return 2 * larger / pairs - 1


def effect(delta: float) -> str:
    """Return a word for the size of a difference, given as Cliff's delta.

    >>> effect(-0.2), effect(0.9)
    ('small', 'large')
    """
    return next(name for most, name in _EFFECTS if abs(delta) <= most)


class Ranks(NamedTuple):
    """Ranks times two, so that tied values have integer ranks, and the number of values in each tie."""

    doubled: list[int]
    ties: list[int]


def _ranks(values: Sequence[float]) -> Ranks:
    order = sorted(range(len(values)), key=values.__getitem__)
    doubled = [0] * len(values)
    ties = []
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for position in order[start:end]:
            doubled[position] = start + end + 1
        ties.append(end - start)
        start = end
    return Ranks(doubled, ties)


def mann_whitney(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the two-sided p-value of the Mann-Whitney test (1947) of whether both sets have the same distribution.

    For up to 60 values, the distribution of the rank sum is computed exactly over all divisions of the values into two
    sets, ties included. For more values, the normal approximation is used, corrected for ties and continuity.

    >>> mann_whitney([1, 2, 3], [4, 5, 6])
    0.1
    """
    ranks, ties = _ranks([*before, *after])
    count, smaller = len(ranks), min(len(before), len(after))
    rank_sum = sum(ranks[: len(before)] if len(before) <= len(after) else ranks[len(before) :])
    expected = smaller * (count + 1)
    if count <= _MOST_EXACT:
        return _exact(ranks, smaller, abs(rank_sum - expected), expected)
    tied = sum(size**3 - size for size in ties) / (count * (count - 1))
    # `_ranks` returns doubled ranks, so this is four times the variance of the rank sum.
    variance = smaller * (count - smaller) / 3 * (count + 1 - tied)
    if variance <= 0:
        return 1.0
    return math.erfc(max(0, abs(rank_sum - expected) - 1) / math.sqrt(2 * variance))


def _exact(ranks: Sequence[int], smaller: int, distance: int, expected: int) -> float:
    """Return the share of divisions of the ranks into two sets that have an extreme rank sum.

    The rank sum of the smaller set is extreme if it is at least `distance` away from `expected`. The numbers of
    divisions by rank sum are packed into one big integer for each size of the smaller set. A shift then adds a rank to
    all of them.
    """
    divisions = math.comb(len(ranks), smaller)
    width = divisions.bit_length()
    by_size = [1] + [0] * smaller
    for rank in ranks:
        for size in range(smaller, 0, -1):
            by_size[size] += by_size[size - 1] << (width * rank)
    mask = (1 << width) - 1
    sums, extreme = by_size[smaller], 0
    for total in range(2 * expected + 1):
        if abs(total - expected) >= distance:
            extreme += sums >> (width * total) & mask
    return extreme / divisions


def least_p(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the smallest p-value that sets of these sizes can have, without ties or with the ties of these values.

    It results if all values of one set are above those of the other. With ties, this may be possible in only one
    direction.

    >>> least_p([1, 2, 3], [4, 5, 6]), least_p([1], [0, 0])
    (0.1, 0.3333333333333333)
    """
    values, size = sorted([*before, *after]), len(before)
    return min(
        2 / math.comb(len(values), size),
        mann_whitney(values[:size], values[size:]),
        mann_whitney(values[-size:], values[:-size]),
    )


def recordings_needed(tests: int, alpha: float) -> int:
    """Return how many recordings per fleet are needed to show a difference when `tests` figures are compared.

    With fewer recordings, p is above the corrected significance level, even if all values of one fleet are above those
    of the other.

    >>> recordings_needed(12, 0.05), recordings_needed(15, 0.05)
    (6, 6)
    """
    count = 1
    while 2 / math.comb(2 * count, count) * tests > alpha:
        count += 1
    return count


def recordings_to_show(delta: float, tests: int, alpha: float, power: float = _POWER) -> int | None:
    """Return how many recordings each of two fleets needs to show a difference of the size `delta`.

    `delta` is a Cliff's delta. With this many recordings, the Mann-Whitney test detects the difference with the
    probability `power`, by Noether's formula (1987); p is corrected for the `tests` figures that are compared. None if
    `delta` is 0.

    >>> recordings_to_show(0.5, 15, 0.05), recordings_to_show(-0.1, 15, 0.05), recordings_to_show(0, 15, 0.05)
    (39, 951, None)
    """
    if delta == 0:
        return None
    normal = NormalDist()
    z = normal.inv_cdf(1 - alpha / tests / 2) + normal.inv_cdf(power)
    return max(recordings_needed(tests, alpha), math.ceil(2 * z**2 / (3 * delta**2)))


def holm(values: Sequence[float], tests: int) -> list[float]:
    """Correct p-values for the number of tests (Holm, 1979), so that they hold for all tests together.

    >>> holm([0.01, 0.04, 0.03], 3)
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(values)
    largest = 0.0
    for rank, position in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        largest = max(largest, min(1.0, (tests - rank) * values[position]))
        corrected[position] = largest
    return corrected
