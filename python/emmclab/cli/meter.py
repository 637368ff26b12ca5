"""Progress of long work, on stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from emmclab.cli.console import stderr
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
        """Take the title of the work."""
        super().__init__(what)
        self._next = self._started + _SILENCE_S
        self._bar: Progress | None = None
        #: The progress of the last output.
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
        rate = f"{requests:,} requests, {speed(requests / (now - self._started))}"
        if sys.stderr.isatty():
            self._next = now + 0.1
            self._update_bar(done, total, rate)
        else:
            self._next = now + _LINE_S
            share = f"{100 * done / total:.0f} %, " if total else ""
            self.speak(f"{self.what}: {share}{rate}")

    def _beat(self) -> None:
        # A bar shows the time by itself. Requests that `--only` leaves out are read without progress.
        if self._bar is None:
            super()._beat()

    def _done(self) -> str:
        return f"{super()._done()}{self._told}"

    def _update_bar(self, done: int, total: int | None, rate: str) -> None:
        if self._bar is None:
            from rich.progress import (
                BarColumn,
                Progress,
                TaskProgressColumn,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[rate]}", markup=False),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=stderr(), transient=True)
            self._bar.start()
            self._bar.add_task(self.what, rate=rate)
        self._bar.update(self._bar.task_ids[0], completed=done, total=total, rate=rate)


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
        #: The last printed line, without the time.
        self._line = ""

    def __call__(self, done: int, total: int, before: int, found: str = "") -> None:
        """Update the meter: tasks done, total, reused, and findings so far."""
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if now - self._last < (0.1 if terminal else _LINE_S) and done < total:
            return
        if self._is_over or (not terminal and now - self._started < _SILENCE_S):
            return
        self._last, self._is_over = now, done >= total
        earlier = f", {before:,} were finished before" if before else ""
        ran = done - before
        is_known = ran >= _LEAST_TASKS
        left = remaining((now - self._started) / ran * (total - done) if is_known else None)
        self._line = f"{self.what}: {done:,} of {total:,} {self.tasks}{found}{earlier}"
        self._print(f"{self._line}{left}")

    def _print(self, line: str) -> None:
        self._spoke = time.monotonic()
        terminal = sys.stderr.isatty()
        end = "\r" if terminal and not self._is_over else "\n"
        # On a terminal a shorter line has to overwrite the previous one completely.
        print(f"{line:<79}" if terminal else line, end=end, file=sys.stderr, flush=True)

    def _beat(self) -> None:
        # Work after the last task gets a line of its own.
        known = self._line if self._line and not self._is_over else self.what
        separator = ", " if known == self._line else ": "
        line = f"{known}{separator}{length(time.monotonic() - self._started)} so far{self._done()}"
        if self._is_over:
            self.speak(line)
        else:
            self._print(line)


def remaining(left_s: float | None) -> str:
    """Estimate the time for the remaining cells.

    >>> remaining(120), remaining(None), remaining(0)
    (', about 2 min left', '', '')
    """
    return f", about {length(left_s)} left" if left_s else ""
