"""Reads stored results from JSON of a command, Parquet of `--events`, or HTML pages, and simulates their runs again."""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from emmclab.errors import ConfigError, FormatError, InputError
from emmclab.runtime.files import read_text
from emmclab.simulation.device import Device
from emmclab.simulation.result import Result
from emmclab.simulation.run_options import RUN_OPTIONS, SimulationProgress, split_precondition
from emmclab.traces.inputs import RECORD
from emmclab.traces.reading import read
from emmclab.traces.trace import Trace

#: Groups of fields by which the JSON of a simulated run is recognised; all of them must be present.
_OF_A_RESULT = ("device", "options", "configuration", "requests")
#: Metadata key under which a file of requests stores the description of its run.
_RUN_KEY = "emmclab.run"
_PAGES = (".html", ".htm")
_HINT = (
    "give a file that `--json`, `--events` or `--html` of a command wrote; `emmclab profile A "
    "--against B` compares traces"
)
#: Settings that only name a device and do not affect its behaviour.
NAMING_SETTINGS = ("name", "about", "fitted_to")


class StoredResult(NamedTuple):
    """A stored result: its fields, and the file that contains it."""

    #: Path of the file, followed by `#N` if the file contains several results.
    place: str
    #: Kind of the stored result: `simulation`, `requests` (the file of `--events`), or `other`.
    kind: str
    #: Groups of fields of a simulated run; for other results, only the names of the groups.
    fields: Mapping[str, Any]

    @property
    def provenance(self) -> Mapping[str, Any]:
        """The provenance of the result; empty if the file contains none."""
        provenance = self.fields.get("provenance")
        return provenance if isinstance(provenance, Mapping) else {}

    @property
    def name(self) -> str:
        """The names of trace and device, as far as the result contains them; else its name, study or file."""
        parts = (self.fields.get(part) for part in ("trace", "device"))
        text = " on ".join(part for part in parts if isinstance(part, str))
        first = self.fields.get("name", self.fields.get("study"))
        return text or (first if isinstance(first, str) else self.place)

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return Path(self.place.partition("#")[0]).parent


class DeviceSettings(NamedTuple):
    """All settings of a device in a result, as nested tables."""

    name: str
    table: Mapping[str, Any]


def read_result(text: str) -> StoredResult:
    """Read one stored result; `FILE#2` is the second result in a file."""
    path, _, number = (text, "", "") if Path(text).is_file() else text.rpartition("#")
    if not path or not number.isdigit():
        path, number = text, ""
    results = read_results(Path(path))
    if not number and len(results) == 1:
        return results[0]
    if number and 1 <= int(number) <= len(results):
        return results[int(number) - 1]
    listed = "; ".join(f"{result.place}: {result.name}{_seed_of(result, results)}" for result in results[:6])
    raise ConfigError(
        f"{path}: it has {len(results)} result{'s' if len(results) > 1 else ''}"
        + (f", not {number}" if number else ""),
        file=path,
        field="RESULT",
        hint=f"choose one of the results: {listed}{'; ...' if len(results) > 6 else ''}",
    )


def _seed_of(result: StoredResult, among: Sequence[StoredResult]) -> str:
    """Return the seed of a result as text if other results have the same name; otherwise an empty text."""
    options = result.fields.get("options")
    if not isinstance(options, Mapping) or "seed" not in options:
        return ""
    return f", seed {options['seed']}" if sum(other.name == result.name for other in among) > 1 else ""


def read_results(path: Path) -> list[StoredResult]:
    """Read all results of a file."""
    results: list[StoredResult] = []
    if path.suffix.lower() == ".parquet":
        fields = _of_requests(path)
        results = [] if fields is None else [StoredResult(str(path), "requests", fields)]
    elif path.suffix.lower() in _PAGES:
        record = page_record(path)
        results = [] if record is None else list(_of_document(path, record))
    elif path.suffix.lower() == ".json" or not path.is_file():
        results = list(_of_document(path, _json(path, read_text(path, _HINT))))
    else:
        # A file with another extension, such as a trace, may contain anything, so invalid JSON is ignored.
        with contextlib.suppress(ValueError):
            results = list(_of_document(path, json.loads(read_text(path, _HINT))))
    if not results:
        raise FormatError(
            "this is not a result of emmclab, or it has no provenance", kind="syntax", hint=_HINT
        ).in_file(str(path))
    return results


