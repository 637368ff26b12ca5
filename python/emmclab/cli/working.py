"""Signs of life of work that reports no progress, on stderr."""

from __future__ import annotations

import time
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from emmclab.cli.console import say
from emmclab.cli.meter import length
from emmclab.devices.device import Device, parse_precondition
from emmclab.runtime.quantity import size
from emmclab.runtime.repeating import repeated

#: Time between two lines, seconds; work shorter than this passes in silence.
_LINE_S = 5.0


class Working:
    """Prints how long work has taken, every few seconds, until it ends or reports progress itself."""

    def __init__(self, what: str) -> None:
        """Name the work; nothing is printed for work without a name."""
        self._what = what
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
        say(f"{self._what}: {length(time.monotonic() - self._started)} so far")


def preparation(device: Device, precondition: str, images: object = None) -> str:
    """Name the preconditioning of a device with the most that it writes; empty where there is none.

    >>> preparation(Device.preset("small-1gb"), "steady:2")
    'precondition small-1gb (steady:2, writes at most 3 GB; --images DIR keeps the device for later runs)'
    >>> preparation(Device.preset("small-1gb"), "none")
    ''
    """
    found = parse_precondition(precondition)
    if found == "none":
        return ""
    kept = "" if images else "; --images DIR keeps the device for later runs"
    if not isinstance(found, dict):
        return f"precondition {device.name} (by {precondition}{kept})"
    (amount,) = found.values()
    # Steady state fills the device first, and then overwrites it.
    times = 1 + amount["most_capacities"] if isinstance(amount, dict) else amount / 100
    most = size(device.capacity_bytes * times)
    return f"precondition {device.name} ({precondition}, writes at most {most}{kept})"
