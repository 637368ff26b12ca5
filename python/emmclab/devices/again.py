"""A stored run that is simulated again: its traces, device and options."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from emmclab.devices.device import Device, SimulationProgress
from emmclab.devices.difference import NAMES, device_of, second_of
from emmclab.devices.result import Result
from emmclab.devices.stored import Stored
from emmclab.devices.toml_text import toml_text
from emmclab.errors import ConfigError, InputError
from emmclab.runtime.files import folder_aside
from emmclab.traces.reading import read
from emmclab.traces.trace import Trace

#: Options of a run that `Device.simulate` takes under the same name.
_SAME = ("mode", "rate", "passes", "wrap_addresses", "seed", "check", "drain", "precondition", "first_writes")


@dataclass(frozen=True)
class Recipe:
    """What a run needs: traces, device and options."""

    device: Device
    second: Device | None
    inputs: Sequence[Mapping[str, Any]]
    #: The traces that precondition the device, where one does.
    aged_by: Sequence[Mapping[str, Any]]
    options: Mapping[str, Any]
    #: The folder of the result, where paths of inputs may begin.
    folder: Path
    #: The file, for errors.
    place: str

    def traces(self) -> list[Trace]:
        """Open the traces, and check that they are the recorded ones.

        Raises:
            InputError: one is gone, has changed, or was no file.
        """
        return [read(self._found(one), **(one.get("reading") or {})) for one in self.inputs]

    def run(
        self,
        *,
        images: str | PathLike[str] | None = None,
        progress: SimulationProgress | None = None,
    ) -> Result:
        """Simulate it again."""
        options = {name: self.options[name] for name in _SAME if name in self.options}
        if self.aged_by:
            options["precondition"] = str(self._found(self.aged_by[0]))
        return self.device.simulate(
            *self.traces(),
            **options,
            start_offset_ns=self.options.get("start_offset", 0),
            layers=self.options.get("layers") or [],
            layer_settings=self.options.get("layer_settings") or {},
            second=self.second,
            images=images,
            progress=progress,
        )

    def _found(self, one: Mapping[str, Any]) -> Path:
        """Return where a trace lies, from the present folder or from that of the result."""
        path, wanted = one.get("path"), one.get("sha256")
        if not isinstance(path, str) or wanted is None:
            raise InputError(
                f"{self.place}: `provenance.inputs`: the trace `{one.get('name')}` was no file that can be "
                "read again",
                kind="io",
                file=self.place,
                field="provenance.inputs",
                hint="write the trace to a file (`emmclab convert`), and simulate that",
            )
        places = [place for place in (Path(path), self.folder / path) if place.exists()]
        if not places:
            raise InputError(
                f"{path}: file not found; {self.place} was made of it",
                kind="io",
                file=path,
                field="provenance.inputs",
                hint="call the command in the folder in which the result was made, or put the trace back",
            )
        digests = [read(place, **(one.get("reading") or {})).digest for place in places]
        if wanted not in digests:
            raise InputError(
                f"{places[0]}: it has changed since {self.place} was made: its SHA-256 begins with "
                f"{digests[0]}, not {wanted}",
                kind="io",
                file=str(places[0]),
                field="provenance.inputs",
                hint="put the former file back, or simulate again",
            )
        return places[digests.index(wanted)]


def recipe_of(result: Stored) -> Recipe:
    """Return what is needed to simulate a stored result again.

    Raises:
        ConfigError: the file does not hold it, or the run was no replay of traces.
    """
    fields, options = result.fields, result.fields.get("options") or {}
    device, second = device_of(result), second_of(result)
    inputs = result.provenance.get("inputs")
    reason = ""
    if "app" in fields or "live" in fields:
        reason = "it was no replay of a trace: a run of `apps` and a served device cannot be repeated so"
    elif options.get("victim"):
        reason = f"its victim policy `{options['victim']}` is a Python function"
    elif device is None or not inputs:
        reason = "it does not say how it was made: `provenance.inputs` or `provenance.devices` is missing"
    if reason or device is None or not inputs:
        raise ConfigError(
            f"{result.place}: this result cannot be simulated again: {reason}",
            kind="config",
            file=result.place,
            field="provenance",
            hint="take results of `emmclab simulate --json` or `emmclab compare --json` of this version",
        )
    return Recipe(
        device_from(device.table),
        None if second is None else device_from(second.table),
        inputs,
        result.provenance.get("aged_by") or [],
        options,
        result.folder,
        result.place,
    )


def device_from(table: Mapping[str, Any]) -> Device:
    """Take the settings of a device in nested tables, as results hold them.

    >>> from emmclab.devices.difference import settings_of_device
    >>> device = Device.preset("nexus5").set({"gc.policy": "fifo"})
    >>> device_from(settings_of_device(device).table).digest == device.digest
    True

    Raises:
        ConfigError: with every unknown key, wrong type and impossible value at once.
    """
    with folder_aside(Path(tempfile.gettempdir())) as aside:
        made = aside / "device.toml"
        lines = (f"{name} = {toml_text(value)}\n" for name, value in table.items())
        made.write_text("".join(lines), encoding="utf-8")
        return Device.file(made)


def with_settings(device: Device, values: Mapping[str, Any]) -> Device:
    """Return a device with other settings, by dotted key, as JSON values; names are left as they are."""
    return device.set(
        {key: toml_text(value) for key, value in values.items() if key.partition(".")[0] not in NAMES}
    )
