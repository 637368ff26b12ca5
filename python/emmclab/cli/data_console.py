"""The consoles that results and messages go to."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment
from rich.table import Table

from emmclab.cli.console import ClosedPipe
from emmclab.cli.table_fitting import fitted, least_width
from emmclab.errors import harmless


class HarmlessConsole(Console):
    """A console that removes control sequences from printed text; its own take effect."""

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return super()._render_buffer(
            segment if segment.control else segment._replace(text=harmless(segment.text)) for segment in buffer
        )


class DataConsole(HarmlessConsole):
    """A console that prints every digit and name; a closed pipe ends the command with its exit code."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects; tables are fitted to the terminal, and exceed it only if a number is wider."""
        if not any(isinstance(one, Table) for one in objects):
            super().print(*objects, **options)
            return
        for one in objects:
            parts = fitted(self, one) if isinstance(one, Table) else [one]
            for number, part in enumerate(parts):
                if number:
                    super().print()
                self._print_whole(part, options)

    def _print_whole(self, part: Any, options: dict[str, Any]) -> None:
        """Print an object without cutting any line."""
        least = least_width(part) if isinstance(part, Table) else 0
        fits = self.width
        self.width = max(least, fits)
        try:
            super().print(part, crop=least <= fits, **options)
        finally:
            self.width = fits

    def on_broken_pipe(self) -> None:
        """Raise `ClosedPipe` instead of the exit that rich would do."""
        raise ClosedPipe
