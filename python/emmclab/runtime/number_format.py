"""Formats numbers for people: with three significant digits and a unit, changes with a sign, and bars of characters."""

from collections.abc import Sequence
from math import floor, log10
from typing import TypedDict

#: Units of time: name, length in seconds, and the smallest value in this unit for which the unit is used.
_TIMES = (("d", 86_400.0, 2.0), ("h", 3_600.0, 2.0), ("min", 60.0, 2.0), ("s", 1.0, 1.0))
#: Units below a second, with their length in seconds.
_SHORT = (("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))
#: Units of size in bytes; 1 KB is 1,024 bytes, as in the papers.
_SIZES = (("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10))


def duration(seconds: float | None) -> str:
    """Format a duration with its unit; a dash if it is unknown.

    >>> [duration(value) for value in (0, 3.5e-8, 0.00042, 0.653, 12.5, 589, 9000, 259200, None)]
    ['0 s', '35 ns', '420 us', '653 ms', '12.5 s', '9.82 min', '2.5 h', '3 d', '–']
    """
    if seconds is None:
        return "–"
    long = (f"{significant(seconds / unit)} {name}" for name, unit, least in _TIMES if abs(seconds) >= least * unit)
    short = (f"{significant(seconds / unit)} {name}" for name, unit in _SHORT if abs(seconds) >= unit)
    shortest = f"{significant(seconds / 1e-9)} ns" if seconds else "0 s"
    return next(long, None) or next(short, shortest)


def size(amount: float | None) -> str:
    """Format a number of bytes with its unit; a dash if it is unknown.

    >>> [size(value) for value in (0, 512, 4096, 63668 * 1024, 3 << 30, None)]
    ['0 B', '512 B', '4 KB', '62.2 MB', '3 GB', '–']
    """
    if amount is None:
        return "–"
    larger = (f"{significant(amount / unit)} {name}" for name, unit in _SIZES if abs(amount) >= unit)
    return next(larger, f"{significant(amount)} B")


def significant(value: float, digits: int = 3, least: int = 0) -> str:
    """Format a number with `digits` significant digits and at least `least` decimals.

    >>> significant(0.012345), significant(1234.5), significant(0.5, least=2)
    ('0.0123', '1,234', '0.50')
    """
    if not value:
        return f"{0:.{least}f}"
    places = max(least, digits - 1 - floor(log10(abs(value))))
    text = f"{value:,.{max(0, places)}f}"
    integer, point, decimals = text.partition(".")
    decimals = decimals.rstrip("0").ljust(least, "0")
    return integer + point + decimals if decimals else integer


def signed(value: float, digits: int = 1) -> str:
    """Format a change with its sign; a change that rounds to zero gets a plus.

    >>> signed(-0.04), signed(21612.04), signed(-0.5, 2)
    ('+0.0', '+21,612.0', '-0.50')
    """
    return f"{round(value, digits) + 0.0:+,.{digits}f}"


def change_pct(before: float | None, after: float | None) -> float | None:
    """Return the change from `before` to `after` in percent; None if `before` is 0, or one of them is not known.

    >>> change_pct(2.0, 3.0), change_pct(0.0, 3.0), change_pct(None, 3.0)
    (50.0, None, None)
    """
    return 100 * (after / before - 1) if before and after is not None else None


def percent_text(change: float | None, digits: int = 1) -> str:
    """Format a change in percent as a number without unit; a dash if it is not known.

    >>> percent_text(50.0), percent_text(None)
    ('+50.0', '–')
    """
    return "–" if change is None else signed(change, digits)


class FigureDifference(TypedDict):
    """A figure of two runs, traces or fleets, and the difference from the first to the second.

    For shares, `difference_points` is the difference in percentage points, and `difference_pct` is None. For other
    figures, `difference_pct` is the difference in percent of the first, and `difference_points` is None.
    """

    first: float | None
    second: float | None
    difference_pct: float | None
    difference_points: float | None


def figure_difference(first: float | None, second: float | None, *, is_share: bool) -> FigureDifference:
    """Return the difference of a figure between two results; if both figures are 0, the difference is 0.

    >>> [figure_difference(0, value, is_share=False)["difference_pct"] for value in (0, 1)]
    [0.0, None]
    """
    points = second - first if is_share and first is not None and second is not None else None
    pct = None if is_share else 0.0 if first == second == 0 else change_pct(first, second)
    return {"first": first, "second": second, "difference_pct": pct, "difference_points": points}


def difference_text(difference: FigureDifference, digits: int = 1) -> str:
    """Format a difference with its unit; a dash if it is not known.

    >>> pair = [figure_difference(20.0, 30.0, is_share=is_share) for is_share in (False, True)]
    >>> [difference_text(difference) for difference in pair]
    ['+50.0 %', '+10.00 points']
    """
    pct, points = difference["difference_pct"], difference["difference_points"]
    if points is not None:
        return f"{signed(points, 2)} points"
    return "–" if pct is None else f"{signed(pct, digits)} %"


#: Horizontal and vertical bars, in eighths of a character.
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HEIGHTS = "▁▂▃▄▅▆▇█"


def bar(value: float, longest: float, width: int) -> str:
    """Return a horizontal bar, to an eighth of a character; the value `longest` has `width` characters.

    >>> bar(3, 4, 4)
    '███'
    """
    eighths = round(8 * width * value / longest) if longest > 0 else 0
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def spark(values: Sequence[float]) -> str:
    """Return a bar chart with one column per value, relative to the largest; a value of 0 is a blank.

    >>> spark([0, 1, 8])
    ' ▁█'
    """
    highest = max(values, default=0)
    if highest <= 0:
        return " " * len(values)
    return "".join(" " if value <= 0 else _HEIGHTS[max(0, round(8 * value / highest) - 1)] for value in values)
