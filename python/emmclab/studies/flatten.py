"""Flattens results into table rows: fields of groups and settings become columns."""

import functools
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from emmclab.runtime.document import Row
from emmclab.simulation.result_fields import result_fields
from emmclab.studies.stored_types import CellFields
from emmclab.traces.profile_options import percentile_label

#: Groups of result fields that contain settings and are stored as JSON.
_SETTINGS = ("settings", "options.layer_settings")
_OPTIONAL_GROUPS = ("cache", "host", "wear.lifetime", "fio")
#: Groups of fields of applications that become tables of their own: requests by class, and time bins.
_LEFT_OUT = ("app.requests", "app.over_time")


def with_settings(row: Row, cell: CellFields) -> Row:
    """Add a column for each setting of a cell, its device and its layers: `gc.policy` becomes `gc_policy`.

    If a field of the result has the same name, the column is `set_gc_policy`.
    """
    settings = {**cell.get("settings", {}), **cell.get("options", {}).get("layer_settings", {})}
    columns = [key.replace(".", "_") for key in settings]
    reserved = {column for column in columns if column in row or column in _columns()}
    for column, value in zip(columns, settings.values(), strict=True):
        row[f"set_{column}" if column in reserved else column] = value
    return row


@functools.cache
def _columns() -> frozenset[str]:
    return frozenset(field.column for field in result_fields())


def percentile_columns(chosen: Iterable[Row]) -> Row:
    """Return a column for each requested percentile of each operation, named like the columns of usual percentiles.

    >>> percentile_columns([{"op": "all", "percentile": 99.9, "response_ms": 7.5}])
    {'response_p99_9_ms': 7.5}
    >>> percentile_columns([{"op": "read", "percentile": 50.0, "response_ms": 1.5, "service_ms": 1.0}])
    {'response_read_p50_ms': 1.5, 'service_read_p50_ms': 1.0}
    """
    columns: Row = {}
    for row in chosen:
        label = percentile_label(row["percentile"]).replace(".", "_")
        name = label if row["op"] == "all" else f"{row['op']}_{label}"
        columns[f"response_{name}_ms"] = row["response_ms"]
        if "service_ms" in row:
            columns[f"service_{name}_ms"] = row["service_ms"]
    return columns


@functools.cache
def run_columns() -> dict[str, str]:
    """Return the column name of each field of a result, by path."""
    return {field.path: field.column for field in result_fields()}


def flat(row: Mapping[str, Any], *, is_run: bool = False) -> Row:
    """Flatten groups into columns, named by path with `_` for `.`; lists are omitted, settings become JSON."""
    columns: Row = {}
    _flatten(row, _Group.top(is_run=is_run), columns)
    return columns


class _Group(dict[str, "_Field"]):
    """The fields of a group of a result, by name. A field is created when it is first used, and is then cached."""

    def __init__(self, prefix: str, columns: Mapping[str, str]) -> None:
        """Set the path prefix of the group's fields; `columns` maps the paths of some fields to column names."""
        super().__init__()
        self._prefix, self._columns = prefix, columns

    @staticmethod
    @functools.cache
    def top(*, is_run: bool) -> "_Group":
        """Return the group that contains all fields of a row."""
        return _Group("", run_columns() if is_run else {})

    def __missing__(self, name: str) -> "_Field":
        path = self._prefix + name
        column = path.replace(".", "_")
        field = _Field(
            column if path in _SETTINGS else self._columns.get(path, column),
            path in _SETTINGS,
            path in _OPTIONAL_GROUPS,
            None if path in _LEFT_OUT else _Group(f"{path}.", self._columns),
        )
        self[name] = field
        return field


class _Field(NamedTuple):
    """A field of a group: its column in a flat row, and how values are handled that are groups or None."""

    column: str
    is_settings: bool
    is_optional: bool
    #: Fields of the value if it is a nested group; None if the row does not contain this group.
    group: _Group | None


def _flatten(row: Mapping[str, Any], group: _Group, flat: Row) -> None:
    for name, value in row.items():
        kind = type(value)
        if kind is list:
            continue
        column, is_settings, is_optional, inner = group[name]
        if kind is dict:
            if is_settings:
                flat[column] = json.dumps(value, sort_keys=True)
            elif inner is not None:
                _flatten(value, inner, flat)
        elif value is not None or not is_optional:
            flat[column] = value
