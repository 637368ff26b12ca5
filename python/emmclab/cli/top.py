"""`emmclab top`."""

import json
import sys
import time
from contextlib import closing, nullcontext
from typing import Annotated, Any, TypedDict

from rich.console import Group
from rich.live import Live
from rich.text import Text

from emmclab import _core
from emmclab.cli.command import command
from emmclab.cli.console import ClosedPipe, one_line, print_stderr, stdout
from emmclab.cli.failures import Ending, stop_on_signals
from emmclab.cli.machine_options import Duration, Machine
from emmclab.cli.options import option
from emmclab.cli.tables import framed
from emmclab.errors import ConfigError
from emmclab.runtime.document import parse_duration
from emmclab.traces.trace import Ledger

#: Maximum time to wait for a batch of requests, seconds. The end of the recording is noticed after at most this time.
_WAIT_S = 0.1
#: Maximum number of lines about waits for fsync and similar calls in the terminal view.
_WAITS = 4
#: Number of processes that plain-line output lists, because it has no terminal height as a limit.
_ROWS = 20


class ProcessCounts(TypedDict):
    """Counts of the requests of one process with one operation, since the last update of the display."""

    process: str
    op: str
    requests: int
    bytes: int
    largest_bytes: int
    response_p50_ns: int
    response_p99_ns: int
    no_wait: int


class ProcessRates(ProcessCounts):
    """`ProcessCounts` with rates per second, measured by the clock of this host."""

    requests_per_s: float
    bytes_per_s: int


class _Counts(TypedDict):
    requests: int
    no_wait: int
    gaps: int
    idle_ns: int
    longest_gap_ns: int
    #: Counts of sync calls, with the fields of `SyncCounts`.
    syncs: list[dict[str, Any]]


class RecorderStats(_Counts):
    """Request counts since the last update of the display, and event counts (`ledger`) since the start."""

    span_ns: int
    response_sum_ns: int
    processes: list[ProcessCounts]
    ledger: Ledger


class Interval(_Counts):
    """The figures of one interval of the display; `lost` counts lost events since the start."""

    interval_s: float
    requests_per_s: float
    bytes_per_s: int
    queue_depth: float
    lost: int
    processes: list[ProcessRates]


@command("emmclab top --adb", "emmclab top --device /dev/sda --once --json")
def top(
    *,
    interval: Annotated[
        str, option("Length of the interval of a view, for example 2s or 500ms.", metavar="TIME")
    ] = "1s",
    duration: Duration = None,
    once: Annotated[bool, option("Stop after one view.")] = False,
    machine: Machine,
    as_json: Annotated[bool, option("Print JSON, one line per view.", None, "--json")] = False,
) -> None:
    """Show the I/O of block devices by process, live: of this host, a machine over ssh, or a phone over adb.

    Nothing is stored. Response times are those of the requests that ended in the interval; the queue depth is
    the mean number of unfinished requests. Ends on Ctrl-C.
    """
    interval_s = parse_duration(interval, "--interval")
    if interval_s < 0.05:
        raise ConfigError(f"`{interval}` is too short", field="--interval", hint="give an interval of 50ms or more")
    seconds = None if duration is None else parse_duration(duration)
    live = None if as_json or not sys.stdout.isatty() else Live(console=stdout(), auto_refresh=False)
    with closing(machine.record()) as recorder, stop_on_signals() as stop, live or nullcontext():
        disks = ", ".join(recorder.disks())
        if live is None:
            print_stderr(f"watching {disks}; Ctrl-C ends it")
        else:
            live.update(Text(f"watching {disks}; Ctrl-C ends it"), refresh=True)
        begin = time.monotonic()
        is_over = False
        while not is_over:
            stats = view(recorder, interval_s, stop)
            is_over = once or stop.is_requested or recorder.has_ended()
            is_over = is_over or (seconds is not None and time.monotonic() - begin >= seconds)
            if as_json:
                _line(json.dumps({"at_s": round(time.monotonic() - begin, 3), **stats}, allow_nan=False))
            elif live is not None:
                rows = max(live.console.height - 6 - min(len(stats["syncs"]), _WAITS), 1)
                live.update(_table(stats, disks, rows), refresh=True)
            else:
                for line in _lines(stats):
                    _line(line)
        *_, early, _ = recorder.stop()
    if early:
        print_stderr(f"note: the recording ended early: {early}")


