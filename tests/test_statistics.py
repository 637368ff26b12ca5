"""Statistics agree with SciPy, and give no statement on fleets with too little data."""

import itertools
import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from emmclab.fleet.summary import OUTLYING, deviations, percentile
from emmclab.runtime import statistics
from emmclab.runtime.statistics import (
    binomial_interval,
    cliffs_delta,
    difference_interval,
    fisher_exact,
    holm,
    least_p,
    mann_whitney,
    mean_interval,
    positive_interval,
    t_quantile,
    trials_to_show,
)

CONFIDENCES = st.floats(0.5, 0.9999)
SAMPLES = st.lists(st.floats(0.01, 1e4), min_size=2, max_size=20)
COUNTS = st.lists(st.integers(0, 30), min_size=1, max_size=25)


@given(CONFIDENCES, st.integers(1, 200))
def test_quantiles_of_students_t_agree(confidence: float, degrees: int) -> None:
    assert t_quantile(confidence, degrees) == pytest.approx(stats.t.ppf((1 + confidence) / 2, degrees))


@given(SAMPLES, CONFIDENCES)
def test_intervals_of_means_agree(values: list[float], confidence: float) -> None:
    result = mean_interval(values, confidence)
    assert result is not None
    # SciPy loses digits of values that are nearly equal.
    if max(values) - min(values) > 1e-3 * max(values):
        right = stats.ttest_1samp(values, 0).confidence_interval(confidence)
        assert result == pytest.approx((right.low, right.high), rel=1e-6, abs=1e-6)
        logs = stats.ttest_1samp([math.log(value) for value in values], 0).confidence_interval(0.95)
        above = positive_interval(values)
        assert above is not None
        assert [math.log(bound) for bound in above if 0 < bound < math.inf] == pytest.approx(
            [bound for bound in logs if abs(bound) < 700], rel=1e-6, abs=1e-6
        )


@given(st.lists(st.tuples(st.floats(0.1, 1e3), st.floats(0.1, 1e3)), min_size=3, max_size=10))
def test_intervals_of_differences_are_those_of_pairs(pairs: list[tuple[float, float]]) -> None:
    first, second = ({seed: pair[side] for seed, pair in enumerate(pairs)} for side in (0, 1))
    differences = [after - before for before, after in pairs]
    result = difference_interval(first, second, 1, ratio=False)
    if max(differences) - min(differences) > 1e-6:
        right = stats.ttest_rel(list(second.values()), list(first.values())).confidence_interval(0.95)
        assert result == pytest.approx((right.low, right.high), rel=1e-6, abs=1e-6)


@given(st.integers(1, 400), st.data(), CONFIDENCES)
def test_intervals_of_probabilities_agree(trials: int, data: st.DataObject, confidence: float) -> None:
    hits = data.draw(st.integers(0, trials))
    right = stats.binomtest(hits, trials).proportion_ci(confidence, method="exact")
    result = binomial_interval(hits, trials, confidence)
    assert result == pytest.approx((right.low, right.high), rel=1e-6, abs=1e-9)


@given(st.integers(1, 60), st.floats(0.001, 0.999), st.sampled_from([0.8, 0.95, 0.99]))
def test_intervals_of_probabilities_cover_each_probability(trials: int, probability: float, confidence: float) -> None:
    intervals = [binomial_interval(hits, trials, confidence) for hits in range(trials + 1)]
    covering = [hits for hits, bounds in enumerate(intervals) if bounds.low <= probability <= bounds.high]
    assert sum(stats.binom.pmf(covering, trials, probability)) >= confidence - 1e-9


@pytest.mark.parametrize("shares", [(0.0, 0.98), (0.0, 0.03), (0.05, 0.2), (0.5, 0.9)])
def test_as_many_trials_as_are_named_show_the_difference_with_the_power(shares: tuple[float, float]) -> None:
    trials = trials_to_show(shares, 0.01, 0.9)
    assert trials is not None

    def power(number: int) -> float:
        first, second = (stats.binom.pmf(range(number + 1), number, share) for share in shares)
        likely = [(i, j) for i in range(number + 1) for j in range(number + 1) if first[i] * second[j] > 1e-7]
        shown = (pair for pair in likely if fisher_exact(pair, (number, number)) < 0.01)
        return math.fsum(first[i] * second[j] for i, j in shown)

    assert power(trials) >= 0.89 and power(trials // 2) < 0.89


@given(st.integers(1, 40), st.integers(1, 40), st.data())
def test_fishers_exact_test_agrees(first: int, second: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, first)), data.draw(st.integers(0, second))
    table = [[hits[0], first - hits[0]], [hits[1], second - hits[1]]]
    assert fisher_exact(hits, (first, second)) == pytest.approx(stats.fisher_exact(table).pvalue)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=16, unique=True), st.data())
def test_the_mann_whitney_test_agrees_for_values_without_ties(values: list[float], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, len(values) - 1))
    before, after = values[:size], values[size:]
    right = stats.mannwhitneyu(after, before, method="exact")
    assert mann_whitney(before, after) == pytest.approx(right.pvalue)
    assert cliffs_delta(before, after) == pytest.approx(2 * right.statistic / (len(before) * len(after)) - 1)


@given(COUNTS, COUNTS)
def test_its_normal_approximation_agrees_with_ties(before: list[int], after: list[int]) -> None:
    if len({*before, *after}) > 1:
        right = stats.mannwhitneyu(before, after, method="asymptotic").pvalue
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(statistics, "_MOST_EXACT", 0)
            assert mann_whitney(before, after) == pytest.approx(right)


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
def test_p_is_a_probability_without_order_and_never_below_the_least(before: list[float], after: list[float]) -> None:
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
    result = percentile(ordered, share)
    assert ordered[0] - 1e-6 <= result <= ordered[-1] + 1e-6
