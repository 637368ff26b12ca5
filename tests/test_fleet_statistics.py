"""Outliers and differences of fleets: exact if they can be counted, no statement if data is insufficient."""

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from emmclab.fleet.summary import OUTLYING, deviations, percentile
from emmclab.runtime.statistics import cliffs_delta, holm, least_p, mann_whitney

FEW = st.lists(st.integers(0, 6), min_size=1, max_size=5)
NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


def larger_pairs(before: Sequence[float], after: Sequence[float]) -> float:
    """Mann and Whitney's U by its definition: pairs in which `after` is larger, ties as half."""
    return sum((b > a) + (b == a) / 2 for a, b in itertools.product(before, after))


@given(FEW, FEW)
def test_p_is_the_share_of_divisions_that_are_as_uneven(before: list[int], after: list[int]) -> None:
    everything = [*before, *after]
    middle = len(before) * len(after) / 2
    away = abs(larger_pairs(before, after) - middle)
    divisions = as_uneven = 0
    for chosen in itertools.combinations(range(len(everything)), len(before)):
        first = [everything[place] for place in chosen]
        second = [value for place, value in enumerate(everything) if place not in chosen]
        divisions += 1
        as_uneven += abs(larger_pairs(first, second) - middle) >= away - 1e-9
    assert mann_whitney(before, after) == pytest.approx(as_uneven / divisions)


@given(NUMBERS, NUMBERS)
def test_delta_is_the_difference_of_the_shares_of_pairs(before: list[float], after: list[float]) -> None:
    pairs = len(before) * len(after)
    assert cliffs_delta(before, after) == pytest.approx(2 * larger_pairs(before, after) / pairs - 1)
    assert cliffs_delta(after, before) == pytest.approx(-cliffs_delta(before, after))


@given(NUMBERS, NUMBERS)
@example([1.0], [0.0, 0.0])
def test_p_is_a_probability_does_not_know_the_order_and_is_never_below_the_least(
    before: list[float], after: list[float]
) -> None:
    p = mann_whitney(before, after)
    assert 0 < p <= 1
    assert p == pytest.approx(mann_whitney(after, before))
    assert p >= least_p(before, after) * (1 - 1e-12)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_a_corrected_p_is_never_smaller_and_keeps_the_order(values: list[float]) -> None:
    corrected = holm(values, len(values))
    assert all(after >= before for before, after in zip(values, corrected, strict=True))
    order = sorted(range(len(values)), key=values.__getitem__)
    assert [corrected[place] for place in order] == sorted(corrected)
    assert min(corrected) == pytest.approx(min(1, len(values) * min(values)))


def test_the_recording_that_stands_apart_is_named_and_no_other() -> None:
    draw = random.Random(3)
    values = [draw.lognormvariate(0, 0.3) for _ in range(100)]
    scores = deviations([*values, 40.0], logarithmic=True)
    assert scores[-1] > OUTLYING
    assert sum(abs(score) > OUTLYING for score in scores[:-1]) <= 1
    # If half of the values are equal, the median distance is 0, so that the mean distance is used.
    assert deviations([*[5.0] * 30, 90.0], logarithmic=False)[-1] > OUTLYING
    # A value of 0 has no logarithm.
    assert deviations([0.0, 1.0, 2.0], logarithmic=True) == deviations([0.0, 1.0, 2.0], logarithmic=False)


@given(NUMBERS, st.floats(0, 100))
def test_a_percentile_lies_between_the_values(values: list[float], share: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, share)
    assert ordered[0] - 1e-6 <= found <= ordered[-1] + 1e-6
