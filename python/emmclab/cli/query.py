"""`emmclab query SQL`."""

import csv
import datetime
import decimal
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

from rich.text import Text

from emmclab.cli.command import command
from emmclab.cli.console import output_option, print_json, print_stderr, print_stdout, stdout
from emmclab.cli.name_completion import study_names
from emmclab.cli.options import AsJson, Reading, argument, option
from emmclab.cli.progress import Working
from emmclab.cli.study_options import RESULTS, ResultsFolder, warn_of_changes
from emmclab.cli.tables import framed
from emmclab.errors import InputError
from emmclab.runtime.document import Row
from emmclab.runtime.files import cell, refuse_other_endings, write_pieces

#: Supported extensions of output files.
_ENDINGS = (".csv", ".json", ".parquet")
#: The default query: lists the tables with their columns.
_TABLES = (
    "select table_name as \"table\", string_agg(column_name, ', ' order by column_index) as columns "
    "from duckdb_columns() where not internal group by all order by all"
)
#: CSV is written in pieces of this length, characters.
_PIECE = 1 << 16


@command('emmclab query "select device, avg(mean_response_ms) from runs group by all"')
def query(
    *,
    sql: Annotated[
        str,
        argument(
            "SQL",
            "A query on the table `trace` (--trace), or on the tables of all studies (runs, profiles, "
            "size_distribution, ...). Settings of studies are columns of runs: `gc.policy` is gc_policy. "
            "Without a query, the tables are listed with their columns.",
            show_default=False,
        ),
    ] = _TABLES,
    study: Annotated[
        str | None,
        option(
            "The results of this study only: its name, or its TOML file.",
            metavar="NAME|FILE",
            autocompletion=study_names,
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        option(
            "Query this trace, of any format. The table `trace` contains its requests, `fsyncs` its waits in "
            "fsync (at most the 65,536 longest), `commits` the commits of journals. If the file was written by "
            "`simulate --events`, the table `events` contains the waits of each request (`describe events` lists "
            "the columns). `flag_names(flags)` lists the flags of a request, `has_flag(flags, 'fua')` tests one flag."
        ),
    ] = None,
    output: Annotated[Path | None, output_option("Output file: .csv, .json or .parquet.")] = None,
    as_csv: Annotated[bool, option("Print CSV, with a header.", None, "--csv")] = False,
    results: ResultsFolder = RESULTS,
    as_json: AsJson = False,
    reading: Reading,
) -> None:
    """Query results or a trace in SQL (DuckDB); notebooks can read the same Parquet files."""
    from emmclab.studies.query import query_one_trace, query_studies, without_fsyncs

    if output is not None:
        refuse_other_endings(output, _ENDINGS, "--output")
    if trace is None:
        reading.refuse("the tables of studies", "give a trace with --trace, or select rows with `where`")
    if trace is not None:
        source = reading.open(trace)
        if "fsyncs" in sql.casefold() and (note := without_fsyncs(source)):
            print_stderr(f"note: {note}")
        answer = query_one_trace(source, sql)
    else:
        folders = [_folder_of(study, results)] if study is not None else sorted(filter(Path.is_dir, results.glob("*")))
        for folder in folders:
            warn_of_changes(folder)
        answer = query_studies(folders, sql)
    with Working("query"), answer as (names, rows):
        if output is not None:
            count = _write(output, names, rows)
            print_stderr(f"answer: {output}, {count} rows")
            return
        # All rows are fetched before the first is printed, so that a query that fails late prints nothing.
        fetched = list(rows)
    if as_json:
        print_json(list(_each_record(names, fetched)))
    elif as_csv:
        print_stdout("".join(_csv(names, fetched)).rstrip("\n"))
    else:
        _show(names, fetched)


def _folder_of(study: str, results: Path) -> Path:
    """Return the results folder of a study; reject results that another version of the study has written."""
    from emmclab.studies.store import Store

    # If results of the study are stored, its name is sufficient to find them.
    if not study.endswith(".toml") and (results / study / "index.json").is_file():
        return results / study
    from emmclab.studies import Study

    chosen = Study.named(study)
    about = Store(results / chosen.name).index()["study"]
    if about.get("definition") != chosen.definition:
        raise InputError(
            f"{results / chosen.name}: these are results of another version of {study}",
            file=study,
            hint=f"run the study again: `emmclab run {study}`",
        )
    return results / chosen.name


def _show(names: list[str], rows: list[tuple[Any, ...]]) -> None:
    table = framed()
    for number, name in enumerate(names):
        numeric = any(isinstance(row[number], (int, float, decimal.Decimal)) for row in rows)
        table.add_column(Text(name), justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(Text(_text(value)) for value in row))
    stdout().print(table)


def _text(value: Any) -> str:
    """Format a value with at least six significant digits, if it has as many, and without thousands separators.

    >>> _text(1234567.125), _text(0.1234567), _text(63668), _text(None)
    ('1234567', '0.123457', '63668', '–')
    """
    if value is None:
        return "–"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:.6g}"


def _write(output: Path, names: list[str], rows: Iterable[tuple[Any, ...]]) -> int:
    """Write the result of a query row by row, in the format of the extension; return the number of rows.

    In Parquet, lists are stored as JSON, times and dates as text.
    """
    counted = _CountedRows(rows)
    ending = output.suffix.lower()
    if ending != ".parquet":
        write_pieces(output, _csv(names, counted) if ending == ".csv" else _json(names, counted))
        return counted.count
    from emmclab.runtime.parquet import write_parquet

    records = (
        {name: json.dumps(value) if isinstance(value, (list, dict)) else value for name, value in record.items()}
        for record in _each_record(names, counted)
    )
    write_parquet(output, records, columns=names)
    return counted.count


class _CountedRows:
    """An iterable of rows that counts the rows it has yielded."""

    def __init__(self, rows: Iterable[tuple[Any, ...]]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for row in self._rows:
            self.count += 1
            yield row


def _csv(names: list[str], rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    """Yield rows as CSV with a header, in pieces; missing values are empty."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(map(cell, names))
    for row in rows:
        writer.writerow(
            [json.dumps(_plain(value)) if isinstance(value, (list, dict)) else cell(value) for value in row]
        )
        if buffer.tell() > _PIECE:
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


def _json(names: list[str], rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    separator = "[\n"
    for record in _each_record(names, rows):
        text = json.dumps([record], indent=2, ensure_ascii=False, allow_nan=False)
        yield separator + text.removeprefix("[\n").removesuffix("\n]")
        separator = ",\n"
    yield "[]\n" if separator == "[\n" else "\n]\n"


def _each_record(names: list[str], rows: Iterable[tuple[Any, ...]]) -> Iterator[Row]:
    return (dict(zip(names, map(_plain, row), strict=True)) for row in rows)


def _plain(value: Any) -> Any:
    """Convert a value to one that JSON supports; NaN and infinities become None."""
    if (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")):
        return None
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, (datetime.date, datetime.time, datetime.timedelta, bytes)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    return value
