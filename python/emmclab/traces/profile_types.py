"""Types of parts of a profile that the package makes."""

from typing import TypedDict


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
