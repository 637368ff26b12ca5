"""A served device at work, on the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from emmclab.cli.show import framed
from emmclab.devices.result_text import refusals_text
from emmclab.runtime.quantity import duration, size


def _time(us: float | None) -> str:
    return "–" if us is None else duration(us / 1e6)


def live_view(live: Any, figures: dict[str, Any], took_s: float) -> Group:
    """Draw a device's figures (`LiveDevice.stats`) over the last `took_s` seconds of the host."""
    table = framed()
    heads = ("requests/s", "MB/s", "p50", "p99", "open", "not durable", "WAF", "free blocks", "erases")
    for head in heads:
        table.add_column(head, justify="right")
    table.add_row(
        f"{figures['interval_requests'] / took_s:,.0f}",
        f"{figures['interval_bytes'] / took_s / 2**20:,.1f}",
        _time(figures["response_p50_us"]),
        _time(figures["response_p99_us"]),
        f"{figures['open']}",
        size(figures["volatile_bytes"]),
        "–" if figures["waf"] is None else f"{figures['waf']:.2f}",
        f"{figures['free_blocks']:,}",
        f"{figures['erases']:,}",
    )
    power = "" if figures["powered"] else "  power is off"
    lines: list[RenderableType] = [
        Text.assemble(
            (live.device.name, "bold"), f"  {', '.join(live.paths)}  clock {figures['clock']}", (power, "red")
        ),
        table,
        Text(
            f"{figures['requests']:,} requests, {size(figures['bytes_read'])} read, "
            f"{size(figures['bytes_written'])} written, {figures['failed']:,} failed, "
            f"{figures['cuts']:,} cuts; {duration(figures['simulated_s'])} of simulated time; Ctrl-C ends it"
        ),
    ]
    if figures["refused"]:
        lines.append(Text(f"zones do not allow {refusals_text(figures['refused'])}", "yellow"))
    if figures["image_error"]:
        lines.append(Text(f"the image takes no data: {figures['image_error']}", "yellow"))
    return Group(*lines)
