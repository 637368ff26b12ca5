"""Small bars of Unicode blocks."""

from collections.abc import Sequence

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
