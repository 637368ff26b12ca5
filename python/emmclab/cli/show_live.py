"""Prints the live view of a served device, and the summary of its run."""

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from emmclab.cli.console import print_json, print_stderr, stdout
from emmclab.cli.tables import framed
from emmclab.core_types import FlashOperations, LayeredDiskResult, LiveStatus
from emmclab.runtime.document import duration, size
from emmclab.simulation.result import Result
from emmclab.simulation.result_fields import shown_fields
from emmclab.simulation.result_text import lateness, refusals_text, warnings
from emmclab.traces.inputs import ProvenanceFields

#: Figures of the live view that are also fields of a result.
FIGURES = shown_fields(("response.p50_ms", "response.p99_ms", "write_amplification.waf", "flash.block_erases"))
_PROGRAMS, _ERASES = shown_fields(("flash.page_programs.total", "flash.block_erases"))


def _ms(us: float | None) -> float | None:
    return None if us is None else us / 1000


def live_view(live: Any, figures: LiveStatus, took_s: float) -> Group:
    """Return the view of a device's figures (`LiveDevice.stats`) over the last `took_s` seconds of host time."""
    median, p99, waf, erases = FIGURES
    rates = ("Requests/s", "MB/s", median.head, p99.head, "Open", "Not durable", waf.head)
    table = framed("", *map(str.strip, (*rates, "Free blocks", erases.head)), words=0)
    table.add_row(
        f"{figures.interval_requests / took_s:,.0f}",
        f"{figures.interval_bytes / took_s / 2**20:,.1f}",
        median.text(_ms(figures.response_p50_us)),
        p99.text(_ms(figures.response_p99_us)),
        f"{figures.open}",
        size(figures.volatile_bytes),
        waf.text(figures.waf),
        f"{figures.free_blocks:,}",
        erases.text(figures.erases),
    )
    power = "" if figures.powered else "  power is off"
    lines: list[RenderableType] = [
        Text.assemble((live.device.name, "bold"), f"  {', '.join(live.paths)}  clock {figures.clock}", (power, "red")),
        table,
        Text(
            f"{figures.requests:,} requests, {size(figures.bytes_read)} read, "
            f"{size(figures.bytes_written)} written, {figures.failed:,} failed, "
            f"{figures.cuts:,} cuts; {duration(figures.simulated_s)} of simulated time; Ctrl-C ends it"
        ),
    ]
    if figures.refused:
        lines.append(Text(f"zones do not allow {refusals_text(figures.refused)}", "yellow"))
    if figures.image_error:
        lines.append(Text(f"data cannot be written to the image: {figures.image_error}", "yellow"))
    return Group(*lines)


def _preparation_text(live: Any) -> str:
    """Return a sentence on creating and mounting the file system, which the figures of the run do not include."""
    result: Result = live.prepared
    flash: FlashOperations = live.settled.flash
    requests, seconds = result.requests, result.run.simulated_s
    line = (
        f"not counted: making and mounting the file system, with {requests.total:,} requests, "
        f"{size(requests.bytes_written)} written, {_PROGRAMS.text(result.flash.page_programs.total)} "
        f"{_PROGRAMS.name}, {duration(seconds)} of simulated time"
    )
    moved, erased = flash.page_programs.total, flash.block_erases
    if moved or erased:
        line += (
            f"; the device then moved its data while idle: {_PROGRAMS.text(moved)} {_PROGRAMS.name}, "
            f"{_ERASES.text(erased)} {_ERASES.name}"
        )
    return line


def _moved_text(result: Result) -> str:
    """Return a sentence on pages that were programmed to move data; empty if there are none."""
    by_cause = result.flash.page_programs
    moved = by_cause.gc + by_cause.wear + by_cause.refresh
    if not moved:
        return ""
    return (
        f"{_PROGRAMS.name}: {by_cause.total - moved:,} for the requests, {moved:,} to move data (collection, "
        "folding, wear levelling), which may be older than the run; write amplification counts both"
    )


def show_served(live: Any, result: Result, as_json: bool, provenance: ProvenanceFields) -> None:
    """Print the summary of the run of a served device."""
    if as_json:
        for text in warnings(result):
            print_stderr(f"warning: {text}")
        results = {"prepared": live.prepared, "settled": live.settled}
        parts = {name: None if earlier is None else earlier.to_dict() for name, earlier in results.items()}
        print_json({"live": None} | result.to_dict() | parts | {"provenance": provenance})
        return
    if result.requests.total == 0:
        print_stderr("no request arrived")
    else:
        from emmclab.cli.show_runs import show_result

        show_result(stdout(), result)
        if text := _moved_text(result):
            print_stderr(text)
        if text := lateness(result):
            print_stderr(text)
    if live.prepared is not None:
        print_stderr(_preparation_text(live))


def show_layered(result: LayeredDiskResult, as_json: bool) -> None:
    """Print the summary of layers that were served above disks."""
    if result.stopped is not None:
        print_stderr(f"error: a disk failed: {result.stopped}; serve the disk again to recover the layers")
    if as_json:
        print_json(dict(result))
        return
    console = stdout()
    table = framed("Response times, ms", "Operation", "Mean", "p50", "p99", "Longest", words=1)
    for name, times in (("read", result.response.read), ("write", result.response.write)):
        if times.max_ms:
            table.add_row(name, *(f"{times[field]:,.3f}" for field in ("mean_ms", "p50_ms", "p99_ms", "max_ms")))
    if table.row_count:
        console.print(table)
    for layer in result.layers:
        counts = ", ".join(f"{name} {value:,}" for name, value in layer.items() if isinstance(value, int) and value)
        console.print(Text(f"{layer['name']}: {counts or 'no work'}"), soft_wrap=True)
    console.print(
        Text(
            f"{result.requests:,} requests, {size(result.bytes_read)} read, {size(result.bytes_written)} written, "
            f"{result.failed:,} failed",
            "dim",
        )
    )
