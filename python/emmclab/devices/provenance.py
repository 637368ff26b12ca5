"""What a result was made from: version, inputs and settings."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from emmclab._core import __version__

if TYPE_CHECKING:
    from emmclab.devices.device import Device
    from emmclab.traces.trace import Trace


class Provenance:
    """The provenance of a result; the files of the traces are hashed in a thread while the run goes on."""

    def __init__(self, devices: Sequence[Device], traces: Sequence[Trace] = ()) -> None:
        """Begin to hash the files of the traces."""
        self._devices, self._traces = devices, traces
        self._hashing = threading.Thread(target=lambda: [trace.digest for trace in traces], daemon=True)
        self._hashing.start()

    def to_dict(self) -> dict[str, Any]:
        """Return the group `provenance` of a result: `version`, `inputs` and `settings`.

        The digest of an input is None where it is no file, or cannot be read again. The settings of each
        device are those that differ from its preset.
        """
        self._hashing.join()
        return {
            "version": __version__,
            "inputs": [{"name": trace.name, "sha256": trace.digest} for trace in self._traces],
            "settings": {device.name: device.changes for device in self._devices},
        }
