"""Progress of long work, on stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from emmclab.cli.progress_line import Part, columns, fitted, joined, live_line
from emmclab.cli.working import Working, length

if TYPE_CHECKING:
    from rich.progress import Progress

#: Time before the first output, in seconds.
_SILENCE_S = 1.0
#: Time between two plain lines, seconds.
_LINE_S = 5.0
#: Number of tasks before the remaining time is estimated, because the first task may do work that all share.
_LEAST_TASKS = 3
_MILLION = 10**6


class Meter(Working):
    """Shows the progress of a pass over a trace: a bar on a terminal, plain lines elsewhere."""

    def __init__(self, what: str) -> None:
        """Set the title of the work."""
        super().__init__(what)
        self._next = self._started + _SILENCE_S
        self._bar: Progress | None = None
        #: The text that was last printed.
        self._told = ""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int | None, requests: int) -> None:
        """Update the meter: bytes done, total bytes, and requests so far."""
        now = time.monotonic()
        self._told = f", {requests:,} requests"
        if now < self._next:
            return
        if sys.stderr.isatty():
            self._next = now + 0.1
            self._update_bar(done, total, requests)
        else:
            self._next = now + _LINE_S
            rate = f"{requests:,} requests, {speed(requests / (now - self._started))}"
            share = f"{100 * done / total:.0f} %, " if total else ""
            self.speak(f"{self.what}: {share}{rate}")

    def _beat(self) -> None:
        # A bar shows the time by itself. Requests that `--only` leaves out are read without progress.
        if self._bar is None:
            super()._beat()

    def _done(self) -> str:
        return f"{super()._done()}{self._told}"

    def _update_bar(self, done: int, total: int | None, requests: int) -> None:
        if self._bar is None:
            self._bar = live_line(self.what, transient=True)
            self._bar.start()
            self._bar.add_task(self.what, parts=())
        task = self._bar.tasks[0]
        parts = (
            Part(f"{requests:,} requests", 4),
            Part(speed(requests / (time.monotonic() - self._started)), 2),
            Part(remaining(task.time_remaining), 3),
        )
        self._bar.update(task.id, completed=done, total=total, parts=parts)


def speed(per_s: float) -> str:
    """Return the number of requests per second.

    >>> speed(8_340_000), speed(5_702), speed(8.4)
    ('8.3 M/s', '5,700/s', '8/s')
    """
    if per_s >= _MILLION / 10:
        return f"{per_s / _MILLION:.1f} M/s"
    return f"{float(f'{per_s:.2g}'):,.0f}/s"


class Counter(Working):
    """Shows how many tasks are done and how long the rest will take: a line that changes, or plain lines."""

    def __init__(self, what: str, tasks: str) -> None:
        """Set the title and the unit of the work."""
        super().__init__(what)
        self.tasks = tasks
        self._last = self._started
        self._is_over = False
        #: The parts as they were last printed, without the time.
        self._parts: list[Part] = []

    def __call__(self, done: int, total: int, before: int, found: str = "") -> None:
        """Update the meter: tasks done, total, reused, and findings so far."""
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if now - self._last < (0.1 if terminal else _LINE_S) and done < total:
            return
        if self._is_over or (not terminal and now - self._started < _SILENCE_S):
            return
        self._last, self._is_over = now, done >= total
        ran = done - before
        is_known = ran >= _LEAST_TASKS
        left = remaining((now - self._started) / ran * (total - done) if is_known else None)
        self._parts = [
            Part(f"{done:,} of {total:,} {self.tasks}", 4),
            Part(found, 3),
            Part(f"{before:,} were finished before" if before else "", 1),
        ]
        self._print(Part(left, 2))

    def _print(self, last: Part) -> None:
        self._spoke = time.monotonic()
        parts = [*self._parts, last]
        if sys.stderr.isatty():
            # Padded, to overwrite a longer line before it. The last line stays, and is not shortened.
            width = columns() - 1
            line = f"{self._whole(parts) if self._is_over else fitted(self.what, parts, width):<{width}}"
        else:
            line = self._whole(parts)
        print(
            line, end="\r" if sys.stderr.isatty() and not self._is_over else "\n", file=sys.stderr, flush=True
        )

    def _whole(self, parts: list[Part]) -> str:
        return f"{self.what}: {joined(parts)}"

    def _beat(self) -> None:
        # Work after the last task gets a new line.
        so_far = Part(f"{length(time.monotonic() - self._started)} so far{self._done()}", 2)
        if self._is_over:
            self.speak(self._whole([so_far]))
        else:
            self._print(so_far)


def remaining(left_s: float | None) -> str:
    """Return how long the rest takes, in words; empty if that is unknown or 0.

    >>> remaining(120), remaining(None), remaining(0)
    ('about 2 min left', '', '')
    """
    return f"about {length(left_s)} left" if left_s else ""
