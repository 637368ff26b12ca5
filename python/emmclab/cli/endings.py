"""Ctrl-C, SIGTERM and the hang-up of a terminal as an ordinary end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def terminating() -> list[signal.Signals]:
    """Return the signals by which another process, or a terminal that is closed, ends a command.

    A hang-up that is ignored, as under nohup, stays ignored.
    """
    numbers = [signal.SIGTERM]
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


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
    """Handle Ctrl-C, SIGTERM and SIGHUP as a request to stop."""
    ending = Ending()
    former = {number: signal.signal(number, ending) for number in (signal.SIGINT, *terminating())}
    try:
        yield ending
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
