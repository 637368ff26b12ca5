"""The table of a fleet: a Parquet file with a row for each recording, and a description of its histograms."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, cast

import duckdb

from emmclab import _core
from emmclab.errors import ConfigError, EmmclabError, FormatError, InputError
from emmclab.runtime import checksummed
from emmclab.runtime.document import Row
from emmclab.runtime.files import digest, folder_aside, move_into_place, note_written_files, printable
from emmclab.runtime.lists import Names, several
from emmclab.runtime.parquet import questions, quoted, refusing, typed
from emmclab.traces.activity import activity_of
from emmclab.traces.profile_fields import RESPONSE_P99, TABLE_FIELDS, Field
from emmclab.traces.reading import read
from emmclab.traces.recording_files import metadata
from emmclab.traces.trace import Trace

#: Figures on the extent of a recording; they do not describe the workload, so they are not compared between fleets.
EXTENTS = tuple(TABLE_FIELDS[name] for name in ("data_size_kb", "duration_s"))

#: Totals of a recording, which grow with its length.
TOTALS = (
    TABLE_FIELDS["requests"],
    Field("write_data_kb", "Data written", "KB", 0, "bytes written"),
    Field("fsyncs", "Fsyncs", "", 0, "calls of fsync, fdatasync and sync that were recorded"),
)

#: Figures by which two fleets are compared.
COMPARED = (
    TABLE_FIELDS["mean_response_ms"],
    RESPONSE_P99,
    TABLE_FIELDS["mean_service_ms"],
    TABLE_FIELDS["no_wait_pct"],
    TABLE_FIELDS["arrival_rate_per_s"],
    TABLE_FIELDS["access_rate_kb_per_s"],
    TABLE_FIELDS["mean_read_kb"],
    TABLE_FIELDS["mean_write_kb"],
    TABLE_FIELDS["write_requests_pct"],
    TABLE_FIELDS["written_bytes_pct"],
    TABLE_FIELDS["spatial_locality_pct"],
    TABLE_FIELDS["temporal_locality_pct"],
    *TOTALS,
)

#: Main figures of a recording: its extents, and the figures that are compared.
FIGURES = (*EXTENTS, *COMPARED)


class Identity(TypedDict):
    """What a row depends on besides the recording: version and build of emmclab, and how traces are read."""

    version: str
    build: str
    reading: dict[str, Any]


class Bins(TypedDict):
    """The bins of a histogram: what it counts, the unit, and the upper edges of the bins in this unit."""

    counts: str
    unit: str
    upper_edges: list[float]


class Description(TypedDict):
    """Description of a table: `metadata` lists columns from folder names, `bins` describes histograms by column."""

    identity: Identity
    metadata: list[str]
    bins: dict[str, Bins]


#: First columns of every fleet table, with their meaning; columns of metadata and figures follow.
FIXED = {
    "path": "the file, below the folder of the fleet",
    "refused": "why the file could not be read; null for a recording",
    "digest": "SHA-256 of the file's bytes, first 16 digits",
    "bytes": "size of the file",
    "format": "format that the trace was first read from",
    "trace_device": "the device that the header of the trace names",
}
#: Prefix of the column names of histograms.
HISTOGRAM = "histogram_"
#: Value of `error.field` if the heading of a table file is wrong.
_HEADING = "heading"
#: Histograms that depend on the order of arrivals, which is unknown if the clock is coarse.
_OF_ARRIVALS = ("inter_arrival", "idle_gap")
#: Options for reading that apply only to files that do not state their units, with their values.
_UNITS = {"time_unit": ("s", "ms", "us", "ns"), "size_unit": ("sector", "byte", "kb", "page")}
#: Fields of a profile that are not stored as figures, or are stored under another name.
_NO_FIGURES = {"name", "header", "figures", "findings", "by_operation", "assumed"}
#: Figures that are lists of rows, with the names of their key fields and of their number fields.
_NAMED_ROWS = {
    "alignment": (("op", "page_kb"), ("start_aligned_pct", "size_aligned_pct", "aligned_pct", "space_utilisation_pct")),
    "hot_pages": (("op", "pages_pct"), ("share_pct",)),
    "flags": (("flag",), ("requests", "pct", "per_s")),
}


def row_of(place: Path, path: str, options: Mapping[str, Any]) -> Row:
    """Profile the recording in a file and return its row; if it cannot be read, the row contains the reason.

    Raises:
        ConfigError: an option for reading is invalid, or a key in a folder name equals the name of a figure.
    """
    row = _empty(path)
    try:
        trace = _open(place, options)
        profiler = _core.Profiler(trace.name)
        for batch in trace.batches():
            profiler.update(batch)
        profile = profiler.finish(trace.ledger, trace.header, distributions=False)
        histograms = profiler.histograms()
        if trace.header["coarse_clock"]:
            for histogram in histograms:
                if histogram["name"] in _OF_ARRIVALS:
                    histogram["counts"] = [0] * len(histogram["counts"])
    except ConfigError as error:
        if error.field != _HEADING:
            raise
        text = reason(error, str(place), path)
        return refused_row(place, path, f"{text}; {error.hint}" if error.hint else text)
    except (EmmclabError, OSError) as error:
        refusal = error if isinstance(error, EmmclabError) else InputError.of(error, place)
        return refused_row(place, path, reason(refusal, str(place), path))
    if trace.header["activity"]:
        row["fsyncs"] = sum(sync.calls for sync in activity_of(trace.header).syncs)
    row |= {"digest": trace.digest, "format": trace.header["format"], "trace_device": trace.header["device"]}
    numbers = {name: value for name, value in _numbers(profile) if value is not None}
    _refuse_keys(path, {*FIXED, *numbers})
    counts = {f"{HISTOGRAM}{histogram['name']}": histogram["counts"] for histogram in histograms}
    return row | numbers | counts


def _open(place: Path, options: Mapping[str, Any]) -> Trace:
    """Open a recording; an option for a unit is ignored if the format or the header already states the unit."""
    try:
        return read(place, **options)
    except ConfigError as error:
        unit = (error.field or "").removeprefix("--").replace("-", "_")
        if options.get(unit) not in _UNITS.get(unit, ()):
            raise
        return _open(place, {name: value for name, value in options.items() if name != unit})


def refused_row(place: Path | None, path: str, reason: str) -> Row:
    """Return the row of a file that could not be profiled; `place` is None if it could not be fetched."""
    return _empty(path) | {"refused": reason, "digest": place and digest([place])}


def _empty(path: str) -> Row:
    return {"path": printable(path), "refused": None, "digest": None, "bytes": None, **metadata(path)}


def bins() -> dict[str, Bins]:
    """Describe the histograms by column: what is counted, the unit, and the upper edges of the bins."""
    return {
        f"{HISTOGRAM}{row['name']}": {"counts": row["about"], "unit": row["unit"], "upper_edges": row["edges"]}
        for row in _core.Profiler("").histograms()
    }


def reason(error: EmmclabError, place: str, path: str) -> str:
    """Return an error message in which the local path of a file is replaced by its path in the fleet."""
    return printable(str(error).removeprefix(f"{place}: ").replace(place, path))


def _refuse_keys(path: str, taken: set[str]) -> None:
    """Reject keys in folder names that equal the name of a column (`taken`, in lower case)."""
    for key in metadata(path):
        if key.lower() in taken:
            raise ConfigError(
                f"the key `{key}` of a folder is also the name of a column of the fleet table",
                field=key,
                hint="rename the folder so that its `KEY=VALUE` has another key",
            ).in_file(path)


def _numbers(profile: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every number of a profile with the name of its column."""
    yield from _flat(profile)
    for row in profile["by_operation"]:
        yield from _of_operation(row)
    for finding in profile["findings"]:
        yield f"{finding['id'].replace('-', '_')}_measured", finding["measured"]
    for figure, (names, fields) in _NAMED_ROWS.items():
        for row in profile["figures"][figure]:
            row_name = "_".join(str(row[name]) for name in names)
            yield from ((f"{figure}_{row_name}_{field}", row[field]) for field in fields)


