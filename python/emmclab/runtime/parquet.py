"""Writes Parquet files whose bytes depend only on the rows, and opens DuckDB databases in memory to read them."""

import contextlib
import errno
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import duckdb
import msgspec

from emmclab.errors import InputError
from emmclab.runtime import checksummed
from emmclab.runtime.document import Row
from emmclab.runtime.files import folder_aside, move_into_place

#: The DuckDB type of a column, by the type of its values.
_TYPES = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}


class Line(NamedTuple):
    """An encoded row: the name of its table, a digest of its columns and their types, and the row as JSON."""

    table: str
    form: str
    row: str


def text_of(row: Row) -> str:
    """Return a row as JSON."""
    return msgspec.json.encode(row).decode()


def form_of(row: Row) -> str:
    """Return the digest of the columns of a row and their types."""
    return _form(tuple(row), tuple(map(type, row.values())))


@functools.lru_cache(maxsize=1 << 12)
def _form(names: tuple[str, ...], types: tuple[type, ...]) -> str:
    """Return the digest of columns and their types, first 16 digits."""
    text = json.dumps([names, [kind.__name__ for kind in types]])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class TableFile:
    """Collects the rows of a table in a temporary file, and finally writes them as a Parquet file."""

    def __init__(self, folder: Path, name: str) -> None:
        """Set the folder in which the Parquet file is written, and the name of the table."""
        self.path = folder / f"{name}.parquet"
        self._lines = folder / f"{name}.json"
        self._kinds: dict[str, set[str]] = {}
        self._file = self._lines.open("w", encoding="utf-8")
        #: Digests of the different sets of columns that the rows written so far have.
        self._forms: set[str] = set()
        self._longest = 0
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error such as a full disk, closing may fail again; only the first error is reported.
        with contextlib.suppress(OSError) if kind is not None else contextlib.nullcontext():
            self._file.close()

    def add(self, row: Row) -> None:
        """Add a row; its columns may differ from those of earlier rows."""
        self.add_line(Line("", form_of(row), text_of(row)))

    def add_line(self, line: Line) -> None:
        """Add a row that is already encoded as JSON."""
        if line.form not in self._forms:  # Most rows have the form of earlier rows.
            self._forms.add(line.form)
            self.name_columns(json.loads(line.row))
        text = line.row + "\n"
        self._longest = max(self._longest, len(text))
        self._file.write(text)
        self.rows += 1

    def name_columns(self, row: Row) -> None:
        """Add the columns of a row without adding the row."""
        for name, value in row.items():
            kinds = self._kinds.setdefault(name, set())
            if value is not None:
                kinds.add(_TYPES[type(value)])

    def write(self, about: Mapping[str, str] | None = None) -> Path:
        """Write the Parquet file, with a checksum and `about` in its metadata; equal rows produce equal bytes."""
        self._file.close()
        columns = {name: _common(kind) for name, kind in self._kinds.items()}
        # DuckDB allocates a buffer of twice the maximum line length, so the limit is the longest line.
        longest = max(_LEAST_BUFFER, self._longest)
        source = (
            f"read_json($lines, format = 'newline_delimited', columns = {typed(columns)}, "
            f"maximum_object_size = {longest})"
        )
        texts = {**(about or {}), checksummed.KEY: checksummed.UNSEALED}
        options = f"kv_metadata {{{', '.join(f'{name}: ${name}' for name in texts)}}}"
        target = f"'{quoted(self.path)}' (format parquet, compression zstd, {options})"
        with refusing(self.path.parent), questions() as cursor:
            cursor.execute(
                f"copy (select * from {source}) to {target}",  # noqa: S608
                {"lines": str(self._lines), **texts},
            )
        checksummed.seal(self.path)
        self._lines.unlink()
        return self.path


#: Lower bound of the maximum line length that is passed to DuckDB, bytes.
_LEAST_BUFFER = 1 << 20


#: Memory limit of DuckDB. Above it, DuckDB writes intermediate data to disk.
_MEMORY = "512MB"


@contextlib.contextmanager
def database(aside: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database in memory with a deterministic order of rows; large data is written to `aside`.

    Raises:
        InputError: the disk is full, or a file is not Parquet.
    """
    with refusing(aside), memory_database(temp_directory=str(aside)) as opened:
        yield opened


@functools.cache
def _of_process(_process: int) -> duckdb.DuckDBPyConnection:
    return memory_database()


def questions() -> duckdb.DuckDBPyConnection:
    """Open a cursor on the DuckDB database of this process; a new database for each query would take 20 ms."""
    return _of_process(os.getpid()).cursor()


def memory_database(**options: str) -> duckdb.DuckDBPyConnection:
    """Open a database in memory with a deterministic order of rows."""
    config: dict[str, Any] = {"threads": 1, "preserve_insertion_order": True, "memory_limit": _MEMORY, **options}
    return duckdb.connect(config=config)


@contextlib.contextmanager
def refusing(aside: Path) -> Iterator[None]:
    """Raise `InputError` in place of the errors of a query engine that stores temporary data in the folder `aside`."""
    try:
        yield
    except duckdb.Error as error:
        full = "No space left on device" in str(error)
        raise InputError(
            f"{'No space left on device' if full else str(error).splitlines()[0]}",
            errno=errno.ENOSPC if full else errno.EIO,
            hint="free some space" if full else "check the disk and the memory of this machine",
        ).in_file(str(aside.parent)) from error


def write_parquet(path: Path, rows: Iterable[Row], *, columns: Sequence[str] = ()) -> None:
    """Write rows as Parquet atomically; the same rows result in the same bytes.

    If there are no rows, the table has the columns `columns`.
    """
    with folder_aside(path.absolute().parent) as aside, TableFile(aside, "rows") as table:
        for row in rows:
            table.add(row)
        if not table.rows:
            table.name_columns(dict.fromkeys(columns))
        move_into_place(table.write(), path)


def _common(kinds: set[str]) -> str:
    """Return the column type for a set of value types; mixed types become text."""
    if kinds == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    return kinds.copy().pop() if len(kinds) == 1 else "VARCHAR"


def quoted(text: object) -> str:
    """Escape a text, such as a path, for a quoted string in SQL."""
    return str(text).replace("'", "''")


def sql_list(texts: Iterable[object]) -> str:
    """Return texts, such as paths, as an SQL list."""
    return "[" + ", ".join(f"'{quoted(text)}'" for text in texts) + "]"


def typed(columns: Mapping[str, str]) -> str:
    """Return the names of columns with their types as an SQL struct."""
    return "{" + ", ".join(f"'{quoted(name)}': '{kind}'" for name, kind in columns.items()) + "}"


def metadata_of(path: Path) -> dict[str, str]:
    """Return the key-value metadata of a Parquet file; empty if the file is not Parquet."""
    try:
        path.open("rb").close()
        with questions() as cursor:
            rows = cursor.execute("select key, value from parquet_kv_metadata(?)", [str(path)]).fetchall()
    except OSError as error:
        raise InputError.of(error, path) from error
    except duckdb.Error:
        return {}
    return {bytes(key).decode("utf-8", "replace"): bytes(value).decode("utf-8", "replace") for key, value in rows}
