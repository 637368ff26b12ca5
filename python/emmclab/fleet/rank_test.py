"""Tests whether a figure differs between two sets of recordings, and by how much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

#: Maximum total number of values of both sets for which the distribution of the rank sum is exact.
_MOST_EXACT = 60
#: Maximum of Cliff's delta for each name of a size (Romano et al., 2006).
_EFFECTS = ((0.147, "negligible"), (0.33, "small"), (0.474, "medium"), (1.0, "large"))

#: Statistical power: the probability that a difference of a given size is shown.
_POWER = 0.8


def cliffs_delta(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the share of pairs in which `after` is larger, minus that in which it is smaller: -1 to 1.

    >>> cliffs_delta([1, 2], [3, 4]), cliffs_delta([1, 2], [1, 2])
    (1.0, 0.0)
    """
    pairs = len(before) * len(after)
    ranks, _ = _ranks([*before, *after])
    larger = sum(ranks[len(before) :]) / 2 - len(after) * (len(after) + 1) / 2
    return 2 * larger / pairs - 1


def effect(delta: float) -> str:
    """Name the size of a difference by Cliff's delta.

    >>> effect(-0.2), effect(0.9)
    ('small', 'large')
    """
    return next(word for most, word in _EFFECTS if abs(delta) <= most)


class Ranks(NamedTuple):
    """Ranks multiplied by two, so that those of ties are whole numbers, and the sizes of groups of ties."""

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
        for place in order[start:end]:
            doubled[place] = start + end + 1
        ties.append(end - start)
        start = end
    return Ranks(doubled, ties)


def mann_whitney(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the two-sided p-value of the Mann-Whitney test (1947) that both sets have one distribution.

    For up to 60 values the distribution of the rank sum is computed exactly over all divisions of the values,
    ties included. For more, the normal approximation is used, corrected for ties and continuity.

    >>> mann_whitney([1, 2, 3], [4, 5, 6])
    0.1
    """
    ranks, ties = _ranks([*before, *after])
    count, few = len(ranks), min(len(before), len(after))
    found = sum(ranks[: len(before)] if len(before) <= len(after) else ranks[len(before) :])
    expected = few * (count + 1)
    if count <= _MOST_EXACT:
        return _exact(ranks, few, abs(found - expected), expected)
    tied = sum(size**3 - size for size in ties) / (count * (count - 1))
    # `_ranks` returns doubled ranks, so this is four times the variance of the rank sum.
    variance = few * (count - few) / 3 * (count + 1 - tied)
    if variance <= 0:
        return 1.0
    return math.erfc(max(0, abs(found - expected) - 1) / math.sqrt(2 * variance))


def _exact(ranks: Sequence[int], few: int, away: int, expected: int) -> float:
    """Count the divisions whose rank sum is at least as far from the expected value.

    For each size of the smaller set, the numbers of divisions by rank sum are packed into one big integer, so
    that a rank is added to all of them by a shift.
    """
    divisions = math.comb(len(ranks), few)
    width = divisions.bit_length()
    by_size = [1] + [0] * few
    for rank in ranks:
        for size in range(few, 0, -1):
            by_size[size] += by_size[size - 1] << (width * rank)
    mask = (1 << width) - 1
    sums, far = by_size[few], 0
    for total in range(2 * expected + 1):
        if abs(total - expected) >= away:
            far += sums >> (width * total) & mask
    return far / divisions


def least_p(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the smallest p-value possible with this many values, or with these values and their ties.

    If all values differ, it is that of complete separation in either direction; ties may leave only one
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
    """Return the recordings per fleet needed to show a difference in one of this many figures.

    With this many different values, complete separation reaches the corrected significance level.

    >>> recordings_needed(12, 0.05), recordings_needed(15, 0.05)
    (6, 6)
    """
    each = 1
    while 2 / math.comb(2 * each, each) * tests > alpha:
        each += 1
    return each


def recordings_to_show(delta: float, tests: int, alpha: float) -> int | None:
    """Return the recordings per fleet needed to show a difference of this size in one of several figures.

    With this many recordings, the Mann-Whitney test finds a difference of Cliff's delta `delta` in 4 of 5
    cases, by Noether's formula (1987) and with p corrected for all the figures; None for a delta of 0.

    >>> recordings_to_show(0.5, 15, 0.05), recordings_to_show(-0.1, 15, 0.05), recordings_to_show(0, 15, 0.05)
    (39, 951, None)
    """
    if delta == 0:
        return None
    normal = NormalDist()
    z = normal.inv_cdf(1 - alpha / tests / 2) + normal.inv_cdf(_POWER)
    return max(recordings_needed(tests, alpha), math.ceil(2 * z**2 / (3 * delta**2)))


def holm(values: Sequence[float], tests: int) -> list[float]:
    """Correct p-values for the number of tests (Holm, 1979), so that they hold for all tests together.

    >>> holm([0.01, 0.04, 0.03], 3)
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        largest = max(largest, min(1.0, (tests - rank) * values[place]))
        corrected[place] = largest
    return corrected
