"""Tables of results: flat rows, and Parquet files of them that do not depend on how they were made."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import duckdb
import msgspec

from emmclab.errors import InputError
from emmclab.files import folder_aside
from emmclab.measures import percentile_label
from emmclab.result_fields import result_fields
from emmclab.study.cell import CUTS

#: Figures of profiles that become tables of their own.
_FIGURES = (
    "throughput_by_size",
    "size_distribution",
    "response_distribution",
    "inter_arrival_distribution",
    "reuse_distance",
)
_TYPES = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}

Row = dict[str, Any]
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


class Line(NamedTuple):
    """A row as it is kept: its table, a digest of its columns and types, and itself as JSON."""

    table: str
    form: str
    row: str


def lines_of(entry: Mapping[str, Any]) -> str:
    """Give the flat rows of a result as text, a line each, which tables take as they are."""
    return "\n".join(f"{table} {_form_of(row)} {_text_of(row)}" for table, row in rows_of(entry))


def _text_of(row: Row) -> str:
    return msgspec.json.encode(row).decode()


def kept_rows(text: str) -> tuple[str, list[Line]]:
    """Give the digest of a result, and its rows, of their text as it is kept."""
    digest, *lines = text.split("\n")
    return digest, [Line(*line.split(" ", 2)) for line in lines]


def row_of_cell(text: str) -> tuple[str, Row]:
    """Give the table and the row of a cell, of the text that is kept."""
    _, (line, *_) = kept_rows(text)
    return line.table, json.loads(line.row)


def _form_of(row: Row) -> str:
    return _form(tuple(row), tuple(map(type, row.values())))


@functools.lru_cache(maxsize=1 << 12)
def _form(names: tuple[str, ...], types: tuple[type, ...]) -> str:
    """Give the digest of columns and their types, first 16 digits."""
    said = json.dumps([names, [one.__name__ for one in types]])
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def rows_of(entry: Mapping[str, Any]) -> Iterator[tuple[str, Row]]:
    """Give the flat rows of a result, each with the name of its table; first that of the cell."""
    cell = entry["cell"]
    if "failed" in entry:
        yield "failures", _with_settings(_flat({**cell, **entry["failed"]}), cell)
        return
    result = entry["result"]
    if cuts_power(cell):
        yield CUTS, _with_settings(_flat({**result, **cell}), cell)
        return
    if cell["grid"] != "profile":
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
    """Give the reason why the device of a run stopped early; None where it did not.

    >>> stop_of({"run": {"stopped": None}}), stop_of({"stopped": "the device is full"})
    (None, 'the device is full')
    """
    # A device beside a card has a form of its own.
    stopped: str | None = run["stopped"] if "stopped" in run else run["run"]["stopped"]
    return stopped


#: Groups of settings, which become JSON; and groups that a run may not have.
_SETTINGS = ("settings", "options.layer_settings")
_OPTIONAL_GROUPS = ("cache", "host", "wear.lifetime")
#: Groups of applications, which are tables of their own: requests by class, and bins of time.
_LEFT_OUT = ("app.requests", "app.over_time")


def _with_settings(row: Row, cell: Row) -> Row:
    """Give each setting of a cell, of its device and of layers, a column: `gc.policy` is `gc_policy`.

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
    """Give a column to each chosen percentile of each operation.

    >>> _percentiles([{"op": "all", "percentile": 99.9, "response_ms": 7.5}])
    {'percentile_99_9_ms': 7.5}
    >>> _percentiles([{"op": "read", "percentile": 50.0, "response_ms": 1.5, "service_ms": 1.0}])
    {'percentile_50_read_ms': 1.5, 'percentile_50_read_service_ms': 1.0}
    """
    found: Row = {}
    for row in chosen:
        name = percentile_label(row["percentile"]).removeprefix("p").replace(".", "_")
        name = f"percentile_{name}" if row["op"] == "all" else f"percentile_{name}_{row['op']}"
        found[f"{name}_ms"] = row["response_ms"]
        if "service_ms" in row:
            found[f"{name}_service_ms"] = row["service_ms"]
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
        """Give the group that a whole row is."""
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


