"""The distribution of a figure over recordings: percentiles and outliers."""

import math
from collections.abc import Sequence
from statistics import NormalDist, median

#: Percentiles in the summary of a distribution over recordings.
POINTS = (0, 5, 25, 50, 75, 95, 100)
#: Modified z-score above which a value is an outlier (Iglewicz and Hoaglin, "How to Detect and Handle
#: Outliers", 1993).
OUTLYING = 3.5
#: Minimum number of values for which outliers are reported.
LEAST_FOR_OUTLIERS = 8


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return a percentile of sorted values, by linear interpolation.

    >>> percentile([1.0, 2.0, 4.0], 50), percentile([1.0, 2.0], 75)
    (2.0, 1.75)
    """
    place = (len(ordered) - 1) * share / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def deviations(values: Sequence[float], *, logarithmic: bool) -> list[float]:
    """Return the modified z-score of each value: its distance from the median in robust standard deviations.

    That is 0.6745 (x - median) / MAD, where MAD is the median of the distances from the median. If more than
    half of the values are equal, MAD is 0 and the mean distance (times 1.2533) is used instead. With
    `logarithmic`, distances are those of logarithms if all values are above 0, because times, sizes and rates
    differ by factors.

    >>> [round(score, 2) for score in deviations([1, 2, 3, 4, 40], logarithmic=False)]
    [-1.35, -0.67, 0.0, 0.67, 24.96]
    >>> deviations([7, 7, 7], logarithmic=False)
    [0.0, 0.0, 0.0]
    """
    if logarithmic and min(values) > 0:
        values = [math.log(value) for value in values]
    middle = median(values)
    distances = [abs(value - middle) for value in values]
    unit = median(distances) / NormalDist().inv_cdf(0.75)
    unit = unit or math.sqrt(math.pi / 2) * sum(distances) / len(distances)
    return [(value - middle) / unit if unit else 0.0 for value in values]
