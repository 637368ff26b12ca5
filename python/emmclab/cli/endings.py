"""Ctrl-C and SIGTERM as an ordinary end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Ending:
    """Whether a signal asked for the end."""

    def __init__(self) -> None:
        """Begin without."""
        self.asked = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Take note of a signal."""
        self.asked = True


@contextmanager
def asked_by_signal() -> Iterator[Ending]:
    """Take Ctrl-C and SIGTERM as a wish to end, rather than as an interruption."""
    ending = Ending()
    former = {number: signal.signal(number, ending) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ending
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