def view(recorder: _core.Recorder, every_s: float, stop: Ending) -> Interval:
    """Wait for an interval and return its figures, with rates per second of this host's clock."""
    begin = time.monotonic()
    while (
        (remaining_s := begin + every_s - time.monotonic()) > 0 and not stop.is_requested and not recorder.has_ended()
    ):
        # Batches are discarded, because a view needs only the counts.
        recorder.next(min(remaining_s, _WAIT_S))
    stats: RecorderStats = recorder.stats()
    took_s = max(time.monotonic() - begin, 1e-6)
    depth = stats["response_sum_ns"] / max(stats["span_ns"], 1, took_s * 1e9)
    processes: list[ProcessRates] = [
        {**row, "requests_per_s": round(row["requests"] / took_s, 2), "bytes_per_s": round(row["bytes"] / took_s)}
        for row in stats["processes"]
    ]
    return {
        "interval_s": round(took_s, 9),
        "requests_per_s": round(stats["requests"] / took_s, 2),
        "bytes_per_s": sum(row["bytes_per_s"] for row in processes),
        "queue_depth": round(depth, 3),
        "requests": stats["requests"],
        "no_wait": stats["no_wait"],
        "gaps": stats["gaps"],
        "idle_ns": stats["idle_ns"],
        "longest_gap_ns": stats["longest_gap_ns"],
        "syncs": stats["syncs"],
        "lost": stats["ledger"]["lost"] or 0,
        "processes": processes,
    }


def _line(text: str) -> None:
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise ClosedPipe from None


def _summary(stats: Interval) -> str:
    requests = stats["requests"]
    parts = [f"{stats['requests_per_s']:,.0f} requests/s", f"{stats['bytes_per_s'] / 1024:,.0f} KB/s"]
    if requests:
        parts.append(f"depth {stats['queue_depth']:.2f}")
        parts.append(f"no-wait {100 * stats['no_wait'] / requests:.0f} %")
    if stats["gaps"]:
        mean, longest = stats["idle_ns"] / stats["gaps"] / 1e6, stats["longest_gap_ns"] / 1e6
        parts.append(f"{stats['gaps']:,} gaps, mean {mean:,.1f} ms, longest {longest:,.1f} ms")
    if stats["lost"]:
        parts.append(f"{stats['lost']:,} events LOST: give a larger --buffer-kb")
    return ", ".join(parts)


def _waits(stats: Interval, rows: int) -> list[str]:
    return [
        f"{one_line(row['process'])} waited for {row['file_system']} {row['calls']:,} times, "
        f"mean {row['time_ns'] / row['calls'] / 1e6:,.2f} ms, longest {row['longest_ns'] / 1e6:,.2f} ms"
        for row in stats["syncs"][:rows]
    ]


def _cells(row: ProcessRates) -> list[str]:
    mean = row["bytes"] / row["requests"] / 1024
    return [
        f"{row['requests_per_s']:,.1f}",
        f"{row['bytes_per_s'] / 1024:,.0f}",
        f"{mean:,.1f}",
        f"{row['largest_bytes'] / 1024:,.0f}",
        f"{row['response_p50_ns'] / 1e6:,.2f}",
        f"{row['response_p99_ns'] / 1e6:,.2f}",
        f"{100 * row['no_wait'] / row['requests']:.0f}",
    ]


_HEADS = ("requests/s", "KB/s", "mean KB", "max KB", "p50 ms", "p99 ms", "no-wait %")


def _table(stats: Interval, disks: str, rows: int) -> Group:
    table = framed("", "process", "op", words=2)
    for head in _HEADS:
        table.add_column(head, justify="right")
    for row in stats["processes"][:rows]:
        table.add_row(Text(row["process"] or "–"), row["op"], *_cells(row))
    hidden = len(stats["processes"]) - rows
    return Group(
        Text.assemble((disks, "bold"), f"  {_summary(stats)}"),
        table,
        Text(f"and {hidden} more" if hidden > 0 else "", "dim"),
        *map(Text, _waits(stats, _WAITS)),
    )


def _lines(stats: Interval) -> list[str]:
    lines = [_summary(stats)]
    for row in stats["processes"][:_ROWS]:
        cells = ", ".join(f"{cell} {head}" for cell, head in zip(_cells(row), _HEADS, strict=True))
        lines.append(f"  {one_line(row['process'] or '–')} {row['op']}: {cells}")
    return lines + [f"  {line}" for line in _waits(stats, _ROWS)]
