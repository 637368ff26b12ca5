"""Types of parts of a profile, as the core returns them."""

from __future__ import annotations

from typing import Literal, TypedDict


class ClockJump(TypedDict):
    """A place where the clock jumps or the recording paused; `direction` is forward, back or pause."""

    direction: str
    time_s: float
    request: int
    length_s: float
    mended: bool


class JudgedFinding(TypedDict):
    """A characteristic or an implication of the paper, judged on a trace."""

    id: str
    kind: str
    number: int
    title: str
    rule: str
    #: None if the trace lacks the necessary data.
    measured: float | None
    unit: str
    shown: Literal["yes", "no", "partly", "unknown"]
    meaning: str


class Reissues(TypedDict):
    """Suspected re-issues: their number, what they show about the link, and figures with and without them."""

    reissued: int
    reissued_pct: float
    dropped: int
    awake_up_to_ms: float | None
    asleep_from_ms: float | None
    median_until_again_ms: float | None
    figures: dict[str, float | None]
    figures_without: dict[str, float | None] | None


class Estimate(TypedDict):
    """A figure of a profile in parts that is an estimate, with the cause, and the error if it is known."""

    figure: str
    why: str
    error_pct: float | None


class FieldDifference(TypedDict):
    """Difference of a field of two profiles: in points for shares, else in percent of the first."""

    table: str
    field: str
    first: float | None
    second: float | None
    difference_pct: float | None
    difference_points: float | None
