"""The provenance of a result: version, command, inputs and settings."""

import threading
import tomllib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from emmclab.traces.inputs import ProvenanceFields, inputs_of, provenance_here

if TYPE_CHECKING:
    from emmclab.simulation.device import Device
    from emmclab.traces.trace import Trace


#: ID of the HTML element of a page that contains the provenance as JSON.
RECORD = "made"


class Provenance:
    """The provenance of a result; the files of the traces are hashed in a thread during the run."""

    def __init__(
        self, devices: "Sequence[Device]", traces: "Sequence[Trace]" = (), aged_by: "Sequence[Trace]" = ()
    ) -> None:
        """Start to hash the files of the traces; `aged_by` are the traces that preconditioned the devices."""
        self._devices, self._traces, self._aged_by = devices, traces, aged_by
        all_traces = [*traces, *aged_by]
        self._hashing = threading.Thread(target=lambda: [trace.digest for trace in all_traces], daemon=True)
        self._hashing.start()

    def to_dict(self) -> ProvenanceFields:
        """Return the group `provenance` of a result.

        It has `version`, `command` (if a command produced it), `inputs`, `aged_by` (the trace that preconditioned
        the device, if any), `settings` and `devices`. The digest of an input is None if it is not a file, or
        cannot be read again. `settings` contains for each device the settings that differ from its preset.
        `devices` contains all settings of each device, the simulated one first.
        """
        self._hashing.join()
        return {
            **provenance_here(inputs_of(self._traces)),
            "aged_by": inputs_of(self._aged_by),
            "settings": {device.name: device.changes for device in self._devices},
            "devices": [{"name": device.name, "settings": tomllib.loads(device.to_toml())} for device in self._devices],
        }
