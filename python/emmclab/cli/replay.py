"""`emmclab replay TRACE /dev/X`."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from emmclab.cli.command import command
from emmclab.cli.console import in_a_folder, print_json, print_stderr, stdout
from emmclab.cli.failures import EARLY_END, Ending, stop_on_signals
from emmclab.cli.options import AsJson, Percentiles, Reading, TraceFile, argument, option
from emmclab.cli.progress import Meter
from emmclab.cli.tables import framed
from emmclab.core_types import DiskReplayResult
from emmclab.real_devices.disk_replay import DiskReplayOptions, replay_on_disk, warnings_of
from emmclab.runtime.document import change_pct, percent_text, size
from emmclab.traces.profile_fields import ledger_line

#: Fields of a summary of times, with their headings.
_TIMES = {"mean_ms": "Mean", "p50_ms": "p50", "p90_ms": "p90", "p99_ms": "p99", "p999_ms": "p99.9", "max_ms": "Longest"}


@command(
    "emmclab replay trace.txt /dev/sdX --reads-only",
    "emmclab replay trace.txt /dev/sdX --yes --range 1GB..3GB --wrap-addresses -o real.parquet",
    "emmclab simulate real.parquet --device nexus5 # compares the simulated times with the measured ones",
)
def replay(
    *,
    trace: TraceFile,
    disk: Annotated[
        Path, argument("/dev/X|FILE", "A block device, or a file that is the image of a disk.", show_default=False)
    ],
    yes: Annotated[bool, option("Destroy the data in the used range of the disk.")] = False,
    options: DiskReplayOptions,
    percentiles: Percentiles = None,
    output: Annotated[
        Path | None,
        option(
            "Also write a trace with the measured times, which the other commands read.",
            None,
            "--output",
            "-o",
            callback=in_a_folder,
        ),
    ] = None,
    as_json: AsJson = False,
    reading: Reading,
) -> None:
    """Send a trace to a disk of this machine, with its times, sizes and flags, and measure the response times.

    The disk must not be in use. Writes destroy its data, so they need --yes. Exit status 3: the run was interrupted.
    """
    options["percentiles"] = percentiles
    opened = reading.open(trace)
    with ExitStack() as signals, Meter(f"replay {opened.name} on {disk}") as meter:
        stop: list[Ending] = []

        def note(completed: int, planned: int) -> bool:
            # While the trace is read, Ctrl-C interrupts the command; from the first call on, it ends the run.
            stop[:] = stop or [signals.enter_context(stop_on_signals())]
            meter(completed, planned, completed)
            return not stop[0].is_requested

        result = replay_on_disk(opened, disk, overwrite=yes, output=output, progress=note, **options)
    reading.note_changed(opened.name, result.ledger)
    for text in warnings_of(result):
        print_stderr(f"warning: {text}")
    if as_json:
        print_json(dict(result))
    else:
        _show(result)
    if output is not None:
        print_stderr(f"trace: {output}")
    if result.run.stopped is not None:
        raise typer.Exit(EARLY_END)


def _show(result: DiskReplayResult) -> None:
    """Print the summary of a replay, as `simulate` prints it."""
    console, run, requests, disk = stdout(), result.run, result.requests, result.disk
    mean = result.response.mean_response_ms
    is_measured = requests.read + requests.write > 0
    headline = (
        f"{disk.path}: mean response {mean:.3g} ms" if is_measured else f"{disk.path}: no read or write completed"
    )
    if is_measured and (recorded := result.recorded_response_ms) is not None:
        headline += f", recorded {recorded:.3g} ms ({percent_text(change_pct(recorded, mean))} %)"
    console.print(Text(headline, "bold"), soft_wrap=True)
    console.print(Text(f"ledger: {ledger_line(result.ledger)}"))
    paced = f"depth {run.depth}" if run.depth is not None else f"{run.mode} loop, rate x{run.rate:g}"
    reason = f" ({run.mode_reason})" if run.mode_reason else ""
    model = "" if disk.model is None else f"{disk.model}, "
    console.print(
        Text(f"{paced}{reason}; {model}bytes {run.range_start} to {run.range_end}, seed {run.seed}", "dim"),
        soft_wrap=True,
    )
    table = framed("Measured response times, ms", "Operation", "Requests", *_TIMES.values(), words=1)
    rows = {
        "read": (requests.read, result.response.read),
        "write": (requests.write, result.response.write),
        "flush": (requests.flush, result.flush),
        "discard": (requests.discard, result.discard),
        "flush and durable write": (0, None) if result.durable is None else (result.durable.requests, result.durable),
    }
    for name, (count, times) in rows.items():
        if count and times is not None:
            table.add_row(name, f"{count:,}", *(f"{times[field]:,.3f}" for field in _TIMES))
    if result.sending_delay is not None and requests.planned > requests.unsent + requests.held:
        delays = [f"{result.sending_delay[field]:,.3f}" for field in _TIMES]
        sent = requests.planned - requests.unsent - requests.held
        table.add_row("delay of the sender", f"{sent:,}", *delays)
    console.print(table)
    for row in result.percentiles:
        console.print(Text(f"p{row.percentile:g} of {row.op}: {row.response_ms:,.3f} ms"))
    throughput = f"{run.throughput_mb_per_s:,.3f}" if is_measured else "–"
    console.print(
        Text(
            f"{requests.completed:,} of {requests.planned:,} requests in {run.elapsed_s:,.3f} s, "
            f"{size(requests.bytes_read)} read, {size(requests.bytes_written)} written, "
            f"{throughput} MB/s; at most {run.most_in_progress:,} at once, {requests.held:,} held "
            "for an earlier request to the same sectors",
            "dim",
        ),
        soft_wrap=True,
    )
