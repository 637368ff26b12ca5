"""The console that data go to."""

from __future__ import annotations

from rich.console import Console

from emmclab.cli.console import ClosedPipe


class DataConsole(Console):
    """A console that leaves a closed pipe to the one place where exceptions become exit codes."""

    def on_broken_pipe(self) -> None:
        """Pass it on, where rich would exit."""
        raise ClosedPipe
