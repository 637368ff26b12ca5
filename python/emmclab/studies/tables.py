"""The results of a study as flat rows of tables."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from emmclab.devices.result_fields import result_fields
from emmclab.runtime.parquet import Line, Row, form_of, text_of
from emmclab.studies.cell import CUTS, PROFILE
from emmclab.traces.profile_options import percentile_label

#: Figures of profiles that become tables of their own.
_FIGURES = (
    "throughput_by_size",
    "size_distribution",
    "response_distribution",
    "inter_arrival_distribution",
    "reuse_distance",
)

#: A result as it is kept, with its cell.
Run = dict[str, Any]


#: Every table of a study.
TABLES = ("runs", CUTS, "profiles", "failures", *_FIGURES)


class Digest:
    """SHA-256 of results: of the SHA-256 of each, in order."""

    def __init__(self) -> None:
        """Begin without a result."""
        self._hash = hashlib.sha256()

    def add(self, hashed: str) -> None:
        """Add the next result by the SHA-256 of its JSON."""
        self._hash.update(hashed.encode())

    @property
    def text(self) -> str:
        """Its first 16 digits."""
        return self._hash.hexdigest()[:16]


def lines_of(entry: Mapping[str, Any]) -> str:
    """Return the flat rows of a result as text, a line each, which tables take as they are."""
    return "\n".join(f"{table} {form_of(row)} {text_of(row)}" for table, row in rows_of(entry))


def kept_rows(text: str) -> tuple[str, list[Line]]:
    """Return the digest of a result, and its rows, of their text as it is kept."""
    digest, *lines = text.split("\n")
    return digest, [Line(*line.split(" ", 2)) for line in lines]


def row_of_cell(text: str) -> tuple[str, Row]:
    """Return the table and the row of a cell, of the text that is kept."""
    _, (line, *_) = kept_rows(text)
    return line.table, json.loads(line.row)


def rows_of(entry: Mapping[str, Any]) -> Iterator[tuple[str, Row]]:
    """Yield the flat rows of a result, each with the name of its table; first that of the cell."""
    cell = entry["cell"]
    if "failed" in entry:
        yield "failures", _with_settings(_flat({**cell, **entry["failed"]}), cell)
        return
    result = entry["result"]
    if cuts_power(cell):
        yield CUTS, _with_settings(_flat({**result, **cell}), cell)
        return
    if cell["grid"] != PROFILE:
        row = _flat({**result, **cell}, is_run=True) | _percentiles(result.get("percentiles", ()))
        yield "runs", _with_settings(row, cell)
        return
    shown = {name: value for name, value in result.items() if name not in ("name", "figures")}
    chosen = [
        {"op": row["op"], **one} for row in result["by_operation"] for one in row.get("percentiles", ())
    ]
    yield "profiles", _flat({**cell, **shown}) | _percentiles(chosen)
    for name in _FIGURES:
        for row in result["figures"][name]:
            yield name, {"input": cell["input"], "seed": cell["seed"], **row}


def cuts_power(cell: Mapping[str, Any]) -> bool:
    """Whether a cell, as its result names it, cuts power."""
    return bool(cell.get("options", {}).get("mode") == CUTS)


def stop_of(run: Run) -> str | None:
    """Return the reason why the device of a run stopped early; None where it did not.

    >>> stop_of({"run": {"stopped": "the device is full"}})
    'the device is full'
    """
    stopped: str | None = run["run"]["stopped"]
    return stopped


#: Groups of settings, which become JSON; and groups that a run may not have.
_SETTINGS = ("settings", "options.layer_settings")
_OPTIONAL_GROUPS = ("cache", "host", "wear.lifetime")
#: Groups of applications, which are tables of their own: requests by class, and bins of time.
_LEFT_OUT = ("app.requests", "app.over_time")


def _with_settings(row: Row, cell: Row) -> Row:
    """Return a column for each setting of a cell, its device and its layers: `gc.policy` is `gc_policy`.

    Where a field of the result has that name, the column is `set_gc_policy`.
    """
    settings = {**cell.get("settings", {}), **cell.get("options", {}).get("layer_settings", {})}
    columns = [key.replace(".", "_") for key in settings]
    taken = {column for column in columns if column in row or column in _columns()}
    for column, value in zip(columns, settings.values(), strict=True):
        row[f"set_{column}" if column in taken else column] = value
    return row


@functools.cache
def _columns() -> frozenset[str]:
    return frozenset(field.column for field in result_fields())


def _percentiles(chosen: Iterable[Row]) -> Row:
    """Return a column to each chosen percentile of each operation, named as those that every run has.

    >>> _percentiles([{"op": "all", "percentile": 99.9, "response_ms": 7.5}])
    {'response_p99_9_ms': 7.5}
    >>> _percentiles([{"op": "read", "percentile": 50.0, "response_ms": 1.5, "service_ms": 1.0}])
    {'response_read_p50_ms': 1.5, 'service_read_p50_ms': 1.0}
    """
    found: Row = {}
    for row in chosen:
        label = percentile_label(row["percentile"]).replace(".", "_")
        name = label if row["op"] == "all" else f"{row['op']}_{label}"
        found[f"response_{name}_ms"] = row["response_ms"]
        if "service_ms" in row:
            found[f"service_{name}_ms"] = row["service_ms"]
    return found


@functools.cache
def run_columns() -> dict[str, str]:
    """Name the column of each field of a result by its path."""
    return {field.path: field.column for field in result_fields()}


def _flat(row: Row, *, is_run: bool = False) -> Row:
    """Flatten groups into columns, named by the path with `_` for `.`; lists stay out, settings are JSON."""
    flat: Row = {}
    _flatten(row, _Group.top(is_run=is_run), flat)
    return flat


class _Group(dict[str, "_Field"]):
    """The fields of a group by their names, as they are met first: most groups are alike."""

    def __init__(self, prefix: str, columns: Mapping[str, str]) -> None:
        """Name what stands before each name in a path, and the columns of the paths that have their own."""
        super().__init__()
        self._prefix, self._columns = prefix, columns

    @staticmethod
    @functools.cache
    def top(*, is_run: bool) -> _Group:
        """Return the group that a whole row is."""
        return _Group("", run_columns() if is_run else {})

    def __missing__(self, name: str) -> _Field:
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
    """A field of a group: its column, and what becomes of a value that is a group or none."""

    column: str
    is_settings: bool
    is_optional: bool
    #: None where the group is left out.
    group: _Group | None


def _flatten(row: Row, group: _Group, flat: Row) -> None:
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
