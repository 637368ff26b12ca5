"""What a result was made of: version, device, changed settings, and the bytes of the traces."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from emmclab._core import __version__

if TYPE_CHECKING:
    from emmclab.devices.device import Device
    from emmclab.traces.trace import Trace


def changed_settings(device: Device) -> dict[str, str]:
    """Return the settings that differ from the preset or file of a device, as `explain` gives them.

    >>> import emmclab
    >>> changed_settings(emmclab.Device.preset("nexus5").set({"timing.parallelism": "both"}))
    {'timing.parallelism': '"both"'}
    """
    return {row["key"]: row["value"] for row in device.explain() if row["origin"].startswith("--")}


class Hashing:
    """Computes the digests of traces while they are simulated, in a thread of its own."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        """Begin."""
        self._traces = traces
        self._thread = threading.Thread(target=self._hash, daemon=True)
        self._thread.start()

    def _hash(self) -> None:
        for trace in self._traces:
            _ = trace.digest

    def provenance(self, device: Device, second: Device | None) -> dict[str, Any]:
        """Tell what a result was made of; the digests are None for traces that are not in files."""
        self._thread.join()
        digests = [trace.digest for trace in self._traces]
        found = {"version": __version__, "settings": changed_settings(device), "trace_digests": digests}
        return found if second is None else found | {"second_settings": changed_settings(second)}
