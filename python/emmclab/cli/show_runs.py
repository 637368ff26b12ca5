"""Simulated runs on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from emmclab.cli.bars import bar
from emmclab.cli.show import framed
from emmclab.device import Result
from emmclab.profile import ledger_line


def device_before(result: Result) -> str:
    """Describe the data on the device before a run.

    >>> import emmclab
    >>> device_before(emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0])))
    'device: new (empty)'
    """
    state = result["options"]["precondition"]
    return "device: new (empty)" if state == "none" else f"device: preconditioned, {state}"


def show_provenance(console: Console, results: Sequence[Result]) -> None:
    """Print the ledger of each trace and what decides the results."""
    seen: set[str] = set()
    for result in results:
        if result["trace"] not in seen:
            seen.add(result["trace"])
            console.print(
                Text.assemble((result["trace"], "bold"), f"  ledger: {ledger_line(result['ledger'])}")
            )
    for warning in dict.fromkeys(warning for result in results for warning in result.warnings):
        console.print(Text.assemble(("warning: ", "bold yellow"), warning), soft_wrap=True)
    first = results[0]
    console.print(
        Text(
            f"{first['run.mode']} loop, {device_before(first)}, "
            f"rate x{first['options']['rate']:g}, seed {first['options']['seed']}",
            "dim",
        )
    )


#: Rows of the table of one run: label, path, digits, unit.
_FACTS = (
    ("Mean response", "response.mean_response_ms", 3, "ms"),
    ("Median response", "response.p50_ms", 3, "ms"),
    ("p99 response", "response.p99_ms", 3, "ms"),
    ("Mean service", "service.mean_service_ms", 3, "ms"),
    ("Mean response of reads", "response.read.mean_ms", 3, "ms"),
    ("Mean response of writes", "response.write.mean_ms", 3, "ms"),
    ("No-wait", "requests.no_wait_pct", 2, "%"),
    ("Throughput", "run.throughput_mb_per_s", 3, "MB/s"),
    ("Space utilisation", "space.space_utilisation", 4, ""),
    ("Write amplification", "write_amplification.waf", 4, ""),
    ("Page reads", "flash.page_reads.total", 0, ""),
    ("Page programs", "flash.page_programs.total", 0, ""),
    ("Block erases", "flash.block_erases", 0, ""),
    ("Collections", "gc.blocks", 0, ""),
    ("Energy", "energy.total_mj", 1, "mJ"),
    ("Simulated time", "run.simulated_s", 1, "s"),
)


def show_result(console: Console, result: Result) -> None:
    """Print one run: figures, where the time went, how it ended."""
    show_provenance(console, [result])
    console.print()
    complete = f"writes complete when {result['configuration.write_complete']}"
    title = f"{result['device']}: parallelism {result['configuration.parallelism']}, {complete}"
    table = framed(title)
    for heading in ("", "Value", "Unit"):
        table.add_column(heading, justify="right" if heading == "Value" else "left")
    table.add_row("Requests", f"{result['requests.total']:,}", "")
    for label, path, digits, unit in _FACTS:
        value = result.shown(path)
        table.add_row(label, "–" if value is None else f"{value:,.{digits}f}", unit)
    if (drain := result["run.drain_s"]) is not None:
        table.add_row("Drain time", f"{drain:,.1f}", "s")
    if life := result["wear.lifetime"]:
        table.add_row(
            "Lifetime, even wear", f"{life['even_host_bytes'] / 2**40:,.2f}", "TB written by the host"
        )
    console.print(table)
    waits = {name.removesuffix("_ms"): value for name, value in result["waits"].items()}
    most = max(waits.values(), default=0.0)
    if most > 0:
        console.print()
        table = framed("Parts of the mean response time")
        for heading in ("", "", "ms"):
            table.add_column(heading, justify="right" if heading == "ms" else "left")
        for cause, value in waits.items():
            table.add_row(cause.replace("_", "-"), Text(bar(value, most, 24), "cyan"), f"{value:.3f}")
        console.print(table)
    for layer in result.get("layers", ()):
        console.print()
        _show_layer(console, layer)
    if second := result.get("second_device"):
        console.print()
        table = framed(f"Second device: {second['device']}")
        for heading in ("", "Value"):
            table.add_column(heading, justify="right" if heading == "Value" else "left")
        for name, value in second.items():
            if name != "device":
                table.add_row(_words(name), f"{value:,.4f}" if isinstance(value, float) else f"{value:,}")
        console.print(table)
    if result["run.stopped"]:
        console.print(Text(f"The run ended early: {result['run.stopped']}", "yellow"), soft_wrap=True)


def utilisation_gains(results: Sequence[Result]) -> list[str]:
    """Give the gain of the best space utilisation over the worst by trace (IISWC 2015, Figure 9)."""
    lines = []
    for trace in dict.fromkeys(result["trace"] for result in results):
        rows = [result for result in results if result["trace"] == trace and result["requests.bytes_written"]]
        if len(rows) < 2:
            continue
        # The last of equals: the paper compares its last device with the one before.
        best = max(reversed(rows), key=lambda row: row["space.space_utilisation"])
        worst = min(rows, key=lambda row: row["space.space_utilisation"])
        high, low = best["space.space_utilisation"], worst["space.space_utilisation"]
        if high > low:
            ratio, points = 100 * (high / low - 1), 100 * (high - low)
            lines.append(
                f"{trace}: space utilisation of {best['device']} over {worst['device']}: "
                f"{ratio:+.2f} % as a ratio, {points:+.2f} points as a difference"
            )
    return lines


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _show_layer(console: Console, layer: Mapping[str, Any]) -> None:
    """Print the counts of a layer, bytes in MB."""
    table = framed(f"Layer: {layer['name']}")
    for heading in ("", "Value", "Unit"):
        table.add_column(heading, justify="right" if heading == "Value" else "left")
    for name, value in layer.items():
        if name.endswith("_bytes"):
            table.add_row(_words(name.removesuffix("_bytes")), f"{value / 2**20:,.2f}", "MB")
        elif name == "held_ms":
            table.add_row("Held", f"{value:,.1f}", "ms")
        elif name != "name":
            table.add_row(_words(name), f"{value:,}", "")
    console.print(table)


def show_compared_results(console: Console, results: Sequence[Result]) -> None:
    """Print devices beside each other, each against the first."""
    show_provenance(console, results)
    console.print()
    table = framed("Devices compared; change of the mean response against the first device")
    headings = (
        ("Trace", ""),
        ("Device", ""),
        ("Parallelism", ""),
        ("Mean", "ms"),
        ("Change", "%"),
        ("p99", "ms"),
        ("Service", "ms"),
        ("Space util.", ""),
        ("WAF", ""),
        ("Erases", ""),
    )
    for label, unit in headings:
        left = label in ("Trace", "Device", "Parallelism")
        table.add_column(f"{label}\n{unit}", justify="left" if left else "right")
    first: dict[str, float] = {}
    for result in results:
        base = first.setdefault(result["trace"], result["response.mean_response_ms"])
        mean = result["response.mean_response_ms"]
        table.add_row(
            Text(result["trace"]),
            Text(result["device"] + (" (stopped)" if result["run.stopped"] else "")),
            result["configuration.parallelism"],
            f"{mean:,.3f}",
            f"{100 * (mean / base - 1):+.1f}" if base else "–",
            f"{result['response.p99_ms']:,.3f}",
            f"{result['service.mean_service_ms']:,.3f}",
            f"{result['space.space_utilisation']:.4f}",
            f"{result['write_amplification.waf']:.3f}",
            f"{result['flash.block_erases']:,}",
        )
    console.print(table)
    for line in utilisation_gains(results):
        console.print(Text(line), soft_wrap=True)
    for result in results:
        if result["run.stopped"]:
            console.print(
                Text(
                    f"{result['trace']} on {result['device']} ended early: {result['run.stopped']}", "yellow"
                ),
                soft_wrap=True,
            )
