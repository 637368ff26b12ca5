"""The difference of two values of a figure: of shares in percentage points, of other figures in percent."""

from typing import NamedTuple

from emmclab.runtime.number_format import signed


def change_pct(before: float | None, after: float | None) -> float | None:
    """Return by how many percent a value is above another; None if that is 0, or one is not known.

    >>> change_pct(2.0, 3.0), change_pct(0.0, 3.0), change_pct(None, 3.0)
    (50.0, None, None)
    """
    return 100 * (after / before - 1) if before and after is not None else None


def percent_text(change: float | None, digits: int = 1) -> str:
    """Format a change as a number; a dash if it is not known.

    >>> percent_text(50.0), percent_text(None)
    ('+50.0', '–')
    """
    return "–" if change is None else signed(change, digits)


class FigureChange(NamedTuple):
    """A difference in percent or, of shares, in percentage points; the other one is None."""

    pct: float | None
    points: float | None

    def text(self, digits: int = 1) -> str:
        """Format the difference with its unit; a dash if it is not known.

        >>> change_of(2.0, 3.0, is_share=False).text(), change_of(20.0, 30.0, is_share=True).text()
        ('+50.0 %', '+10.00 points')
        """
        if self.points is not None:
            return f"{signed(self.points, 2)} points"
        return "–" if self.pct is None else f"{signed(self.pct, digits)} %"


def change_of(before: float | None, after: float | None, *, is_share: bool) -> FigureChange:
    """Return the difference of a figure by the rule for all comparisons."""
    if not is_share:
        return FigureChange(change_pct(before, after), None)
    return FigureChange(None, after - before if before is not None and after is not None else None)
