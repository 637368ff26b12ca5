"""Simulates a stored run again, with its traces, device and options."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from emmclab.errors import ConfigError, InputError
from emmclab.simulation.device import Device
from emmclab.simulation.result import Result
from emmclab.simulation.run_options import RUN_OPTIONS, SimulationProgress
from emmclab.simulation.stored_result import NAMING_SETTINGS, StoredResult, device_of, second_of
from emmclab.traces.reading import read
from emmclab.traces.trace import Trace


@dataclass(frozen=True)
class Recipe:
    """The inputs needed to simulate a run again: traces, devices and options."""

    device: Device
    second: Device | None
    traces: Sequence[Trace]
    #: File of the trace that preconditions the device; None if no trace does.
    aged_by: Path | None
    options: Mapping[str, Any]

    def run(self, *, images: str | PathLike[str] | None = None, progress: SimulationProgress | None = None) -> Result:
        """Simulate the run again."""
        values = {name: self.options.get(name.removesuffix("_ns")) for name in RUN_OPTIONS}
        options: Any = {name: value for name, value in values.items() if value is not None}
        if self.aged_by is not None:
            options["precondition"] = str(self.aged_by)
        options |= {"second": self.second, "images": images, "progress": progress}
        return self.device.simulate(*self.traces, **options)


def _open_input(result: StoredResult, recorded: Mapping[str, Any]) -> tuple[Path, Trace]:
    """Open a trace of a result, relative to the current folder or to the folder of the result."""
    path, digest = recorded.get("path"), recorded.get("sha256")
    if not isinstance(path, str) or digest is None:
        raise InputError(
            f"`provenance.inputs`: the trace `{recorded.get('name')}` cannot be read again from a file",
            field="provenance.inputs",
            hint="write the trace to a file (`emmclab convert`), and simulate that file",
        ).in_file(result.place)
    places = [place for place in (Path(path), result.folder / path) if place.exists()]
    if not places:
        raise InputError(
            f"file not found; it is an input of {result.place}",
            field="provenance.inputs",
            hint="run this command in the folder of the original run, or restore the trace",
        ).in_file(path)
    traces = [read(place, **(recorded.get("reading") or {})) for place in places]
    for place, trace in zip(places, traces, strict=True):
        if trace.digest == digest:
            return place, trace
    raise InputError(
        f"the trace has changed since {result.place} was written: its SHA-256 begins with "
        f"{traces[0].digest}, not {digest}",
        field="provenance.inputs",
        hint="restore the original file, or simulate again",
    ).in_file(str(places[0]))


def recipe_of(result: StoredResult) -> Recipe:
    """Return the traces, device and options needed to simulate a stored result again."""
    fields, options = result.fields, result.fields.get("options") or {}
    device, second = device_of(result), second_of(result)
    inputs = result.provenance.get("inputs")
    reason = ""
    if "app" in fields or "live" in fields:
        reason = "it is not a replay of a trace: a run of `apps` or of a served device cannot be repeated"
    elif options.get("victim"):
        reason = f"its victim policy `{options['victim']}` is a Python function"
    elif device is None or not inputs:
        reason = "it lacks `provenance.inputs` or `provenance.devices`"
    if reason or device is None or not inputs:
        raise ConfigError(
            f"this result cannot be simulated again: {reason}",
            field="provenance",
            hint="use results of `emmclab simulate --json` or `emmclab compare --json` of this version",
        ).in_file(result.place)
    aged_by = [_open_input(result, recorded)[0] for recorded in result.provenance.get("aged_by") or []]
    return Recipe(
        device_from(device.table),
        None if second is None else device_from(second.table),
        [_open_input(result, recorded)[1] for recorded in inputs],
        aged_by[0] if aged_by else None,
        options,
    )


def device_from(table: Mapping[str, Any]) -> Device:
    """Create a device from settings in nested tables, as results contain them.

    >>> import tomllib
    >>> device = Device.preset("nexus5").set({"gc.policy": "fifo"})
    >>> device_from(tomllib.loads(device.to_toml())).digest == device.digest
    True

    Raises:
        ConfigError: lists every unknown key, wrong type and impossible value.
    """
    return Device.from_toml("".join(f"{name} = {toml_text(value)}\n" for name, value in table.items()))


def with_settings(device: Device, values: Mapping[str, Any]) -> Device:
    """Return a device with some settings changed, given as JSON values by dotted key; its name is not changed."""
    return device.set(
        {key: toml_text(value) for key, value in values.items() if key.partition(".")[0] not in NAMING_SETTINGS}
    )


def toml_text(value: Any) -> str:
    """Return a JSON value as TOML in one line.

    >>> toml_text({"gc": {"policy": "fifo", "blocks": [1, 2.5, True]}})
    '{"gc" = {"policy" = "fifo", "blocks" = [1, 2.5, true]}}'
    """
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(name)} = {toml_text(item)}" for name, item in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_text, value))}]"
    return json.dumps(value, ensure_ascii=False)
