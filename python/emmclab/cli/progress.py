"""Progress of long work on stderr: a bar on a terminal, otherwise a line at least every five seconds.

Lines fit the terminal: parts of low importance are left out, and long names are shortened.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from emmclab._core import preconditioned_bytes
from emmclab.cli.console import print_stderr
from emmclab.runtime.document import bar, size
from emmclab.runtime.threads import repeated
from emmclab.simulation.device import Device
from emmclab.simulation.run_options import parse_precondition

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from emmclab.studies.cell_scheduler import Progress

#: Time before a progress meter prints its first output, seconds.
_SILENCE_S = 1.0
#: Maximum time between two progress lines, seconds; work that takes less time prints none.
_LINE_S = 5.0
#: Number of times per interval `_LINE_S` at which the meter checks whether a progress line is due.
_CHECKS = 5


class Working:
    """Prints how long some work has taken whenever nothing was printed for some seconds."""

    def __init__(self, title: str) -> None:
        """Set the name of the work; nothing is printed if it is empty."""
        self.title = title
        self._before = preconditioned_bytes()
        #: Maximum number of bytes that preconditioning writes; 0 if it is not known.
        self.most = 0.0
        self._lines = ExitStack()
        self._started = self._last_line_s = time.monotonic()
        self._is_printing = False

    def __enter__(self) -> Self:
        self.begin()
        return self

    def begin(self) -> None:
        """Start printing progress lines, unless already started."""
        if self.title and not self._is_printing:
            self._is_printing = True
            self._last_line_s = time.monotonic()
            self._lines.enter_context(repeated(_LINE_S / _CHECKS, self._print_if_due))

    def __exit__(self, *_: object) -> None:
        self.stop()

    def expect(self, most_bytes: float) -> None:
        """Set the maximum number of bytes that preconditioning writes from now on."""
        self.most = preconditioned_bytes() - self._before + most_bytes

    def stop(self) -> None:
        """Stop printing progress lines, because the work is done or is now shown by another meter."""
        self._lines.close()

    def print_line(self, line: str) -> None:
        """Print a line on stderr, and restart the interval until the next line with the elapsed time."""
        self._last_line_s = time.monotonic()
        print_stderr(line)

    def _print_if_due(self) -> None:
        if time.monotonic() - self._last_line_s >= _LINE_S * (1 - 1 / _CHECKS):
            self._print_elapsed()

    def _print_elapsed(self) -> None:
        self.print_line(f"{self.title}: {length(time.monotonic() - self._started)} so far{self._done()}")

    def _done(self) -> str:
        """Return a text with the amount of data that preconditioning has written so far; empty if none."""
        written = preconditioned_bytes() - self._before
        if not written:
            return ""
        text = f", {size(written)} written to precondition"
        if written >= self.most:
            return text
        remaining_s = (time.monotonic() - self._started) * (self.most - written) / written
        return f"{text}, at most {length(remaining_s)} left"


def length(seconds: float) -> str:
    """Format a time in a suitable unit.

    >>> length(6 * 3600), length(90), length(0.2)
    ('6 h', '90 s', '1 s')
    """
    for unit, unit_s in (("h", 3600), ("min", 60)):
        if seconds >= 2 * unit_s:
            return f"{round(seconds / unit_s)} {unit}"
    return f"{max(1, round(seconds))} s"


class Preparing(Working):
    """Prints the progress of the preconditioning of a device."""

    def __init__(self, device: Device, precondition: str, images: object = None) -> None:
        """Set the title: the device and, if known, the maximum data to write; empty without preconditioning."""
        parsed = parse_precondition(precondition)
        hint = "" if images else "; --images DIR keeps the device for later runs"
        most = parsed.way.most_bytes(device.capacity_bytes)
        if parsed.trace is not None:
            super().__init__(f"precondition {device.name} (by {precondition}{hint})")
        elif most:
            super().__init__(f"precondition {device.name} ({precondition}, writes at most {size(most)}{hint})")
        else:
            super().__init__("")
        self.most = most


#: Assumed width of the terminal if it is unknown, columns.
_COLUMNS = 80
#: Minimum and maximum width of the bar, columns.
_LEAST_BAR, _MOST_BAR = 10, 40


@dataclass(frozen=True)
class Part:
    """A part of a progress line; parts of the lowest rank are left out first if the line is too long."""

    text: str
    rank: int


def columns() -> int:
    """Return the width in characters of the terminal to which stderr is connected."""
    variable = os.environ.get("COLUMNS", "")
    if variable.isdigit() and int(variable):
        return int(variable)
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS


def fitted(title: str, parts: Sequence[Part], width: int) -> str:
    """Return a progress line of at most `width` characters: the name of the work, and the parts that fit.

    A name that is longer than half of the line is shortened in its middle. The most important part is always included.

    >>> parts = [Part("40 of 90 cells", 3), Part("2 failed", 2), Part("about 3 min left", 1)]
    >>> print(fitted("queue-depth-of-phones", parts, 66))
    queue-depth-of-phones: 40 of 90 cells, 2 failed, about 3 min left
    >>> print(fitted("queue-depth-of-phones", parts, 42))
    queue-depth-of-phones: 40 of 90 cells
    >>> print(fitted("queue-depth-of-phones", parts, 30))
    queu…of-phones: 40 of 90 cells
    """
    included = [part for part in parts if part.text]
    name = min(_cells(title), width // 2)
    while len(included) > 1 and name + _cells(_after_name(included)) > width:
        lowest = min(part.rank for part in included)
        included.remove(next(part for part in reversed(included) if part.rank == lowest))
    suffix = _after_name(included)
    return f"{_shortened(title, width - _cells(suffix))}{suffix}"


def joined(parts: Sequence[Part]) -> str:
    """Return the non-empty texts of parts, separated by commas.

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
    """Shorten a text to `width` characters by removing its middle, because names often differ at the end."""
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


