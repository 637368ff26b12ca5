"""Reads stored results: JSON of a command, the Parquet of `--events`, and pages, each with its provenance."""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from emmclab.errors import ConfigError, FormatError, InputError
from emmclab.runtime.files import read_text
from emmclab.simulation.provenance import RECORD
from emmclab.traces.reading import read

#: Groups in the JSON of a simulated run.
_OF_A_RESULT = ("device", "options", "configuration", "requests")
#: Metadata key of a file of requests that describes its run.
_RUN_KEY = "emmclab.run"
_PAGES = (".html", ".htm")
_HINT = (
    "name a file that `--json` of a command, `--events` or `--html` wrote; `emmclab profile A "
    "--against B` compares traces"
)
#: Settings that only name a device and do not affect its behaviour.
NAMING_SETTINGS = ("name", "about", "fitted_to")


class StoredResult(NamedTuple):
    """A stored result."""

    #: The file, followed by `#N` if it contains several results.
    place: str
    #: `simulation`, `requests` (the file of `--events`), or `other`.
    kind: str
    #: Groups of fields of a simulated run; for other results, only their names.
    fields: Mapping[str, Any]

    @property
    def provenance(self) -> Mapping[str, Any]:
        """The provenance; empty if the file has none."""
        found = self.fields.get("provenance")
        return found if isinstance(found, Mapping) else {}

    @property
    def name(self) -> str:
        """The names of trace and device, as far as the result contains them."""
        named = (self.fields.get(part) for part in ("trace", "device"))
        text = " on ".join(part for part in named if isinstance(part, str))
        first = self.fields.get("name", self.fields.get("study"))
        return text or (first if isinstance(first, str) else self.place)

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return Path(self.place.partition("#")[0]).parent


class DeviceSettings(NamedTuple):
    """All settings of a device in a result, in nested tables."""

    name: str
    table: Mapping[str, Any]


def read_result(text: str) -> StoredResult:
    """Read one stored result; `FILE#2` is the second result in a file."""
    path, _, number = (text, "", "") if Path(text).is_file() else text.rpartition("#")
    if not path or not number.isdigit():
        path, number = text, ""
    found = read_results(Path(path))
    if not number and len(found) == 1:
        return found[0]
    if number and 1 <= int(number) <= len(found):
        return found[int(number) - 1]
    listed = "; ".join(f"{one.place}: {one.name}{_seed_of(one, found)}" for one in found[:6])
    raise ConfigError(
        f"{path}: it has {len(found)} result{'s' if len(found) > 1 else ''}" + (f", not {number}" if number else ""),
        file=path,
        field="RESULT",
        hint=f"name one of them: {listed}{'; ...' if len(found) > 6 else ''}",
    )


def _seed_of(one: StoredResult, among: Sequence[StoredResult]) -> str:
    """Return the seed of a result, if other results have the same name."""
    options = one.fields.get("options")
    if not isinstance(options, Mapping) or "seed" not in options:
        return ""
    return f", seed {options['seed']}" if sum(other.name == one.name for other in among) > 1 else ""


def read_results(path: Path) -> list[StoredResult]:
    """Read all results of a file."""
    found: list[StoredResult] = []
    if path.suffix.lower() == ".parquet":
        fields = _of_requests(path)
        found = [] if fields is None else [StoredResult(str(path), "requests", fields)]
    elif path.suffix.lower() in _PAGES:
        record = page_record(path)
        found = [] if record is None else list(_of_document(path, record))
    elif path.suffix.lower() == ".json" or not path.is_file():
        found = list(_of_document(path, _json(path, read_text(path, _HINT))))
    else:
        # A file with another extension, such as a trace, may contain anything.
        with contextlib.suppress(ValueError):
            found = list(_of_document(path, json.loads(read_text(path, _HINT))))
    if not found:
        raise FormatError(
            f"{path}: this is no result of emmclab, or does not say how it was made",
            kind="syntax",
            file=str(path),
            hint=_HINT,
        )
    return found


