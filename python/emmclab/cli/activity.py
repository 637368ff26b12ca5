"""The activity of a trace beside its requests: driver commands, waits for durability, journals."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from emmclab.cli.show import framed


def show_activity(console: Console, activity: dict[str, Any]) -> None:
    """Print the activity that was recorded beside the requests."""
    for host in activity.get("hosts", []):
        table = framed(f"Commands of {escape(host['host'])}, busy for {host['busy_ns'] / 1e6:,.1f} ms")
        for name in ("", "count", "KB", "packed", "reliable", "retries", "errors", "mean ms", "longest ms"):
            table.add_column(name, justify="right" if name else "left")
        for row in host["commands"]:
            counts = (f"{row[name]:,}" for name in ("packed", "reliable", "retries", "errors"))
            times = (row["time_ns"] / row["count"], row["longest_ns"])
            table.add_row(
                row["kind"],
                f"{row['count']:,}",
                f"{row['bytes'] / 1024:,.0f}",
                *counts,
                *(f"{time / 1e6:,.3f}" for time in times),
            )
        console.print()
        console.print(table)
    if syncs := activity.get("syncs"):
        table = framed("Waits for durability (fsync)")
        for name in ("process", "file system", "calls", "errors", "mean ms", "longest ms"):
            table.add_column(name, justify="left" if name in ("process", "file system") else "right")
        for row in syncs:
            table.add_row(
                Text(row["process"]),
                row["file_system"],
                f"{row['calls']:,}",
                f"{row['errors']:,}",
                f"{row['time_ns'] / row['calls'] / 1e6:,.3f}",
                f"{row['longest_ns'] / 1e6:,.3f}",
            )
        console.print()
        console.print(table)
    for row in activity.get("journals", []):
        parts = ", ".join(f"{row[name]:,} {name}" for name in ("commits", "blocks", "handles"))
        console.print(f"journal of {row['device']}: {parts}", markup=False)