def bar_line(title: str, parts: Sequence[Part], share: float | None, width: int) -> str:
    """Return a progress line, with a bar if there is space.

    `share` is the fraction of the work that is done, from 0 to 1; None if it is unknown.

    >>> print(bar_line("read", [Part("7,000 requests", 1)], 0.5, 40))
    read ██████        50 %, 7,000 requests
    """
    if share is None:
        return fitted(title, parts, width)
    line = fitted(title, [Part(f"{100 * share:.0f} %", 100), *parts], width)
    bar_width = min(width - _cells(line) - 1, _MOST_BAR)
    if bar_width < _LEAST_BAR:
        return line
    # The line has space for a bar only if `fitted` did not have to shorten the title.
    drawn = bar(share, 1.0, bar_width - 1)
    return f"{title} {drawn:<{bar_width}} {line[len(title) + 2 :]}"


def live_line(title: str, *, transient: bool) -> Bar:
    """Return a progress display of one line on stderr; its task has the field `parts`."""
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    from emmclab.cli.console import stderr

    class Line(ProgressColumn):
        """A progress column with the complete line, because rich would truncate separate columns."""

        def render(self, task: Task) -> Text:
            elapsed = Part(f"{length(task.elapsed or 0.0)} so far", 1)
            share = None if not task.total else min(task.completed / task.total, 1.0)
            line = bar_line(title, [*task.fields["parts"], elapsed], share, columns() - 1)
            return Text(line, no_wrap=True)

    return Bar(Line(), console=stderr(), transient=transient)


#: Number of tasks that must finish before the remaining time is estimated; the first may include preparation.
_LEAST_TASKS = 3
_MILLION = 10**6


class _BarMeter(Working):
    """Shows progress as a bar on a terminal and as lines elsewhere."""

    #: Whether the bar disappears at the end of the work.
    _is_transient: bool

    def __init__(self, title: str) -> None:
        """Set the title of the work."""
        super().__init__(title)
        self._next = self._started + _SILENCE_S
        self._bar: Bar | None = None
        #: The latest progress report, formatted as text.
        self._status = ""

    def __exit__(self, *ending: object) -> None:
        super().__exit__(*ending)
        if self._bar is not None:
            self._bar.stop()

    def _print_elapsed(self) -> None:
        # Print the elapsed time only if there is no bar, because the bar shows the time itself.
        if self._bar is None:
            super()._print_elapsed()

    def _done(self) -> str:
        return f"{super()._done()}{self._status}"

    def _show(self, done: int, total: int | None, parts: Sequence[Part]) -> None:
        """Update the bar, which starts if needed."""
        if self._bar is None:
            self._bar = live_line(self.title, transient=self._is_transient)
            self._bar.start()
            self._bar.add_task(self.title, parts=())
        self._bar.update(self._bar.task_ids[0], completed=done, total=total, parts=parts)


class Meter(_BarMeter):
    """Shows the progress of reading a trace."""

    _is_transient = True

    def __call__(self, done: int, total: int | None, requests: int) -> None:
        """Update the progress: bytes read, total bytes, and number of requests so far."""
        now = time.monotonic()
        self._status = f", {requests:,} requests"
        if now < self._next:
            return
        rate = speed(requests / (now - self._started))
        if sys.stderr.isatty():
            self._next = now + 0.1
            time_left = remaining(self._bar.tasks[0].time_remaining if self._bar is not None else None)
            self._show(done, total, (Part(f"{requests:,} requests", 4), Part(rate, 2), Part(time_left, 3)))
        else:
            self._next = now + _LINE_S
            share = f"{100 * done / total:.0f} %, " if total else ""
            self.print_line(f"{self.title}: {share}{requests:,} requests, {rate}")