def _flat(group: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in group.items():
        if name in _NO_FIGURES:
            continue
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}_")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", value


def _of_operation(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the figures of one operation with their columns, such as `read_requests` and `read_response_p99_ms`."""
    op = row["op"].replace(" ", "_")
    for name, value in row.items():
        if isinstance(value, dict):
            quantity, _, unit = name.rpartition("_")
            yield from ((f"{op}_{quantity}_{point}_{unit}", number) for point, number in value.items())
        elif not isinstance(value, list | str):
            yield f"{op}_{name}", value


#: Parquet metadata key for the description of the fleet table.
_KEY = "emmclab_fleet"
#: Columns that every fleet table has, with their types.
_ALWAYS = (
    dict.fromkeys(FIXED, "VARCHAR")
    | dict.fromkeys((figure.name for figure in FIGURES), "DOUBLE")
    | dict.fromkeys(("bytes", "requests", "fsyncs"), "BIGINT")
)

#: Columns of a fleet table that identify a recording, with their types.
_SAME = {"path": "VARCHAR", "digest": "VARCHAR"}
_TYPES = {"int": "BIGINT", "float": "DOUBLE", "str": "VARCHAR", "list": "BIGINT[]"}


class DamagedError(FormatError):
    """The error for a damaged table."""


class Table:
    """The table of a fleet in a Parquet file."""

    def __init__(self, path: Path, name: str = "") -> None:
        """Open a table; if `path` is a local copy, `name` is the address of the original.

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
                "this table of a fleet is damaged, or of an earlier version",
                kind="syntax",
                hint="give the folder of the recordings in place of the table: the command then writes the table again",
            ).in_file(self.name)
        with questions() as database:
            described = database.execute("describe select * from read_parquet($path)", {"path": str(path)})
            #: Type of each column by its name.
            self.columns: dict[str, str] = {row[0]: row[1] for row in described.fetchall()}

    @property
    def keys(self) -> list[str]:
        """Keys by which recordings may be grouped: those from folder names, and metadata in the traces."""
        return [*self.description["metadata"], "format", "trace_device"]

    def recordings(self, columns: Names) -> list[tuple[Any, ...]]:
        """Return these columns of all recordings, sorted by path.

        Columns that the table does not have contain None: the table of an older emmclab has fewer figures.
        """
        selected = (_name(name) if name in self.columns else "null" for name in several(columns))
        return self._select(", ".join(selected), "where refused is null order by path")

    def refused(self) -> list[tuple[str, str]]:
        """Return path and reason of each file that could not be read."""
        rows = self._select("path, refused", "where refused is not null order by path")
        return [(path, reason) for path, reason in rows]

    def digests(self) -> list[tuple[str, str]]:
        """Return path and digest of each file that could be hashed."""
        return [(path, digest) for path, digest in self._select("path, digest", "where digest is not null")]

    def histograms(self, keys: Names) -> dict[str, dict[tuple[Any, ...], list[int]]]:
        """Add up each histogram over the recordings of each group.

        Return the counts by column and by the values that the recordings of a group have for `keys`.
        """
        keys, sums = several(keys), {}
        for column in (name for name in self.columns if name.startswith(HISTOGRAM)):
            of_keys = [_name(key) for key in keys]
            bins = len(self.description["bins"][column]["upper_edges"]) + 1
            counts = [f"sum({_name(column)}[{number}])::bigint" for number in range(1, bins + 1)]
            rest = "where refused is null group by all order by all"
            rows = self._select(", ".join([*of_keys, *counts]), rest)
            sums[column] = {row[: len(keys)]: [n or 0 for n in row[len(keys) :]] for row in rows}
        return sums

    def _select(self, columns: str, rest: str) -> list[tuple[Any, ...]]:
        with questions() as database:
            return database.execute(f"select {columns} from '{quoted(self.path)}' {rest}").fetchall()  # noqa: S608


