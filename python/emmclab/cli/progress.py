"""Progress of long work on stderr: a bar on a terminal, else a line at least every five seconds.

Lines fit the terminal: parts of low importance are left out, and long names shortened.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from emmclab._core import preconditioned_bytes
from emmclab.cli.console import print_stderr
from emmclab.cli.unicode_bars import bar
from emmclab.runtime.background_repeat import repeated
from emmclab.runtime.number_format import size
from emmclab.simulation.device import Device
from emmclab.simulation.preconditioning import parse_precondition

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from emmclab.studies.cell_scheduler import Progress

#: Time before the first output of a meter, in seconds.
_SILENCE_S = 1.0
#: Maximum time between two lines, seconds; shorter work prints nothing.
_LINE_S = 5.0
#: Number of checks per `_LINE_S` of whether a line is due.
_LOOKS = 5


class Working:
    """Prints how long work has taken if it has reported nothing else for some seconds."""

    def __init__(self, what: str) -> None:
        """Set the name of the work; nothing is printed if it is empty."""
        self.what = what
        self._before = preconditioned_bytes()
        #: Bytes that preconditioning writes at most; 0 if that is not known.
        self.most = 0.0
        self._lines = ExitStack()
        self._started = self._spoke = time.monotonic()
        self._is_printing = False

    def __enter__(self) -> Self:
        self.begin()
        return self

    def begin(self) -> None:
        """Start printing lines, unless already started."""
        if self.what and not self._is_printing:
            self._is_printing = True
            self._spoke = time.monotonic()
            self._lines.enter_context(repeated(_LINE_S / _LOOKS, self._look))

    def __exit__(self, *_: object) -> None:
        self.stop()

    def expect(self, most_bytes: float) -> None:
        """Set how much preconditioning writes at most from now on."""
        self.most = preconditioned_bytes() - self._before + most_bytes

    def stop(self) -> None:
        """Stop printing lines, because the work is done or has its own meter from now on."""
        self._lines.close()

    def speak(self, line: str) -> None:
        """Print a line about the work."""
        self._spoke = time.monotonic()
        print_stderr(line)

    def _look(self) -> None:
        if time.monotonic() - self._spoke >= _LINE_S * (1 - 1 / _LOOKS):
            self._beat()

    def _beat(self) -> None:
        self.speak(f"{self.what}: {length(time.monotonic() - self._started)} so far{self._done()}")

    def _done(self) -> str:
        """Return a text on the amount of data that preconditioning has written so far; "" if none."""
        written = preconditioned_bytes() - self._before
        if not written:
            return ""
        text = f", {size(written)} written to precondition"
        if written >= self.most:
            return text
        left = (time.monotonic() - self._started) * (self.most - written) / written
        return f"{text}, at most {length(left)} left"


def length(seconds: float) -> str:
    """Format a time in a suitable unit.

    >>> length(6 * 3600), length(90), length(0.2)
    ('6 h', '90 s', '1 s')
    """
    for unit, one in (("h", 3600), ("min", 60)):
        if seconds >= 2 * one:
            return f"{round(seconds / one)} {unit}"
    return f"{max(1, round(seconds))} s"


class Preparing(Working):
    """Prints the progress of the preconditioning of a device."""

    def __init__(self, device: Device, precondition: str, images: object = None) -> None:
        """Name the work and how much data it writes at most; a new device has none, and nothing is printed."""
        found = parse_precondition(precondition)
        kept = "" if images else "; --images DIR keeps the device for later runs"
        most = 0.0 if isinstance(found, Path) else found.most_bytes(device.capacity_bytes)
        if isinstance(found, Path):
            super().__init__(f"precondition {device.name} (by {precondition}{kept})")
        elif most:
            super().__init__(f"precondition {device.name} ({precondition}, writes at most {size(most)}{kept})")
        else:
            super().__init__("")
        self.most = most


#: Width of a terminal of unknown width, in columns.
_COLUMNS = 80
#: The least and the largest width of the bar.
_LEAST_BAR, _MOST_BAR = 10, 40


@dataclass(frozen=True)
class Part:
    """A part of a line with its importance: parts of the lowest rank are left out first."""

    text: str
    rank: int


def columns() -> int:
    """Return the width of the terminal of stderr."""
    told = os.environ.get("COLUMNS", "")
    if told.isdigit() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS


def fitted(what: str, parts: Sequence[Part], width: int) -> str:
    """Return a line of at most `width` columns: the name of the work, and the parts that fit.

    A name that takes more than half of the line is shortened in its middle. The most important part stays.

    >>> parts = [Part("40 of 90 cells", 3), Part("2 failed", 2), Part("about 3 min left", 1)]
    >>> print(fitted("queue-depth-of-phones", parts, 66))
    queue-depth-of-phones: 40 of 90 cells, 2 failed, about 3 min left
    >>> print(fitted("queue-depth-of-phones", parts, 42))
    queue-depth-of-phones: 40 of 90 cells
    >>> print(fitted("queue-depth-of-phones", parts, 30))
    queu…of-phones: 40 of 90 cells
    """
    kept = [part for part in parts if part.text]
    name = min(_cells(what), width // 2)
    while len(kept) > 1 and name + _cells(_after_name(kept)) > width:
        least = min(part.rank for part in kept)
        kept.remove(next(part for part in reversed(kept) if part.rank == least))
    behind = _after_name(kept)
    return f"{_shortened(what, width - _cells(behind))}{behind}"


def joined(parts: Sequence[Part]) -> str:
    """Return the texts of all parts, with commas between them; parts without a text are left out.

    >>> joined([Part("40 of 90 cells", 3), Part("", 2), Part("about 3 min left", 1)])
    '40 of 90 cells, about 3 min left'
    """
    return ", ".join(part.text for part in parts if part.text)


def _after_name(parts: Sequence[Part]) -> str:
    return f": {joined(parts)}" if parts else ""


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _shortened(text: str, width: int) -> str:
    """Shorten a text to `width` columns in its middle, because names often differ at the end."""
    if _cells(text) <= width:
        return text
    head, tail = "", ""
    for character in text:
        if _cells(head + character) > (width - 1) // 3:
            break
        head += character
    for character in reversed(text):
        if _cells(head) + 1 + _cells(character + tail) > width:
            break
        tail = character + tail
    return f"{head}…{tail}"


def bar_line(what: str, parts: Sequence[Part], share: float | None, width: int) -> str:
    """Return the line with a bar before the parts, if there is room for it.

    >>> print(bar_line("read", [Part("7,000 requests", 1)], 0.5, 40))
    read ██████        50 %, 7,000 requests
    """
    if share is None:
        return fitted(what, parts, width)
    line = fitted(what, [Part(f"{100 * share:.0f} %", 100), *parts], width)
    room = min(width - _cells(line) - 1, _MOST_BAR)
    if room < _LEAST_BAR:
        return line
    # With this much room, the name was not shortened.
    drawn = bar(share, 1.0, room - 1)
    return f"{what} {drawn:<{room}} {line[len(what) + 2 :]}"


def live_line(what: str, *, transient: bool) -> Bar:
    """Return a progress display of one line on stderr; its task has the field `parts`."""
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    from emmclab.cli.console import stderr

    class Line(ProgressColumn):
        """The whole line as one column: separate columns would be cut if there is no room for all."""

        def render(self, task: Task) -> Text:
            elapsed = Part(f"{length(task.elapsed or 0.0)} so far", 1)
            share = None if not task.total else min(task.completed / task.total, 1.0)
            line = bar_line(what, [*task.fields["parts"], elapsed], share, columns() - 1)
            return Text(line, no_wrap=True)

    return Bar(Line(), console=stderr(), transient=transient)


#: Number of tasks before the remaining time is estimated, because the first task may do work that all share.
_LEAST_TASKS = 3
_MILLION = 10**6


class _BarMeter(Working):
    """Progress as a bar on a terminal and as lines elsewhere; `_status` is what was reported last."""

    #: Whether the bar disappears at the end of the work.
    _is_transient: bool

    def __init__(self, what: str) -> None:
        """Set the title of the work."""
        super().__init__(what)
        self._next = self._started + _SILENCE_S
        self._bar: Bar | None = None
        #: The latest report, as text.
        self._status = ""

    def __exit__(self, *ending: object) -> None:
        super().__exit__(*ending)
        if self._bar is not None:
            self._bar.stop()

    def _beat(self) -> None:
        # A bar shows the time by itself. Requests that `--only` leaves out are read without progress.
        if self._bar is None:
            super()._beat()

    def _done(self) -> str:
        return f"{super()._done()}{self._status}"

    def _left(self) -> float | None:
        """Return the remaining time that the bar estimates, in seconds."""
        return self._bar.tasks[0].time_remaining if self._bar is not None else None

    def _show(self, done: int, total: int | None, parts: Sequence[Part]) -> None:
        """Update the bar, which starts if needed."""
        if self._bar is None:
            self._bar = live_line(self.what, transient=self._is_transient)
            self._bar.start()
            self._bar.add_task(self.what, parts=())
        self._bar.update(self._bar.task_ids[0], completed=done, total=total, parts=parts)


class Meter(_BarMeter):
    """Shows the progress of a pass over a trace."""

    _is_transient = True

    def __call__(self, done: int, total: int | None, requests: int) -> None:
        """Update the meter: bytes done, total bytes, and requests so far."""
        now = time.monotonic()
        self._status = f", {requests:,} requests"
        if now < self._next:
            return
        rate = speed(requests / (now - self._started))
        if sys.stderr.isatty():
            self._next = now + 0.1
            left = remaining(self._left())
            self._show(done, total, (Part(f"{requests:,} requests", 4), Part(rate, 2), Part(left, 3)))
        else:
            self._next = now + _LINE_S
            share = f"{100 * done / total:.0f} %, " if total else ""
            self.speak(f"{self.what}: {share}{requests:,} requests, {rate}")


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
            line = f"{self._line(parts) if self._is_over else fitted(self.what, parts, width):<{width}}"
        else:
            line = self._line(parts)
        print(line, end="\r" if sys.stderr.isatty() and not self._is_over else "\n", file=sys.stderr, flush=True)

    def _line(self, parts: list[Part]) -> str:
        return f"{self.what}: {joined(parts)}"

    def _beat(self) -> None:
        # Work after the last task gets a new line.
        so_far = Part(f"{length(time.monotonic() - self._started)} so far{self._done()}", 2)
        if self._is_over:
            self.speak(self._line([so_far]))
        else:
            self._print(so_far)


def remaining(left_s: float | None) -> str:
    """Return how long the rest takes, in words; empty if that is unknown or 0.

    >>> remaining(120), remaining(None), remaining(0)
    ('about 2 min left', '', '')
    """
    return f"about {length(left_s)} left" if left_s else ""


class StudyMeter(_BarMeter):
    """Shows cells, failures and an estimate of the remaining time, once the first cells are measured."""

    _is_transient = False
    _has_printed = False

    def __call__(self, progress: Progress) -> None:
        """Update the progress."""
        now = time.monotonic()
        self._status = f", {cell_counts(progress)}"
        is_end = progress.done + progress.quarantined == progress.total
        if now < self._next and not is_end:
            return
        terminal = sys.stderr.isatty()
        if not self._has_printed and (progress.left_s or 0.0) > _LINE_S:
            self.speak(f"{self.what}: {estimate_text(progress)}")
        elif terminal and (self._has_printed or not is_end):
            self._show(progress.done, progress.total, _parts(progress))
        elif self._has_printed or not is_end:
            self.speak(f"{self.what}: {joined(_parts(progress))}")
        else:
            return
        self._has_printed = True
        self._next = now + (0.1 if terminal else _LINE_S)


def _counts(progress: Progress) -> list[Part]:
    """Return the numbers of cells as parts of a line; important ones have a higher rank."""
    parts = [Part(f"{progress.done:,} of {progress.total:,} cells", 5)]
    if progress.before:
        parts.append(Part(f"{progress.before:,} were finished before", 2))
    if progress.failed:
        parts.append(Part(f"{progress.failed:,} failed", 4))
    if progress.quarantined:
        parts.append(Part(f"{progress.quarantined:,} set aside", 4))
    return parts


def cell_counts(progress: Progress) -> str:
    """Return a text with the numbers of finished, failed and crashed cells."""
    return joined(_counts(progress))


def _parts(progress: Progress) -> list[Part]:
    """Return the numbers of cells, and the time for the rest."""
    return [*_counts(progress), Part(remaining(progress.left_s), 3)]


def estimate_text(progress: Progress) -> str:
    """Describe the amount of work of a study, from the cells that were run."""
    ran = progress.done - progress.before
    one = progress.cells_s / ran if ran else 0.0
    workers = f"{progress.jobs} processes" if progress.jobs > 1 else "one process"
    time_left = f"about {length(progress.left_s or 0.0)}"
    before = f", {progress.before:,} were finished before" if progress.before else ""
    return f"{progress.total:,} cells{before}; {one:.3g} s each by a sample of {ran:,}; {workers}: {time_left}"
