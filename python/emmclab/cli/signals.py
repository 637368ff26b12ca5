"""Treats Ctrl-C, SIGTERM and SIGHUP as a request to end normally."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def terminating() -> list[signal.Signals]:
    """Return SIGTERM and, unless it is ignored, SIGHUP, which a closed terminal sends.

    Under nohup, SIGHUP stays ignored.
    """
    numbers = [signal.SIGTERM]
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


class Ending:
    """Records whether a signal requested the end."""

    def __init__(self) -> None:
        """Start without a request."""
        self.is_requested = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Record that a signal arrived."""
        self.is_requested = True


@contextmanager
def stop_on_signals() -> Iterator[Ending]:
    """Handle Ctrl-C, SIGTERM and SIGHUP as a request to stop."""
    ending = Ending()
    former = {number: signal.signal(number, ending) for number in (signal.SIGINT, *terminating())}
    try:
        yield ending
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
