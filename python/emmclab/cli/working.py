"""Signs of life of work that reports no progress, on stderr."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from emmclab._core import preconditioned_bytes
from emmclab.cli.console import say
from emmclab.cli.meter import length
from emmclab.devices.device import Device
from emmclab.devices.preconditioning import parse_precondition
from emmclab.runtime.quantity import size
from emmclab.runtime.repeating import repeated

#: Time between two lines, seconds; work shorter than this passes in silence.
_LINE_S = 5.0


class Working:
    """Prints how long work has taken, every few seconds, until it ends or reports progress itself."""

    def __init__(self, what: str) -> None:
        """Name the work; nothing is printed for work without a name."""
        self._what = what
        self._before = preconditioned_bytes()
        self._lines = ExitStack()

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        if self._what:
            self._lines.enter_context(repeated(_LINE_S, self._line))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the lines: the work is done, or has a meter of its own from here on."""
        self._lines.close()

    def _line(self) -> None:
        say(f"{self._what}: {length(time.monotonic() - self._started)} so far{self._done()}")

    def _done(self) -> str:
        """Say how much preconditioning has written meanwhile."""
        written = preconditioned_bytes() - self._before
        return f", {size(written)} written to precondition" if written else ""


class Preparing(Working):
    """Prints how far the preconditioning of a device is."""

    def __init__(self, device: Device, precondition: str, images: object = None) -> None:
        """Name the preconditioning, with the most that it writes; nothing is printed for a new device.

        Raises:
            ConfigError: as `parse_precondition`.
        """
        found = parse_precondition(precondition)
        kept = "" if images else "; --images DIR keeps the device for later runs"
        self._most = 0.0 if isinstance(found, Path) else found.most_bytes(device.capacity_bytes)
        if isinstance(found, Path):
            super().__init__(f"precondition {device.name} (by {precondition}{kept})")
        elif self._most:
            most = size(self._most)
            super().__init__(f"precondition {device.name} ({precondition}, writes at most {most}{kept})")
        else:
            super().__init__("")

    def _done(self) -> str:
        written = preconditioned_bytes() - self._before
        if not 0 < written < self._most:
            return super()._done()
        left = (time.monotonic() - self._started) * (self._most - written) / written
        return f"{super()._done()}, at most {length(left)} left"
