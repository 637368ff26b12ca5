"""The consoles that results and messages go to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table

from emmclab.cli.console import ClosedPipe
from emmclab.errors import harmless

#: Wider than any table.
_UNBOUNDED = 10_000


class HarmlessConsole(Console):
    """A console on which only its own control sequences take effect, none of the text that is printed."""

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return super()._render_buffer(
            segment if segment.control else segment._replace(text=harmless(segment.text))
            for segment in buffer
        )


class DataConsole(HarmlessConsole):
    """A console that prints every digit; a closed pipe ends the command with its exit code."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; a table that is wider than the terminal goes beyond its edge, rather than be cut."""
        wide = self.options.update(width=_UNBOUNDED)
        # Rich leaves the padding between columns out of the least width where it is collapsed.
        leasts = [
            Measurement.get(self, wide, table).minimum + len(table.columns)
            for table in objects
            if isinstance(table, Table)
        ]
        least = max(leasts, default=0)
        fits = self.width
        self.width = max(least, fits)
        try:
            super().print(*objects, crop=least <= fits, **options)
        finally:
            self.width = fits

    def on_broken_pipe(self) -> None:
        """Pass it on, where rich would exit."""
        raise ClosedPipe
