"""Formats changes with a sign."""

from __future__ import annotations


def signed(value: float, digits: int = 1) -> str:
    """Format a change with its sign; one that rounds to zero has a plus.

    >>> signed(-0.04), signed(21612.04), signed(-0.5, 2)
    ('+0.0', '+21,612.0', '-0.50')
    """
    return f"{round(value, digits) + 0.0:+,.{digits}f}"
