"""SQL queries on the tables of studies and on traces."""

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import duckdb

from emmclab import _core
from emmclab._core import FLAG_NAMES
from emmclab.errors import ConfigError, InputError
from emmclab.runtime.checksummed import is_intact
from emmclab.runtime.files import folder_aside, written_files
from emmclab.runtime.parquet import quoted, sql_list
from emmclab.studies.kinds import TABLES
from emmclab.traces.activity import activity_of
from emmclab.traces.trace import Trace

Given = TypeVar("Given")


class Answer(NamedTuple):
    """The result of an SQL query: its column names, and its rows, which are fetched in batches."""

    names: list[str]
    rows: Iterator[tuple[Any, ...]]


#: SQL macros for the column `flags`. An unknown flag name is an error, so that a misspelt name does not look like a
#: flag that is not set.
_FLAG_MACROS = (
    f"flag_names(flags) as array_to_string([{FLAG_NAMES!r}[bit + 1] "
    f"for bit in range({len(FLAG_NAMES)}) if flags & (1 << bit) != 0], ' ')",
    f"has_flag(flags, name) as flags & (1 << coalesce(list_position({FLAG_NAMES!r}, name), "
    f"error('there is no flag `' || name || '`: choose one of {', '.join(FLAG_NAMES)}')) - 1) != 0",
)
#: Columns that only rows of a simulated run have.
_OF_A_RUN = {"wait_gc_ns"}
#: SQL that creates the tables of a trace's activity: waits for durability, and journal commits.
_ACTIVITY = """
create table fsyncs
    (process varchar, pid integer, file_system varchar, device varchar, start_ns bigint, time_ns bigint);
create table commits (device varchar, start_ns bigint, time_ns bigint);
"""
_FSYNC = (
    "insert into fsyncs select $process, $pid, $file_system, $device, "
    "unnest($start_ns::bigint[]), unnest($time_ns::bigint[])"
)
_COMMIT = "insert into commits select $device, unnest($start_ns::bigint[]), unnest($time_ns::bigint[])"
_IN_ORDER = "create or replace table fsyncs as select * from fsyncs order by start_ns, time_ns, process"
#: Number of rows that are fetched from the database at once.
_FETCHED = 1_000


@contextlib.contextmanager
def query_studies(folders: Sequence[Path], sql: str) -> Iterator[Answer]:
    """Run an SQL query on the tables of one or several studies; each table is a view, with the column `study`."""
    views: dict[str, list[str]] = {}
    for folder in folders:
        for name in TABLES:
            path = folder / f"{name}.parquet"
            if not path.is_file():
                continue
            _require_intact(path)
            piece = f"select '{quoted(folder.name)}' as study, * from '{quoted(path)}'"  # noqa: S608
            views.setdefault(name, []).append(piece)
    if not views:
        raise InputError("there are no results to query", hint="run a study first: `emmclab run STUDY`")
    with duckdb.connect() as database:
        for name, parts in views.items():
            database.execute(f"create view {name} as {' union all by name '.join(parts)}")
        database.execute(f"set allowed_directories = {sql_list(folder.resolve() for folder in folders)}")
        yield _answer(database, sql, list(views))


def _require_intact(table: Path) -> None:
    """Raise an error for a table that is damaged, or that an earlier version of emmclab wrote."""
    if not is_intact(table):
        raise InputError(
            "this table of the results is damaged, or of an earlier version",
            hint="run the study again (`emmclab run STUDY`), which rebuilds it from the stored cells",
        ).in_file(str(table))


