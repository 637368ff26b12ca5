"""Summarises all cuts of a log."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from emmclab.real_devices.durability.log import Session
from emmclab.real_devices.durability.verdict import FINDINGS, Verdict
from emmclab.runtime.statistics import binomial_interval

#: Confidence of every bound.
CONFIDENCE = 0.99
#: Probabilities of a loss for which the needed number of clean cuts is printed.
_GOALS = (0.1, 0.01, 0.001)


@dataclass(frozen=True)
class Share:
    """Number of cuts with a finding.

    Attributes:
        finding: a name of `FINDINGS`, or `broken` for any finding that breaks a promise.
        cuts: cuts that show it.
        low: lower bound of its probability per cut.
        high: upper bound.
    """

    finding: str
    cuts: int
    low: float
    high: float


@dataclass(frozen=True)
class Report:
    """Summary of all cuts of a log.

    Attributes:
        cuts: runs that ended with a cut and were checked.
        uncut: runs that were checked, but show no evidence of a cut; they are not counted.
        unchecked: runs that were not checked before the next one began.
        damaged: lines of the log that are damaged.
        harmless: cuts that lost nothing, not even unflushed data: the cache may have been empty.
        shares: how many cuts show each finding, with the bounds of its probability.
        trims_old: cuts after which trimmed blocks returned old data; this is allowed.
        confidence: of the bounds.
        goals: probabilities, each with the number of clean cuts that prove a lower one.
    """

    cuts: int
    uncut: int
    unchecked: int
    damaged: int
    harmless: int
    shares: list[Share]
    trims_old: int
    confidence: float
    goals: dict[str, int]

    @property
    def broken(self) -> int:
        """Number of cuts that broke a promise."""
        return next(share.cuts for share in self.shares if share.finding == "broken")

    def to_dict(self) -> dict[str, object]:
        """Return all fields as JSON values."""
        return asdict(self)


def report_of(session: Session) -> Report:
    """Summarise the cuts of a log.

    >>> report_of(Session()).goals
    {'10 %': 44, '1 %': 459, '0.1 %': 4603}
    """
    judged = [run.verdict for run in session.runs if run.verdict is not None]
    cuts = [verdict for verdict in judged if verdict.is_cut]
    return Report(
        cuts=len(cuts),
        uncut=len(judged) - len(cuts),
        unchecked=len(session.runs) - len(judged),
        damaged=session.damaged,
        harmless=sum(not (verdict.found or verdict.unflushed_lost) for verdict in cuts),
        shares=_shares(cuts),
        trims_old=sum(verdict.trimmed_old > 0 for verdict in cuts),
        confidence=CONFIDENCE,
        goals={f"{100 * goal:g} %": clean_cuts_needed(goal) for goal in _GOALS},
    )


def _shares(cuts: Sequence[Verdict]) -> list[Share]:
    counts = {"broken": sum(bool(verdict.broken) for verdict in cuts)}
    counts |= {name: sum(name in verdict.found for verdict in cuts) for name in FINDINGS}
    return [Share(name, count, *binomial_interval(count, len(cuts), CONFIDENCE)) for name, count in counts.items()]


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
