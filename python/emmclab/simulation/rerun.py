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
    """What a run needs: traces, device and options."""

    device: Device
    second: Device | None
    traces: Sequence[Trace]
    #: The file of the trace that preconditions the device, if any.
    aged_by: Path | None
    options: Mapping[str, Any]

    def run(self, *, images: str | PathLike[str] | None = None, progress: SimulationProgress | None = None) -> Result:
        """Simulate it again."""
        found = {name: self.options.get(name.removesuffix("_ns")) for name in RUN_OPTIONS}
        given: Any = {name: value for name, value in found.items() if value is not None}
        if self.aged_by is not None:
            given["precondition"] = str(self.aged_by)
        given |= {"second": self.second, "images": images, "progress": progress}
        return self.device.simulate(*self.traces, **given)


def _open_input(result: StoredResult, one: Mapping[str, Any]) -> tuple[Path, Trace]:
    """Open a trace of a result, relative to the current folder or to the folder of the result."""
    path, wanted = one.get("path"), one.get("sha256")
    if not isinstance(path, str) or wanted is None:
        raise InputError(
            f"{result.place}: `provenance.inputs`: the trace `{one.get('name')}` was no file that can be read again",
            file=result.place,
            field="provenance.inputs",
            hint="write the trace to a file (`emmclab convert`), and simulate that",
        )
    places = [place for place in (Path(path), result.folder / path) if place.exists()]
    if not places:
        raise InputError(
            f"{path}: file not found; {result.place} was made of it",
            file=path,
            field="provenance.inputs",
            hint="run the command in the folder in which the result was made, or put the trace back",
        )
    traces = [read(place, **(one.get("reading") or {})) for place in places]
    for place, trace in zip(places, traces, strict=True):
        if trace.digest == wanted:
            return place, trace
    raise InputError(
        f"{places[0]}: it has changed since {result.place} was made: its SHA-256 begins with "
        f"{traces[0].digest}, not {wanted}",
        file=str(places[0]),
        field="provenance.inputs",
        hint="put the former file back, or simulate again",
    )


def recipe_of(result: StoredResult) -> Recipe:
    """Return the traces, device and options needed to simulate a stored result again."""
    fields, options = result.fields, result.fields.get("options") or {}
    device, second = device_of(result), second_of(result)
    inputs = result.provenance.get("inputs")
    reason = ""
    if "app" in fields or "live" in fields:
        reason = "it is no replay of a trace: a run of `apps` or of a served device cannot be repeated"
    elif options.get("victim"):
        reason = f"its victim policy `{options['victim']}` is a Python function"
    elif device is None or not inputs:
        reason = "it does not say how it was made: `provenance.inputs` or `provenance.devices` is missing"
    if reason or device is None or not inputs:
        raise ConfigError(
            f"{result.place}: this result cannot be simulated again: {reason}",
            file=result.place,
            field="provenance",
            hint="take results of `emmclab simulate --json` or `emmclab compare --json` of this version",
        )
    aged_by = [_open_input(result, one)[0] for one in result.provenance.get("aged_by") or []]
    return Recipe(
        device_from(device.table),
        None if second is None else device_from(second.table),
        [_open_input(result, one)[1] for one in inputs],
        aged_by[0] if aged_by else None,
        options,
    )


def device_from(table: Mapping[str, Any]) -> Device:
    """Make a device of settings in nested tables, as results contain them.

    >>> import tomllib
    >>> device = Device.preset("nexus5").set({"gc.policy": "fifo"})
    >>> device_from(tomllib.loads(device.to_toml())).digest == device.digest
    True

    Raises:
        ConfigError: lists every unknown key, wrong type and impossible value.
    """
    return Device.from_toml("".join(f"{name} = {toml_text(value)}\n" for name, value in table.items()))


def with_settings(device: Device, values: Mapping[str, Any]) -> Device:
    """Return a device with some settings changed, by dotted key, as JSON values; names are not changed."""
    return device.set(
        {key: toml_text(value) for key, value in values.items() if key.partition(".")[0] not in NAMING_SETTINGS}
    )


def toml_text(value: Any) -> str:
    """Return a JSON value as TOML in one line.

    >>> toml_text({"gc": {"policy": "fifo", "blocks": [1, 2.5, True]}})
    '{"gc" = {"policy" = "fifo", "blocks" = [1, 2.5, true]}}'
    """
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(name)} = {toml_text(one)}" for name, one in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_text, value))}]"
    return json.dumps(value, ensure_ascii=False)
