"""Progress lines that fit the terminal: parts of low importance are left out, and long names shortened."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emmclab.cli.bars import bar
from emmclab.cli.working import length

if TYPE_CHECKING:
    from rich.progress import Progress

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
    while len(kept) > 1 and name + _cells(_behind(kept)) > width:
        least = min(part.rank for part in kept)
        kept.remove(next(part for part in reversed(kept) if part.rank == least))
    behind = _behind(kept)
    return f"{_shortened(what, width - _cells(behind))}{behind}"


def joined(parts: Sequence[Part]) -> str:
    """Return the texts of all parts, with commas between them; parts without a text are left out.

    >>> joined([Part("40 of 90 cells", 3), Part("", 2), Part("about 3 min left", 1)])
    '40 of 90 cells, about 3 min left'
    """
    return ", ".join(part.text for part in parts if part.text)


def _behind(parts: Sequence[Part]) -> str:
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


def live_line(what: str, *, transient: bool) -> Progress:
    """Return a progress display of one line on stderr; its task has the field `parts`."""
    from rich.progress import Progress, ProgressColumn, Task
    from rich.text import Text

    from emmclab.cli.console import stderr

    class Line(ProgressColumn):
        """The whole line as one column: separate columns would be cut if there is no room for all."""

        def render(self, task: Task) -> Text:
            elapsed = Part(f"{length(task.elapsed or 0.0)} so far", 1)
            share = None if not task.total else min(task.completed / task.total, 1.0)
            line = bar_line(what, [*task.fields["parts"], elapsed], share, columns() - 1)
            return Text(line, no_wrap=True)

    return Progress(Line(), console=stderr(), transient=transient)