def write(
    path: Path,
    description: Description,
    rows: Iterable[str],
    former: Table | None = None,
    kept: Iterable[tuple[str, str]] = (),
) -> None:
    """Write a table atomically: the new `rows` (lines of JSON), and rows that are kept from the former table.

    `kept` contains path and digest of each row of the former table to write. The bytes depend only on the recordings,
    not on which of them are new. Columns without values are left out, except those that every table has.
    """
    with folder_aside(path.absolute().parent) as aside, refusing(aside):
        lines, kept_lines, finished = aside / "rows.json", aside / "kept.json", aside / "fleet.parquet"
        kinds: dict[str, set[str]] = {}
        with lines.open("w", encoding="ascii") as file:
            for line in rows:
                for name, value in json.loads(line).items():
                    kinds.setdefault(name, set()).update([] if value is None else [type(value).__name__])
                file.write(line)
        # DuckDB writes data that does not fit into memory to this folder.
        with duckdb.connect(config={"threads": 1, "temp_directory": str(aside / "spilled")}) as database:
            types = _ALWAYS | dict.fromkeys(description["metadata"], "VARCHAR")
            types |= {name: _type(kind) for name, kind in kinds.items() if kind and name not in types}
            database.execute(f"create view fresh as from {_read(lines, types)}")
            database.execute("create view written as from fresh")
            if former is not None:
                with kept_lines.open("w", encoding="utf-8") as file:
                    file.writelines(json.dumps(dict(zip(_SAME, row, strict=True))) + "\n" for row in kept)
                database.execute(f"create view kept as from {_read(kept_lines, _SAME)}")
                database.execute(f"create view former as from '{quoted(former.path)}'")
                database.execute(
                    "create or replace view written as from fresh union all by name "
                    "from former where (path, digest) in (select (path, digest) from kept)"
                )
            columns = ", ".join(map(_name, _in_order(database, description["metadata"])))
            text = json.dumps(description, sort_keys=True).replace("'", "''")
            about = f"{{{_KEY}: '{text}', {checksummed.KEY}: '{checksummed.UNSEALED}'}}"
            database.execute(
                f"copy (select {columns} from written order by path, digest) to '{quoted(finished)}' "  # noqa: S608
                f"(format parquet, compression zstd, kv_metadata {about})"
            )
        checksummed.seal(finished)
        with note_written_files(path):
            move_into_place(finished, path)


