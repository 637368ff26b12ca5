"""`emmclab query SQL`."""

from __future__ import annotations

import datetime
import decimal
from typing import Annotated, Any

import typer
from rich.text import Text

from emmclab.cli.console import print_json, stdout
from emmclab.cli.options import AsJson
from emmclab.cli.show import framed
from emmclab.cli.studies import RESULTS, ResultsFolder


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog='Example: [cyan]emmclab query "select device, avg(mean_response_ms) from runs group by all"[/]'
    )(query)


def query(
    sql: Annotated[
        str,
        typer.Argument(
            metavar="SQL",
            help="A query on the tables of all studies (runs, profiles, size_distribution, ...).",
        ),
    ],
    results: ResultsFolder = RESULTS,
    as_json: AsJson = False,
) -> None:
    """Query results in SQL (DuckDB's); any notebook can read the same Parquet files."""
    from emmclab.study.store import query as ask

    folders = sorted(path for path in results.iterdir() if path.is_dir()) if results.is_dir() else []
    names, rows = ask(folders, sql)
    if as_json:
        print_json([dict(zip(names, map(_plain, row), strict=True)) for row in rows])
        return
    table = framed()
    for number, name in enumerate(names):
        numeric = any(isinstance(row[number], (int, float)) for row in rows)
        table.add_column(Text(name), justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(Text(_text(value)) for value in row))
    stdout().print(table)


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,.4f}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    """Make a value that JSON holds."""
    if (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")):
        return None
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, (datetime.date, datetime.time, datetime.timedelta, bytes)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    return value
