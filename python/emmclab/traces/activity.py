"""Tables of the activity in a recording besides its requests: commands, waits for durability, journals."""

from __future__ import annotations

from typing import Literal

from emmclab.runtime.text_table import TextTable
from emmclab.traces.activity_types import Activity

_COMMAND_COUNTS: tuple[Literal["packed", "reliable", "retries", "errors"], ...] = (
    "packed",
    "reliable",
    "retries",
    "errors",
)


def activity_tables(activity: Activity) -> list[TextTable]:
    """Return the tables of an activity: commands of each host, waits for durability, journals.

    >>> activity_tables({"journals": [{"device": "vda", "commits": 3, "blocks": 40, "handles": 9}]})[0].rows
    [['vda', '3', '40', '9']]
    """
    tables = []
    for host in activity.get("hosts", []):
        rows = [
            [
                row["kind"],
                f"{row['count']:,}",
                f"{row['bytes'] / 1024:,.0f}",
                *(f"{row[name]:,}" for name in _COMMAND_COUNTS),
                f"{row['time_ns'] / row['count'] / 1e6:,.3f}",
                f"{row['longest_ns'] / 1e6:,.3f}",
            ]
            for row in host["commands"]
        ]
        title = f"Commands of {host['host']}, busy for {host['busy_ns'] / 1e6:,.1f} ms"
        headings = ["command", "count", "KB", *_COMMAND_COUNTS, "mean ms", "longest ms"]
        tables.append(TextTable(title, headings, rows, 1))
    if syncs := activity.get("syncs"):
        rows = [
            [
                row["process"],
                row["file_system"],
                f"{row['calls']:,}",
                f"{row['errors']:,}",
                f"{row['time_ns'] / 1e6:,.1f}",
                f"{row['time_ns'] / row['calls'] / 1e6:,.3f}",
                f"{row['longest_ns'] / 1e6:,.3f}",
            ]
            for row in sorted(syncs, key=lambda row: -row["time_ns"])
        ]
        headings = ["process", "file system", "calls", "errors", "all ms", "mean ms", "longest ms"]
        tables.append(TextTable("Waits for durability (fsync)", headings, rows, 2))
    if journals := activity.get("journals"):
        counts: tuple[Literal["commits", "blocks", "handles"], ...] = ("commits", "blocks", "handles")
        rows = [[row["device"], *(f"{row[name]:,}" for name in counts)] for row in journals]
        tables.append(TextTable("Commits of journals", ["device", *counts], rows, 1))
    return tables