def _in_order(database: duckdb.DuckDBPyConnection, metadata: Sequence[str]) -> list[str]:
    """Return the names of the columns in a fixed order, without optional columns that are empty."""
    names = [row[0] for row in database.execute("describe written").fetchall()]
    counting = ", ".join(f"count({_name(name)})" for name in names)
    counts = database.execute(f"select {counting} from written").fetchone()  # noqa: S608
    used = {name for name, count in zip(names, counts or (), strict=True) if count}
    first = [*FIXED, *metadata, *(figure.name for figure in FIGURES)]
    others = sorted(used - set(first), key=lambda name: (name.startswith(HISTOGRAM), name))
    return [*first, *others]


def _description(path: Path, name: str) -> Description:
    try:
        path.open("rb").close()
    except OSError as error:
        raise InputError.of(error, name) from error
    try:
        with questions() as database:
            query = "select value from parquet_kv_metadata($path) where key::varchar = $key"
            (text,) = database.execute(query, {"path": str(path), "key": _KEY}).fetchone() or (None,)
        described = json.loads(text or b"null")
        if isinstance(described, dict) and {"metadata", "bins", "identity"} <= set(described):
            return cast("Description", described)
    except (duckdb.Error, ValueError):
        pass
    raise FormatError(
        "this is not a fleet table of emmclab",
        kind="syntax",
        hint="give a folder of recordings, or a table that `emmclab fleet` wrote; to replace a damaged table, "
        "give the folder of its recordings and another name (-o)",
    ).in_file(name)


def _type(kinds: set[str]) -> str:
    """Return the column type for a set of value types."""
    return "DOUBLE" if kinds == {"int", "float"} else _TYPES[kinds.copy().pop()]


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _read(path: Path, types: Mapping[str, str]) -> str:
    """Return the SQL expression that reads a file of JSON lines."""
    return f"read_json('{quoted(path)}', format = 'newline_delimited', columns = {typed(types)})"
