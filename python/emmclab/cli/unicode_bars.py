"""Small bars of Unicode blocks."""

from collections.abc import Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HEIGHTS = "▁▂▃▄▅▆▇█"


def bar(value: float, longest: float, width: int) -> str:
    """Draw a horizontal bar, `width` cells for `longest`, in eighths of a cell.

    >>> bar(3, 4, 4)
    '███'
    """
    eighths = round(8 * width * value / longest) if longest > 0 else 0
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def spark(values: Sequence[float]) -> str:
    """Draw one column per value, relative to the largest; a value of 0 is a blank.

    >>> spark([0, 1, 8])
    ' ▁█'
    """
    highest = max(values, default=0)
    if highest <= 0:
        return " " * len(values)
    return "".join(" " if value <= 0 else _HEIGHTS[max(0, round(8 * value / highest) - 1)] for value in values)
