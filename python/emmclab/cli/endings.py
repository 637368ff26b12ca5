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
        """Record that a signal arrived."""
        self.asked = True


@contextmanager
def asked_by_signal() -> Iterator[Ending]:
    """Handle Ctrl-C and SIGTERM as a request to stop."""
    ending = Ending()
    former = {number: signal.signal(number, ending) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ending
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
