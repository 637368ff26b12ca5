"""Progress of a study on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from emmclab.cli.meter import remaining
from emmclab.cli.progress_line import Part, joined, live_line
from emmclab.cli.working import Working, length

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from emmclab.studies.sweep import Progress

#: Time before the first output, and between two plain lines, in seconds.
_SILENCE_S, _LINE_S = 1.0, 5.0


class StudyMeter(Working):
    """Shows cells, failures and an estimate of the remaining time, once the first cells are measured."""

    def __init__(self, name: str) -> None:
        """Set the name of the study."""
        super().__init__(name)
        self._next = self._started + _SILENCE_S
        self._said = False
        self._bar: Bar | None = None
        #: The latest counts, as text.
        self._told = ""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        """Update the progress."""
        now = time.monotonic()
        self._told = f", {counted(progress)}"
        is_end = progress.done + progress.quarantined == progress.total
        if now < self._next and not is_end:
            return
        terminal = sys.stderr.isatty()
        if not self._said and (progress.left_s or 0.0) > _LINE_S:
            self.speak(f"{self.what}: {estimated(progress)}")
        elif terminal and (self._said or not is_end):
            self._update_bar(progress)
        elif self._said or not is_end:
            self.speak(f"{self.what}: {joined(_parts(progress))}")
        else:
            return
        self._said = True
        self._next = now + (0.1 if terminal else _LINE_S)

    def _beat(self) -> None:
        # A bar already shows the elapsed time.
        if self._bar is None:
            super()._beat()

    def _done(self) -> str:
        return f"{super()._done()}{self._told}"

    def _update_bar(self, progress: Progress) -> None:
        if self._bar is None:
            self._bar = live_line(self.what, transient=False)
            self._bar.start()
            self._bar.add_task(self.what, parts=())
        task, parts = self._bar.task_ids[0], _parts(progress)
        self._bar.update(task, completed=progress.done, total=progress.total, parts=parts)


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


def counted(progress: Progress) -> str:
    """Return a text with the numbers of finished, failed and crashed cells."""
    return joined(_counts(progress))


def _parts(progress: Progress) -> list[Part]:
    """Return the numbers of cells, and the time for the rest."""
    return [*_counts(progress), Part(remaining(progress.left_s), 3)]


def estimated(progress: Progress) -> str:
    """Describe the amount of work of a study, from the cells that were run."""
    ran = progress.done - progress.before
    one = progress.cells_s / ran if ran else 0.0
    workers = f"{progress.jobs} processes" if progress.jobs > 1 else "one process"
    time_left = f"about {length(progress.left_s or 0.0)}"
    before = f", {progress.before:,} were finished before" if progress.before else ""
    return (
        f"{progress.total:,} cells{before}; {one:.3g} s each by a sample of {ran:,}; {workers}: {time_left}"
    )
