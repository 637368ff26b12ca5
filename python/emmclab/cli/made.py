"""What a result was made from: version, command line, inputs and settings."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Sequence
from typing import Any

from emmclab import __version__
from emmclab.cli.failures import words
from emmclab.devices.device import Device
from emmclab.runtime.files import printable
from emmclab.traces.trace import Trace

#: Options with a value that change no result: outputs; places of results, and processes. Then those without.
_OUTPUTS = ("--html", "--figures", "--over-time", "--perfetto", "--events", "--record", "--output", "-o")
_PLACES = ("--results", "--images", "--images-gb", "--jobs", "--on")
_FLAGS = ("--json", "--fresh")


def command_line() -> str:
    """Return the command line of this process without what changes no result; it gives the same one."""
    kept, end = [], words.index("--") if "--" in words else len(words)
    skips = False
    for place, word in enumerate(words):
        option, equals, _ = word.partition("=")
        if skips:
            skips = False
        elif place < end and option in (*_OUTPUTS, *_PLACES):
            skips = not equals
        elif place >= end or option not in _FLAGS:
            kept.append(word)
    return shlex.join(["emmclab", *map(printable, kept)])


class Made:
    """The provenance of the results of a command; inputs are hashed while the command runs."""

    def __init__(self, devices: Sequence[Device], traces: Sequence[Trace] = ()) -> None:
        """Begin to hash the files of the traces."""
        self._devices, self._traces = devices, traces
        self._hashing = threading.Thread(target=lambda: [trace.digest for trace in traces], daemon=True)
        self._hashing.start()

    def to_dict(self) -> dict[str, Any]:
        """Return the group `provenance` of a result.

        The digest of an input is None where it is no file, or cannot be read again.
        """
        self._hashing.join()
        return {
            "version": __version__,
            "command": command_line(),
            "inputs": [{"name": trace.name, "sha256": trace.digest} for trace in self._traces],
            "settings": {device.name: device.changes for device in self._devices},
        }