def holds_results(path: Path) -> bool:
    """Return whether a JSON file or page contains stored results; False for a damaged one."""
    if path.suffix.lower() not in (".json", *_PAGES) or not path.is_file():
        return False
    try:
        return bool(read_results(path))
    except (FormatError, InputError):
        return False


def page_record(path: Path) -> Any:
    """Return the data for programs in a page of the project; None for any other page."""
    found = re.search(rf'<script id="{RECORD}" type="application/json">(.*?)</script>', read_text(path), re.DOTALL)
    return None if found is None else _json(path, found[1])


def _json(path: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise FormatError(
            f"{path}: line {error.lineno}, column {error.colno}: this is not JSON: {error.msg}",
            kind="syntax",
            file=str(path),
            line=error.lineno,
            hint=f"the file may be cut off; {_HINT}",
        ) from error


def _of_document(path: Path, document: Any) -> Iterator[StoredResult]:
    """Yield the results of a document, numbered if there are several."""
    found = list(_results(document))
    for number, (kind, fields) in enumerate(found, 1):
        yield StoredResult(f"{path}#{number}" if len(found) > 1 else str(path), kind, fields)


def _results(document: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield kind and fields of each result: of one, of a list, of `runs`, or of the device under advice."""
    if isinstance(document, list):
        for part in document:
            yield from _results(part)
    elif isinstance(document, dict):
        inner = document.get("runs")
        if isinstance(inner, list):
            whence = {"provenance": document["provenance"]} if "provenance" in document else {}
            for part in inner:
                if isinstance(part, dict):
                    yield from _results({**whence, **part})
        elif {*_OF_A_RESULT} <= {*document}:
            yield "simulation", document
        elif isinstance(document.get("provenance"), dict):
            yield "other", document


def run_of(path: Path) -> dict[str, Any] | None:
    """Return the description of the run in a file of requests (`--events`); None for any other file."""
    if not _may_describe_a_run(path):
        return None
    from emmclab.runtime.parquet import metadata_of  # Loads a database, which other files do not need.

    text = metadata_of(path).get(_RUN_KEY)
    found = None if text is None else _json(path, text)
    return found if isinstance(found, dict) else None


def _may_describe_a_run(path: Path) -> bool:
    """Return whether the footer of a Parquet file contains the metadata key of a run."""
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
    """Return the run that a file of requests describes, with the figures that follow from its rows."""
    run = run_of(path)
    if run is None:
        return None
    profile = read(path).profile()
    counts = {row["op"]: row["requests"] for row in profile["by_operation"]}
    figures: dict[str, Any] = {"requests": {"total": profile["requests"], **counts}}
    for group in ("response", "service"):
        found: dict[str, Any] = {}
        for row in profile["by_operation"]:
            if times := row[f"{group}_ms"]:
                named = {f"{name}_ms": value for name, value in times.items()}
                found |= named | {f"mean_{group}_ms": named["mean_ms"]} if row["op"] == "all" else {row["op"]: named}
        figures[group] = found
    return {**figures, **run}


def device_of(result: StoredResult) -> DeviceSettings | None:
    """Return the settings of the simulated device; None if the result does not contain them."""
    name = result.fields.get("device")
    return next((one for one in _devices(result) if one.name == name), None)


def second_of(result: StoredResult) -> DeviceSettings | None:
    """Return the settings of the second device; None if there is none."""
    name = (result.fields.get("options") or {}).get("second")
    return next((one for one in reversed(_devices(result)) if name and one.name == name), None)


def _devices(result: StoredResult) -> list[DeviceSettings]:
    found = []
    for one in result.provenance.get("devices") or []:
        if isinstance(one, dict) and isinstance(one.get("settings"), dict):
            found.append(DeviceSettings(str(one.get("name")), one["settings"]))
    return found