class TableFile:
    """Rows that become a Parquet file; they wait on disk, in a folder that is there only meanwhile."""

    def __init__(self, folder: Path, name: str) -> None:
        """Name the table; nothing is written without a row."""
        self.made = folder / f"{name}.parquet"
        self._lines = folder / f"{name}.json"
        self._kinds: dict[str, set[str]] = {}
        self._file = self._lines.open("w", encoding="utf-8")
        #: Forms of the rows so far.
        self._forms: set[str] = set()
        self._longest = 0
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # On a full disk what waits to be written cannot be; the error under way says so.
        with contextlib.suppress(OSError) if kind is not None else contextlib.nullcontext():
            self._file.close()

    def add(self, row: Row) -> None:
        """Add a row; its columns may differ from those before."""
        self.add_line(Line("", _form_of(row), _text_of(row)))

    def add_line(self, line: Line) -> None:
        """Add a row that is JSON already."""
        if line.form not in self._forms:  # As that of most rows is.
            self._forms.add(line.form)
            self.name_columns(json.loads(line.row))
        text = line.row + "\n"
        self._longest = max(self._longest, len(text))
        self._file.write(text)
        self.rows += 1

    def name_columns(self, row: Row) -> None:
        """Add the columns of a row, but not the row."""
        for name, value in row.items():
            kinds = self._kinds.setdefault(name, set())
            if value is not None:
                kinds.add(_TYPES[type(value)])

    def write(self, about: Mapping[str, str] | None = None) -> Path:
        """Make the file, with texts about it in its metadata; the same rows give the same bytes."""
        self._file.close()
        columns = {name: _common(kind) for name, kind in self._kinds.items()}
        # Its buffer is twice as large as the longest line that it expects.
        longest = max(_LEAST_BUFFER, self._longest)
        source = (
            f"read_json($lines, format = 'newline_delimited', columns = {columns!r}, "
            f"maximum_object_size = {longest})"
        )
        options = f", kv_metadata {{{', '.join(f'{name}: ${name}' for name in about)}}}" if about else ""
        target = f"'{quoted(self.made)}' (format parquet, compression zstd{options})"
        with database(self.made.parent) as asked:
            asked.execute(
                f"copy (select * from {source}) to {target}",  # noqa: S608
                {"lines": str(self._lines), **(about or {})},
            )
        self._lines.unlink()
        return self.made


#: Least length of a line that DuckDB reckons with, bytes.
_LEAST_BUFFER = 1 << 20
#: Memory that DuckDB takes for results before it puts them on disk.
_MEMORY = "512MB"


@contextlib.contextmanager
def database(aside: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database in memory, whose answers have one order; what is too large for it goes to `aside`.

    Raises:
        InputError: the disk is full, or a file is no Parquet.
    """
    with refusing(aside), memory_database(temp_directory=str(aside)) as opened:
        yield opened


def memory_database(**options: str) -> duckdb.DuckDBPyConnection:
    """Open a database in memory, whose answers have one order."""
    config: dict[str, Any] = {
        "threads": 1,
        "preserve_insertion_order": True,
        "memory_limit": _MEMORY,
        **options,
    }
    return duckdb.connect(config=config)


@contextlib.contextmanager
def refusing(aside: Path) -> Iterator[None]:
    """Say what a database refused that works in a folder aside.

    Raises:
        InputError: the disk is full, or a file is no Parquet.
    """
    try:
        yield
    except duckdb.Error as error:
        full = "No space left on device" in str(error)
        raise InputError(
            f"{aside.parent}: {'No space left on device' if full else str(error).splitlines()[0]}",
            kind="io",
            file=str(aside.parent),
            errno=errno.ENOSPC if full else errno.EIO,
            hint="free some space" if full else "remove the file that is named, and run the study again",
        ) from error


def write_parquet(path: Path, rows: Iterable[Row], *, columns: Sequence[str] = ()) -> None:
    """Write rows as Parquet, whole or not at all; the same rows give the same bytes.

    `columns` are those of a table without rows.
    """
    with folder_aside(path.absolute().parent) as aside, TableFile(aside, "rows") as table:
        for row in rows:
            table.add(row)
        if not table.rows:
            table.name_columns(dict.fromkeys(columns))
        table.write().replace(path)


def _common(kinds: set[str]) -> str:
    """Give the type of a column by the types of its values; values of several kinds become text."""
    if kinds == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    return kinds.copy().pop() if len(kinds) == 1 else "VARCHAR"


def quoted(path: Path) -> str:
    """Give a path as it stands between the quotes of SQL."""
    return str(path).replace("'", "''")