def holds_results(path: Path) -> bool:
    """Return whether a JSON file or page contains stored results; False for a damaged one."""
    if path.suffix.lower() not in (".json", *_PAGES) or not path.is_file():
        return False
    try:
        return bool(read_results(path))
    except (FormatError, InputError):
        return False


def page_record(path: Path) -> Any:
    """Return the JSON data in an HTML page of emmclab; None for any other page."""
    match = re.search(rf'<script id="{RECORD}" type="application/json">(.*?)</script>', read_text(path), re.DOTALL)
    return None if match is None else _json(path, match[1])


def _json(path: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise FormatError(
            f"line {error.lineno}, column {error.colno}: this is not JSON: {error.msg}",
            kind="syntax",
            line=error.lineno,
            hint=f"the file may be cut off; {_HINT}",
        ).in_file(str(path)) from error


def _of_document(path: Path, document: Any) -> Iterator[StoredResult]:
    """Yield the results in a JSON document, numbered if there are several."""
    results = list(_results(document))
    for number, (kind, fields) in enumerate(results, 1):
        yield StoredResult(f"{path}#{number}" if len(results) > 1 else str(path), kind, fields)


def _results(document: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield kind and fields of each result in a JSON document: a result, a list, or an object with `runs`."""
    if isinstance(document, list):
        for part in document:
            yield from _results(part)
    elif isinstance(document, dict):
        inner = document.get("runs")
        if isinstance(inner, list):
            provenance = {"provenance": document["provenance"]} if "provenance" in document else {}
            for part in inner:
                if isinstance(part, dict):
                    yield from _results({**provenance, **part})
        elif {*_OF_A_RESULT} <= {*document}:
            yield "simulation", document
        elif isinstance(document.get("provenance"), dict):
            yield "other", document


def run_of(path: Path) -> dict[str, Any] | None:
    """Return the description of the run in a Parquet file of `--events`; None for any other file."""
    if not _may_describe_a_run(path):
        return None
    from emmclab.runtime.parquet import metadata_of  # Loads a database, which other files do not need.

    text = metadata_of(path).get(_RUN_KEY)
    run = None if text is None else _json(path, text)
    return run if isinstance(run, dict) else None


def _may_describe_a_run(path: Path) -> bool:
    """Return whether a Parquet file's footer contains the metadata key under which a run is described."""
    if path.suffix.lower() != ".parquet" or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 8))
            length = int.from_bytes(file.read(4), "little")
            file.seek(max(0, size - 8 - length))
            return _RUN_KEY.encode() in file.read(length)
    except OSError as error:
        raise InputError.of(error, path, _HINT) from error


def _of_requests(path: Path) -> dict[str, Any] | None:
    """Return the run that a Parquet file of `--events` describes, with figures computed from its rows."""
    run = run_of(path)
    if run is None:
        return None
    profile = read(path).profile()
    counts = {row["op"]: row["requests"] for row in profile["by_operation"]}
    figures: dict[str, Any] = {"requests": {"total": profile["requests"], **counts}}
    for group in ("response", "service"):
        table: dict[str, Any] = {}
        for row in profile["by_operation"]:
            if times := row[f"{group}_ms"]:
                in_ms = {f"{name}_ms": value for name, value in times.items()}
                table |= in_ms | {f"mean_{group}_ms": in_ms["mean_ms"]} if row["op"] == "all" else {row["op"]: in_ms}
        figures[group] = table
    return {**figures, **run}


def device_of(result: StoredResult) -> DeviceSettings | None:
    """Return the settings of the simulated device; None if the result does not contain them."""
    name = result.fields.get("device")
    return next((device for device in _devices(result) if device.name == name), None)


def second_of(result: StoredResult) -> DeviceSettings | None:
    """Return the settings of the second device; None if there is none."""
    name = (result.fields.get("options") or {}).get("second")
    return next((device for device in reversed(_devices(result)) if name and device.name == name), None)


def _devices(result: StoredResult) -> list[DeviceSettings]:
    devices = []
    for row in result.provenance.get("devices") or []:
        if isinstance(row, dict) and isinstance(row.get("settings"), dict):
            devices.append(DeviceSettings(str(row.get("name")), row["settings"]))
    return devices


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
            options["precondition"] = split_precondition(str(options["precondition"]))[0] + str(self.aged_by)
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