def speed(per_s: float) -> str:
    """Format a number of requests per second.

    >>> speed(8_340_000), speed(5_702), speed(8.4)
    ('8.3 M/s', '5,700/s', '8/s')
    """
    if per_s >= _MILLION / 10:
        return f"{per_s / _MILLION:.1f} M/s"
    return f"{float(f'{per_s:.2g}'):,.0f}/s"


class Counter(Working):
    """Shows how many tasks are done and the remaining time: one changing line on a terminal, otherwise lines."""

    def __init__(self, title: str, tasks: str) -> None:
        """Set the title of the work and the noun for its tasks."""
        super().__init__(title)
        self.tasks = tasks
        self._last = self._started
        self._is_over = False
        #: Parts of the progress line as last printed, without the elapsed time.
        self._parts: list[Part] = []

    def __call__(self, done: int, total: int, before: int, status: str = "") -> None:
        """Update the numbers of finished tasks, of all tasks, and of tasks from earlier runs; `status` is a text."""
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if now - self._last < (0.1 if terminal else _LINE_S) and done < total:
            return
        if self._is_over or (not terminal and now - self._started < _SILENCE_S):
            return
        self._last, self._is_over = now, done >= total
        ran = done - before
        is_known = ran >= _LEAST_TASKS
        time_left = remaining((now - self._started) / ran * (total - done) if is_known else None)
        self._parts = [
            Part(f"{done:,} of {total:,} {self.tasks}", 4),
            Part(status, 3),
            Part(f"{before:,} were finished before" if before else "", 1),
        ]
        self._print(Part(time_left, 2))

    def _print(self, last: Part) -> None:
        self._last_line_s = time.monotonic()
        parts = [*self._parts, last]
        if sys.stderr.isatty():
            # The line is padded to overwrite a longer previous line. The final line is not shortened.
            width = columns() - 1
            line = f"{self._line(parts) if self._is_over else fitted(self.title, parts, width):<{width}}"
        else:
            line = self._line(parts)
        print(line, end="\r" if sys.stderr.isatty() and not self._is_over else "\n", file=sys.stderr, flush=True)

    def _line(self, parts: list[Part]) -> str:
        return f"{self.title}: {joined(parts)}"

    def _print_elapsed(self) -> None:
        # After the last task has finished, the elapsed time is printed on a new line.
        so_far = Part(f"{length(time.monotonic() - self._started)} so far{self._done()}", 2)
        if self._is_over:
            self.print_line(self._line([so_far]))
        else:
            self._print(so_far)


def remaining(left_s: float | None) -> str:
    """Return the remaining time in words; empty if it is unknown or 0.

    >>> remaining(120), remaining(None), remaining(0)
    ('about 2 min left', '', '')
    """
    return f"about {length(left_s)} left" if left_s else ""


class StudyMeter(_BarMeter):
    """Shows the progress of a study: finished cells, failed cells, and later also the remaining time."""

    _is_transient = False
    _has_printed = False

    def __call__(self, progress: Progress) -> None:
        """Update the progress."""
        now = time.monotonic()
        self._status = f", {joined(_counts(progress))}"
        is_end = progress.done + progress.quarantined == progress.total
        if now < self._next and not is_end:
            return
        terminal = sys.stderr.isatty()
        if not self._has_printed and (progress.left_s or 0.0) > _LINE_S:
            self.print_line(f"{self.title}: {estimate_text(progress)}")
        elif terminal and (self._has_printed or not is_end):
            self._show(progress.done, progress.total, _parts(progress))
        elif self._has_printed or not is_end:
            self.print_line(f"{self.title}: {joined(_parts(progress))}")
        else:
            return
        self._has_printed = True
        self._next = now + (0.1 if terminal else _LINE_S)


def _counts(progress: Progress) -> list[Part]:
    """Return the numbers of finished, failed and other cells for a progress line; important ones rank higher."""
    parts = [Part(f"{progress.done:,} of {progress.total:,} cells", 5)]
    if progress.before:
        parts.append(Part(f"{progress.before:,} were finished before", 2))
    if progress.failed:
        parts.append(Part(f"{progress.failed:,} failed", 4))
    if progress.quarantined:
        parts.append(Part(f"{progress.quarantined:,} set aside", 4))
    return parts


def _parts(progress: Progress) -> list[Part]:
    return [*_counts(progress), Part(remaining(progress.left_s), 3)]


def estimate_text(progress: Progress) -> str:
    """Describe the duration of a study, estimated from the cells that were run."""
    ran = progress.done - progress.before
    cell_s = progress.cells_s / ran if ran else 0.0
    workers = f"{progress.jobs} processes" if progress.jobs > 1 else "one process"
    time_left = f"about {length(progress.left_s or 0.0)}"
    before = f", {progress.before:,} were finished before" if progress.before else ""
    return f"{progress.total:,} cells{before}; {cell_s:.3g} s each by a sample of {ran:,}; {workers}: {time_left}"
