"""Statistics of power cuts: bounds of the probability of a loss, and the number of clean cuts needed."""

from __future__ import annotations

import math
from collections.abc import Callable

#: Confidence of every bound.
CONFIDENCE = 0.99
_HALVINGS = 100


def clean_cuts_needed(probability: float, confidence: float = CONFIDENCE) -> int:
    """Return how many cuts without a loss show that the probability of a loss is below `probability`.

    With a probability of `p` the chance of `n` clean cuts is `(1 - p)^n`; `n` is the least number for which
    it is at most `1 - confidence`. At a confidence of 95 % this is the "rule of three", `n = 3 / p`.

    >>> [clean_cuts_needed(p) for p in (0.1, 0.01, 0.001)]
    [44, 459, 4603]
    >>> clean_cuts_needed(0.01, confidence=0.95)
    299
    """
    return math.ceil(math.log(1 - confidence) / math.log1p(-probability))


def bounds(losing: int, cuts: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the bounds of the probability of a loss, by Clopper and Pearson (1934).

    The error probability is split between both sides. If no cut or every cut loses data, only one bound is
    computed, with the whole error probability.

    >>> [round(bound, 4) for bound in bounds(0, 459)]
    [0.0, 0.01]
    >>> [round(bound, 4) for bound in bounds(3, 20)]
    [0.0176, 0.4495]
    >>> bounds(0, 0)
    (0.0, 1.0)
    """
    if cuts == 0:
        return 0.0, 1.0
    doubt = (1 - confidence) / (2 if 0 < losing < cuts else 1)
    # At the lower bound, at least this many losses have the probability `doubt`; at the upper bound, at most
    # as many.
    low = 0.0 if losing == 0 else _where(lambda p: 1 - _at_most(losing - 1, cuts, p) < doubt)
    high = 1.0 if losing == cuts else _where(lambda p: _at_most(losing, cuts, p) > doubt)
    return low, high


def _where(holds: Callable[[float], bool]) -> float:
    """Return the upper end of the range of probabilities, from 0, for which `holds` is true."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _at_most(losing: int, cuts: int, probability: float) -> float:
    """Return the binomial probability of at most `losing` losses."""
    if not 0 < probability < 1:
        return 1.0 if probability <= 0 or losing >= cuts else 0.0
    log_p, log_q = math.log(probability), math.log1p(-probability)
    whole = math.lgamma(cuts + 1)
    return math.fsum(
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(cuts - k + 1) + k * log_p + (cuts - k) * log_q)
        for k in range(losing + 1)
    )
