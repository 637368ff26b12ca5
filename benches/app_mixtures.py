"""Requests of the applications beside those that IISWC 2015 publishes of the same application, on a device.

    .venv/bin/python benches/app_mixtures.py [DEVICE]

Printed for each: share of writes, mean sizes of reads and writes in KB, and requests for each thing that the
user does (a view, a message), which lasts so long in the published trace as
the table says.
"""

from __future__ import annotations

import sys

from emmclab.apps import run_application
from emmclab.published import published_row

#: Application, things that its user does, the published one, and the seconds of one thing there.
PAIRS = (
    ("webbench", 50, "WebBrowsing", 60),
    ("facebook", 20, "Facebook", 10),
    ("email", 25, "Email", 10),
    ("maps", 30, "GoogleMaps", 5),
    ("pulse", 200, "Twitter", 5),
    ("appinstall", 10, "Installing", 60),
)


def main() -> None:
    """Print a line for each application and each published one."""
    device = sys.argv[1] if len(sys.argv) > 1 else "nexus5"
    headings = ("application", "writes %", "read KB", "write KB", "reads", "writes")
    print(" ".join(f"{heading:>11}" for heading in headings), "per thing")
    for name, things, other, seconds in PAIRS:
        groups = run_application(name, device)["app"]["requests"]["all"]
        read, write = groups["read"], groups["write"]
        line(
            name,
            100 * write["requests"] / (read["requests"] + write["requests"]),
            *(group["bytes"] / 1024 / max(group["requests"], 1) for group in (read, write)),
            *(group["requests"] / things for group in (read, write)),
        )
        row = published_row(other) or {}
        share, rate = row["write_requests_pct"], row["requests"] / row["duration_s"] * seconds
        line(
            other,
            share,
            row["mean_read_kb"],
            row["mean_write_kb"],
            rate * (1 - share / 100),
            rate * share / 100,
        )


def line(name: str, *figures: float) -> None:
    """Print a line of the table."""
    share, read, write, reads, writes = figures
    print(f"{name:>11}", " ".join(f"{figure:11.1f}" for figure in (share, read, write, reads, writes)))


if __name__ == "__main__":
    main()
