"""Progress lines of long work on stderr, at least one every five seconds."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from emmclab._core import preconditioned_bytes
from emmclab.cli.console import say
from emmclab.devices.device import Device
from emmclab.devices.preconditioning import parse_precondition
from emmclab.runtime.quantity import size
from emmclab.runtime.repeating import repeated

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
        self._begun = False

    def __enter__(self) -> Self:
        self.begin()
        return self

    def begin(self) -> None:
        """Start printing lines, unless already started."""
        if self.what and not self._begun:
            self._begun = True
            self._spoke = time.monotonic()
            self._lines.enter_context(repeated(_LINE_S / _LOOKS, self._look))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        say(line)

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
        """Set the name of the work, with its maximum of written data; nothing is printed for a new device.

        Raises:
            ConfigError: as `parse_precondition`.
        """
        found = parse_precondition(precondition)
        kept = "" if images else "; --images DIR keeps the device for later runs"
        most = 0.0 if isinstance(found, Path) else found.most_bytes(device.capacity_bytes)
        if isinstance(found, Path):
            super().__init__(f"precondition {device.name} (by {precondition}{kept})")
        elif most:
            super().__init__(
                f"precondition {device.name} ({precondition}, writes at most {size(most)}{kept})"
            )
        else:
            super().__init__("")
        self.most = most
