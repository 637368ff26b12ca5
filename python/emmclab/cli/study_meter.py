"""Progress of a study on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from emmclab.cli.console import stderr
from emmclab.cli.meter import remaining
from emmclab.cli.working import Working, length

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from emmclab.studies.sweep import Progress

#: Time before the first output, and between two plain lines, in seconds.
_SILENCE_S, _LINE_S = 1.0, 5.0


class StudyMeter(Working):
    """Shows cells, failures and an estimate of the remaining time, once the first cells are measured."""

    def __init__(self, name: str) -> None:
        """Name the study."""
        super().__init__(name)
        self._next = self._started + _SILENCE_S
        self._said = False
        self._bar: Bar | None = None
        #: The counts of the last output.
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
            self.speak(f"{self.what}: {counted(progress)}{remaining(progress.left_s)}")
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
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        if self._bar is None:
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[said]}", markup=False),
                TimeElapsedColumn(),
            )
            self._bar = Bar(*columns, console=stderr())
            self._bar.start()
            self._bar.add_task(self.what, said="")
        said = f"{counted(progress)}{remaining(progress.left_s)}"
        task = self._bar.task_ids[0]
        self._bar.update(task, completed=progress.done, total=progress.total, said=said)


def counted(progress: Progress) -> str:
    """Return the numbers of finished, failed and crashed cells."""
    parts = [f"{progress.done:,} of {progress.total:,} cells"]
    if progress.before:
        parts.append(f"{progress.before:,} were finished before")
    if progress.failed:
        parts.append(f"{progress.failed:,} failed")
    if progress.quarantined:
        parts.append(f"{progress.quarantined:,} set aside")
    return ", ".join(parts)


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
