"""The table of a fleet: a Parquet file with a row for each recording, and a description of its histograms."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import duckdb

from emmclab.errors import FormatError, InputError
from emmclab.fleet.main_figures import FIGURES
from emmclab.fleet.recording_row import FIXED, HISTOGRAM
from emmclab.fleet.table_types import Description
from emmclab.runtime import checksummed
from emmclab.runtime.files import folder_aside, move_into_place, note_written_files
from emmclab.runtime.lists import Names, several
from emmclab.runtime.parquet import questions, quoted, refusing, typed

#: Metadata key of the description of the table.
_KEY = "emmclab_fleet"
#: Columns of every table, with their types.
_ALWAYS = (
    dict.fromkeys(FIXED, "VARCHAR")
    | dict.fromkeys((one.name for one in FIGURES), "DOUBLE")
    | dict.fromkeys(("bytes", "requests", "fsyncs"), "BIGINT")
)

#: Condition that a row of the former table belongs to a recording.
_SAME = {"path": "VARCHAR", "digest": "VARCHAR"}
_TYPES = {"int": "BIGINT", "float": "DOUBLE", "str": "VARCHAR", "list": "BIGINT[]"}


class DamagedError(FormatError):
    """A table is damaged."""


class Table:
    """The table of a fleet, on disk."""

    def __init__(self, path: Path, name: str = "") -> None:
        """Open a table; `name` is its address, if `path` is a copy.

        Raises:
            InputError: there is no such file.
            FormatError: it was not written by `emmclab fleet`.
            DamagedError: it was written by `emmclab fleet`, and is damaged.
        """
        self.path = path
        self.name = name or str(path)
        self.description = _description(path, self.name)
        if not checksummed.is_intact(path):
            raise DamagedError(
                f"{self.name}: this table of a fleet is damaged, or of an earlier version",
                kind="syntax",
                file=self.name,
                hint="name the folder of its recordings, from which it is made again",
            )
        with questions() as database:
            described = database.execute("describe select * from read_parquet($path)", {"path": str(path)})
            #: Name and type of each column.
            self.columns: dict[str, str] = {row[0]: row[1] for row in described.fetchall()}

    @property
    def keys(self) -> list[str]:
        """Keys by which recordings may be grouped: those of folders, and metadata in the traces."""
        return [*self.description["metadata"], "format", "trace_device"]

    def recordings(self, columns: Names) -> list[tuple[Any, ...]]:
        """Return these columns of all recordings, in the order of their paths.

        A column that the table lacks is None: a table of an older emmclab has fewer figures.
        """
        known = (_name(one) if one in self.columns else "null" for one in several(columns))
        return self._ask(", ".join(known), "where refused is null order by path")

    def refused(self) -> list[tuple[str, str]]:
        """Return path and reason of each file that could not be read."""
        rows = self._ask("path, refused", "where refused is not null order by path")
        return [(path, reason) for path, reason in rows]

    def digests(self) -> list[tuple[str, str]]:
        """Return path and digest of each file that could be hashed."""
        return [(path, digest) for path, digest in self._ask("path, digest", "where digest is not null")]

    def histograms(self, keys: Names) -> dict[str, dict[tuple[Any, ...], list[int]]]:
        """Sum each histogram over the recordings of each group."""
        keys, found = several(keys), {}
        for column in (one for one in self.columns if one.startswith(HISTOGRAM)):
            of_keys = [_name(key) for key in keys]
            bins = len(self.description["bins"][column]["upper_edges"]) + 1
            counts = [f"sum({_name(column)}[{number}])::bigint" for number in range(1, bins + 1)]
            rest = "where refused is null group by all order by all"
            rows = self._ask(", ".join([*of_keys, *counts]), rest)
            found[column] = {row[: len(keys)]: [n or 0 for n in row[len(keys) :]] for row in rows}
        return found

    def _ask(self, columns: str, rest: str) -> list[tuple[Any, ...]]:
        with questions() as database:
            return database.execute(f"select {columns} from '{quoted(self.path)}' {rest}").fetchall()  # noqa: S608


def write(
    path: Path,
    description: Description,
    rows: Iterable[str],
    former: Table | None = None,
    kept: Iterable[tuple[str, str]] = (),
) -> None:
    """Write a table atomically: new rows (JSON, one per line), and those of the former table in `kept`.

    The same recordings result in the same bytes, independent of how many are new. `kept` contains paths and
    digests. A column without any value is left out, except those that every table has.
    """
    with folder_aside(path.absolute().parent) as aside, refusing(aside):
        lines, keep, made = aside / "rows.json", aside / "kept.json", aside / "fleet.parquet"
        kinds: dict[str, set[str]] = {}
        with lines.open("w", encoding="ascii") as file:
            for line in rows:
                for name, value in json.loads(line).items():
                    kinds.setdefault(name, set()).update([] if value is None else [type(value).__name__])
                file.write(line)
        # Data that does not fit into memory is written to this folder.
        with duckdb.connect(config={"threads": 1, "temp_directory": str(aside / "spilled")}) as database:
            types = _ALWAYS | dict.fromkeys(description["metadata"], "VARCHAR")
            types |= {name: _type(kind) for name, kind in kinds.items() if kind and name not in types}
            database.execute(f"create view fresh as from {_read(lines, types)}")
            database.execute("create view every as from fresh")
            if former is not None:
                with keep.open("w", encoding="utf-8") as file:
                    file.writelines(json.dumps(dict(zip(_SAME, one, strict=True))) + "\n" for one in kept)
                database.execute(f"create view kept as from {_read(keep, _SAME)}")
                database.execute(f"create view former as from '{quoted(former.path)}'")
                database.execute(
                    "create or replace view every as from fresh union all by name "
                    "from former where (path, digest) in (select (path, digest) from kept)"
                )
            columns = _list(_in_order(database, description["metadata"]))
            told = json.dumps(description, sort_keys=True).replace("'", "''")
            about = f"{{{_KEY}: '{told}', {checksummed.KEY}: '{checksummed.UNSEALED}'}}"
            database.execute(
                f"copy (select {columns} from every order by path, digest) to '{quoted(made)}' "  # noqa: S608
                f"(format parquet, compression zstd, kv_metadata {about})"
            )
        checksummed.seal(made)
        with note_written_files(path):
            move_into_place(made, path)


def _in_order(database: duckdb.DuckDBPyConnection, metadata: Sequence[str]) -> list[str]:
    """Return the names of the columns in a fixed order, without empty ones."""
    names = [row[0] for row in database.execute("describe every").fetchall()]
    counting = ", ".join(f"count({_name(name)})" for name in names)
    counts = database.execute(f"select {counting} from every").fetchone()  # noqa: S608
    used = {name for name, count in zip(names, counts or (), strict=True) if count}
    first = [*FIXED, *metadata, *(one.name for one in FIGURES)]
    others = sorted(used - set(first), key=lambda name: (name.startswith(HISTOGRAM), name))
    return [*first, *others]


def _description(path: Path, name: str) -> Description:
    try:
        path.open("rb").close()
    except OSError as error:
        raise InputError.of(error, name) from error
    try:
        with questions() as database:
            ask = "select value from parquet_kv_metadata($path) where key::varchar = $key"
            (found,) = database.execute(ask, {"path": str(path), "key": _KEY}).fetchone() or (None,)
        described = json.loads(found or b"null")
        if isinstance(described, dict) and {"metadata", "bins", "identity"} <= set(described):
            return cast("Description", described)
    except (duckdb.Error, ValueError):
        pass
    raise FormatError(
        f"{name}: this is not a table of a fleet",
        kind="syntax",
        file=name,
        hint="name a folder of recordings, or a file that `emmclab fleet` wrote; a damaged one is made again "
        "from the folder of its recordings under another name (-o)",
    )


def _type(kinds: set[str]) -> str:
    """Return the column type for a set of value types."""
    return "DOUBLE" if kinds == {"int", "float"} else _TYPES[kinds.copy().pop()]


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _list(columns: Iterable[str]) -> str:
    return ", ".join(map(_name, columns))


def _read(path: Path, types: Mapping[str, str]) -> str:
    """Return the SQL source for a file of JSON lines."""
    return f"read_json('{quoted(path)}', format = 'newline_delimited', columns = {typed(types)})"
