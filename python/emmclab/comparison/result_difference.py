"""Compares two stored results: their figures, and how they were computed."""

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from emmclab.runtime.document import FigureDifference, figure_difference
from emmclab.simulation.device import Device, presets
from emmclab.simulation.result import WALL_GROUP, Result
from emmclab.simulation.result_fields import result_fields
from emmclab.simulation.stored_result import (
    NAMING_SETTINGS,
    DeviceSettings,
    StoredResult,
    device_of,
    second_of,
    toml_text,
)

#: Options of a run that concern its layers.
OF_LAYERS = ("layers", "layer_settings")

#: Relative difference that may result from adding the same numbers in another order.
_ROUNDING = 1e-12


class RunDifference(NamedTuple):
    """A difference in how two results were computed; a value is None if it is missing in that result."""

    #: Kind of the difference: `version`, `input`, `reading`, `option`, `layers`, `setting` or `second device`.
    kind: str
    key: str
    first: Any
    second: Any
    unit: str = ""
    meaning: str = ""


class ResultDifference(FigureDifference):
    """A figure in which two results differ."""

    path: str
    label: str
    unit: str


def differences(first: StoredResult, second: StoredResult) -> list[RunDifference]:
    """Return every difference in how two results were computed, as far as both contain this information."""
    pair = (first, second)
    rows = list(_plain("version", "emmclab", [stored.provenance.get("version") for stored in pair]))
    rows += _inputs("inputs", pair)
    rows += _inputs("aged_by", pair)
    options = [stored.fields.get("options") or {} for stored in pair]
    for key in dict.fromkeys([*options[0], *options[1]]):
        if key not in (*OF_LAYERS, "second"):
            rows += _plain("option", key, [part.get(key) for part in options])
    rows += _plain("layers", "layers", [part.get("layers") or [] for part in options])
    settings = [part.get("layer_settings") or {} for part in options]
    for key in dict.fromkeys([*settings[0], *settings[1]]):
        rows += _plain("layers", key, [part.get(key) for part in settings])
    devices = [device_of(stored) for stored in pair]
    if devices[0] and devices[1]:
        rows += setting_differences("setting", devices[0], devices[1])
    else:
        rows += _plain("setting", "device", [stored.fields.get("device") for stored in pair])
    seconds = [second_of(stored) for stored in pair]
    if seconds[0] and seconds[1]:
        rows += setting_differences("second device", seconds[0], seconds[1])
    else:
        rows += _plain("second device", "device", [stored.name if stored else None for stored in seconds])
    return rows


def setting_differences(kind: str, first: DeviceSettings, second: DeviceSettings) -> Iterator[RunDifference]:
    """Yield the settings in which two devices differ.

    A list of tables, such as the block groups, counts as one setting if its length differs.
    """
    lists = [dict(_lists(part.table)) for part in (first, second)]
    counts = [{key: len(value) for key, value in part.items()} for part in lists]
    as_one = {key for key in (*counts[0], *counts[1]) if counts[0].get(key, 0) != counts[1].get(key, 0)}
    flat = [dict(_flat(part.table, as_one=as_one)) for part in (first, second)]
    meanings = _meanings() if flat[0] != flat[1] else {}
    for key in dict.fromkeys([*flat[0], *flat[1]]):
        if key.partition(".")[0] not in NAMING_SETTINGS:
            unit, meaning = meanings.get(key, ("", ""))
            yield from _plain(kind, key, [part.get(key) for part in flat], unit, meaning)


def figure_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[ResultDifference]:
    """Return the figures in which two results differ, in the order of the JSON output."""
    rows: list[ResultDifference] = []
    for field in result_fields():
        group = field.path.partition(".")[0]
        if group in (WALL_GROUP, "provenance", "options", "configuration"):
            continue
        pair = [figure(fields, field.path) for fields in (first, second)]
        before, after = pair
        if before == after or (before and after and math.isclose(before, after, rel_tol=_ROUNDING)):
            continue
        difference = figure_difference(before, after, is_share=field.unit == "%")
        rows.append({"path": field.path, "label": field.about, "unit": field.unit, **difference})
    return rows


def figure(fields: Mapping[str, Any], path: str) -> float | None:
    """Return a figure by its path; None if the result does not have it, or if it is not a number.

    >>> figure({"run": {"drain_s": 1.5}}, "run.drain_s"), figure({}, "run.drain_s")
    (1.5, None)
    """
    try:
        value = Result(fields)[path]
    except (KeyError, TypeError):
        return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def value_text(value: Any) -> str:
    """Format a value as readable text.

    >>> [value_text(value) for value in ("fifo", None, [], 512, [{"us": 1}, {"us": 2}])]
    ['fifo', '–', 'none', '512', '2 entries']
    """
    if _is_list(value):
        return f"{len(value)} entr{'y' if len(value) == 1 else 'ies'}"
    if value is None:
        return "–"
    if value == []:
        return "none"
    return value if isinstance(value, str) else toml_text(value)


def _plain(kind: str, key: str, pair: Sequence[Any], unit: str = "", meaning: str = "") -> Iterator[RunDifference]:
    if pair[0] != pair[1]:
        yield RunDifference(kind, key, pair[0], pair[1], unit, meaning)


def _inputs(group: str, pair: Sequence[StoredResult]) -> Iterator[RunDifference]:
    """Yield the traces whose contents differ, and the reading options whose values differ."""
    inputs = [entry.provenance.get(group) or [] for entry in pair]
    digests = [[entry.get("sha256") for entry in part] for part in inputs]
    word = "trace" if group == "inputs" else "preconditioning trace"
    # Traces without files have no digest, so they are compared by name.
    if digests[0] != digests[1] or None in digests[0]:
        yield from _plain("input", word, [_input_names(part) for part in inputs])
    reading = [[entry.get("reading") or {} for entry in part] for part in inputs]
    if len(reading[0]) == len(reading[1]):
        for number, parts in enumerate(zip(*reading, strict=True), 1):
            for key in dict.fromkeys([*parts[0], *parts[1]]):
                place = f" of {word} {number}" if len(reading[0]) > 1 else ""
                yield from _plain("reading", f"{key}{place}", [part.get(key) for part in parts])


def _input_names(inputs: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{entry.get('name')} ({entry.get('sha256') or 'no file'})" for entry in inputs) or "none"


def _flat(table: Any, prefix: str = "", as_one: Set[str] = frozenset()) -> Iterator[tuple[str, Any]]:
    """Yield each value of nested tables with its dotted key.

    A list of tables whose key is in `as_one` is yielded as a single value.
    """
    parts = enumerate(table) if isinstance(table, list) else table.items()
    for name, value in parts:
        path = f"{prefix}{name}"
        if isinstance(value, dict) or (_is_list(value) and path not in as_one):
            yield from _flat(value, f"{path}.", as_one)
        else:
            yield path, value


def _lists(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Yield the dotted key and the value of each list of tables, and of each empty list, in nested tables."""
    for name, value in table.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _lists(value, f"{path}.")
        elif value == [] or _is_list(value):
            yield path, value


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _meanings() -> dict[str, tuple[str, str]]:
    """Return the unit and the meaning of each setting that any preset has."""
    rows = [row for name in presets() for row in Device.preset(name).explain()]
    return {row.key: (row.unit, row.doc) for row in rows}