@contextlib.contextmanager
def query_one_trace(trace: Trace, sql: str) -> Iterator[Answer]:
    """Run an SQL query on a trace, whose requests are the table `trace`, with the columns of `Trace.to_arrow`.

    The table `fsyncs` contains the waits of processes for durability (at most the 65,536 longest), in order of their
    starts: process, pid, file_system, device (mounted), start_ns on the clock of the requests, and time_ns. The table
    `commits` contains the commits of ext4 journals. The rows of a simulated run (`events` of `Device.simulate`) are
    also the table `events`, with what each request waited for. `flag_names(flags)` returns the names of the flags of a
    request as text; `has_flag(flags, 'fua')` returns whether a flag is set.

    Raises:
        FormatError: the trace cannot be read.
        ConfigError: the query is not valid SQL, or uses an unknown table or column.
    """
    with folder_aside(Path(tempfile.gettempdir())) as folder, duckdb.connect() as database:
        copy = folder / "trace.parquet"
        trace.write(copy)
        written_files.pop()  # A temporary file is not an output of a command.
        database.execute(f"create view trace as select * from '{quoted(copy)}'")  # noqa: S608
        tables, paths = ["trace", "fsyncs", "commits"], [str(copy)]
        if trace.path is not None and (_OF_A_RUN & _columns(database, trace)):
            # The view `events` reads columns that have not been read yet, so the file is checked first.
            _core.check_parquet(trace.path)
            database.execute(f"create view events as select * from '{quoted(Path(trace.path))}'")  # noqa: S608
            tables.append("events")
            paths.append(trace.path)
        for macro in _FLAG_MACROS:
            database.execute(f"create macro {macro}")
        database.execute(_ACTIVITY)
        activity = activity_of(trace.header)
        for task in activity.waits:
            database.execute(_FSYNC, dict(task))
        database.execute(_IN_ORDER)
        for journal in activity.journals:
            starts, times = journal.commit_start_ns, journal.commit_time_ns
            commits = {"device": journal.device, "start_ns": starts, "time_ns": times}
            database.execute(_COMMIT, commits)
        database.execute(f"set allowed_paths = {sql_list(paths)}")
        yield _answer(database, sql, tables)


def without_fsyncs(trace: Trace) -> str:
    """Return a note that a recording contains only counts of waits for durability; empty if it stores each wait.

    >>> import emmclab
    >>> without_fsyncs(emmclab.read(emmclab.bundled()[0])).partition(":")[0]
    'the table `fsyncs` is empty'
    """
    activity = activity_of(trace.header)
    calls = sum(sync_counts.calls for sync_counts in activity.syncs)
    if activity.waits or not calls:
        return ""
    return (
        f"the table `fsyncs` is empty: this recording has only the totals of its {calls:,} calls "
        "(`emmclab explain` prints them); `emmclab record` now stores each of the longest waits"
    )


def _columns(database: duckdb.DuckDBPyConnection, trace: Trace) -> set[str]:
    """Return the columns of a trace that is a single Parquet file; empty for other traces."""
    if [file_format for file_format, _ in trace.recognised] != ["parquet"]:
        return set()
    rows = database.execute("select name from parquet_schema(?)", [trace.path]).fetchall()
    return {name for (name,) in rows}


def _answer(database: duckdb.DuckDBPyConnection, sql: str, tables: list[str]) -> Answer:
    # All allowed files are open now; the query itself must not read or write other files.
    database.execute("set enable_external_access = false")

    def ask() -> list[str]:
        answer = database.execute(sql)
        return [column[0] for column in answer.description or []]

    def rows() -> Iterator[tuple[Any, ...]]:
        while batch := _interruptible(database, lambda: database.fetchmany(_FETCHED), tables):
            yield from batch

    with _refusing(tables):
        if not database.extract_statements(sql):
            raise ConfigError(
                "the query is empty", field="SQL", hint="give a query, for example `select * from runs limit 5`"
            )
    return Answer(_interruptible(database, ask, tables), rows())


def _interruptible(database: duckdb.DuckDBPyConnection, ask: Callable[[], Given], tables: list[str]) -> Given:
    """Run an SQL query in a thread, so that Ctrl-C interrupts it; DuckDB itself does not handle signals."""
    with _refusing(tables), ThreadPoolExecutor(1) as pool:
        answering = pool.submit(ask)
        try:
            return answering.result()
        except BaseException:
            database.interrupt()
            raise


@contextlib.contextmanager
def _refusing(tables: list[str]) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise _refusal(error, tables) from error


def _refusal(error: duckdb.Error, tables: list[str]) -> ConfigError:
    """Convert an error of DuckDB: first line of the message, position in the query, and similar names."""
    first, _, rest = str(error).partition("\n")
    place = re.search(r"^LINE \d+: .*\n *\^", rest, re.MULTILINE)
    near = re.search(r"(?:Candidate bindings: |Did you mean )(.+)", rest)
    described = (
        ["runs"] if "runs" in tables else [name for name in tables if name not in ("fsyncs", "commits")] or tables[:1]
    )
    columns = f"{' or '.join(f'`describe {name}`' for name in described)} lists columns"
    hint = f"choose one of: {', '.join(tables)}; {columns}"
    if near:
        names = re.findall(r'"([^"]+)"', near[1])[:3]
        # For an unknown table, DuckDB also suggests internal tables. They are removed from the suggestions.
        names = [name for name in names if name in tables or "Table with name" not in first]
        if names:
            hint = f"did you mean {', '.join(names)}? {columns}"
    message = f"{first}\n{place[0]}" if place else first
    return ConfigError(message, field="SQL", hint=hint)
