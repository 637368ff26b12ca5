"""`emmclab head TRACE`."""

import itertools
from collections.abc import Sequence
from typing import Annotated

from rich.table import Table
from rich.text import Text

from emmclab.cli.command import command
from emmclab.cli.console import print_json, stdout
from emmclab.cli.options import AsJson, Reading, TraceFile, option
from emmclab.cli.tables import framed
from emmclab.traces.trace import RequestRow


@command("emmclab head trace.txt -n 20")
def head(
    *,
    trace: TraceFile,
    requests: Annotated[int, option("Number of requests.", None, "-n", "--requests", min=1, max=100_000)] = 10,
    reading: Reading,
    as_json: AsJson = False,
) -> None:
    """Show the first requests, in order of arrival, with units."""
    source = reading.open(trace)
    rows = source.rows(requests)
    if as_json:
        print_json(rows)
    elif rows:
        stdout().print(_table(rows))


def _roles(roles: list[str]) -> str:
    """Return the roles of a request's blocks in order; equal neighbours are combined, with their number."""
    runs = [(role, len(list(group))) for role, group in itertools.groupby(roles)]
    return ", ".join(role if count == 1 else f"{role} x{count}" for role, count in runs)


def _decimals(times_ns: Sequence[int | None], unit_ns: int) -> list[str | None]:
    """Format times in a unit, to the microsecond, or to the nanosecond if different times would look equal.

    >>> _decimals([0, 1_500, None], 10**6), _decimals([0, 400], 10**6)
    (['0.000', '0.002', None], ['0.000000', '0.000400'])
    """
    for digits in (len(str(unit_ns)) - 4, len(str(unit_ns)) - 1):
        texts = [None if time is None else f"{time / unit_ns:.{digits}f}" for time in times_ns]
        if len({*texts}) == len({*times_ns}):
            break
    return texts


def _table(rows: list[RequestRow]) -> Table:
    """Return the table of requests; arrivals are relative to the first one, other times to the request's arrival."""
    first = rows[0]["arrival_ns"]
    arrivals = _decimals([row["arrival_ns"] - first for row in rows], 10**9)
    columns: list[tuple[str, list[str]]] = [("arrival\ns", [text or "" for text in arrivals])]
    for step, step_times in (
        ("start", [row["start_ns"] for row in rows]),
        ("issue", [row["issue_ns"] for row in rows]),
        ("complete", [row["complete_ns"] for row in rows]),
    ):
        offsets = [
            None if time is None else time - row["arrival_ns"] for row, time in zip(rows, step_times, strict=True)
        ]
        times = ["–" if text is None else f"+{text}" for text in _decimals(offsets, 10**6)]
        columns.append((f"{step}\nms", times if any(time is not None for time in step_times) else []))
    columns += [
        ("sector\n512 B", [str(row["sector"]) for row in rows]),
        ("size\nKB", [f"{row['sectors'] / 2:g}" for row in rows]),
        ("op", [row["op"] for row in rows]),
        ("flags", [" ".join(flag for flag in row["flags"] if flag != "no_wait_known") for row in rows]),
    ]
    if "role" in rows[0]:
        columns.append(("roles", [_roles(row["role"]) for row in rows]))
    columns += [
        ("pid", ["" if row["pid"] is None else str(row["pid"]) for row in rows]),
        ("process", [row["process"] or "" for row in rows]),
        ("device", [row["device"] or "" for row in rows]),
    ]
    table = framed()
    filled = [(heading, texts) for heading, texts in columns if any(texts)]
    for heading, _ in filled:
        table.add_column(heading, justify="right" if "\n" in heading or heading == "pid" else "left")
    for texts in zip(*(texts for _, texts in filled), strict=True):
        table.add_row(*(Text(text) for text in texts))
    return table
