"""The statistics of small samples agree with SciPy."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from emmclab.runtime import statistics
from emmclab.runtime.statistics import (
    binomial_interval,
    cliffs_delta,
    difference_interval,
    fisher_exact,
    mann_whitney,
    mean_interval,
    positive_interval,
    t_quantile,
)

CONFIDENCES = st.floats(0.5, 0.9999)
SAMPLES = st.lists(st.floats(0.01, 1e4), min_size=2, max_size=20)
COUNTS = st.lists(st.integers(0, 30), min_size=1, max_size=25)


@given(CONFIDENCES, st.integers(1, 200))
def test_quantiles_of_students_t_agree(confidence: float, degrees: int) -> None:
    assert t_quantile(confidence, degrees) == pytest.approx(stats.t.ppf((1 + confidence) / 2, degrees))


@given(SAMPLES, CONFIDENCES)
def test_intervals_of_means_agree(values: list[float], confidence: float) -> None:
    found = mean_interval(values, confidence)
    assert found is not None
    # SciPy loses digits of values that are nearly equal.
    if max(values) - min(values) > 1e-3 * max(values):
        right = stats.ttest_1samp(values, 0).confidence_interval(confidence)
        assert found == pytest.approx((right.low, right.high), rel=1e-6, abs=1e-6)
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
    found = difference_interval(first, second, 1, ratio=False)
    if max(differences) - min(differences) > 1e-6:
        right = stats.ttest_rel(list(second.values()), list(first.values())).confidence_interval(0.95)
        assert found == pytest.approx((right.low, right.high), rel=1e-6, abs=1e-6)


@given(st.integers(1, 400), st.data(), CONFIDENCES)
def test_intervals_of_probabilities_agree(trials: int, data: st.DataObject, confidence: float) -> None:
    hits = data.draw(st.integers(0, trials))
    # With one bound only, SciPy's interval has half of the error probability there.
    doubt = (1 - confidence) * (1 if 0 < hits < trials else 2)
    if doubt < 1:
        right = stats.binomtest(hits, trials).proportion_ci(1 - doubt, method="exact")
        found = binomial_interval(hits, trials, confidence)
        assert found == pytest.approx((right.low, right.high), rel=1e-6, abs=1e-9)


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
