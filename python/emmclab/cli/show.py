"""Profiles on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.columns import Columns
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from emmclab.cli.bars import bar, spark
from emmclab.fields import (
    DEVICE_FIELDS,
    JUMP_FIELDS,
    KEY_FIELDS,
    REISSUE_FIELDS,
    SIZE_FIELDS,
    TABLES,
    Field,
    jump_cells,
)
from emmclab.notes import notes
from emmclab.profile import Profile, ledger_line
from emmclab.published import published_row

#: Figures shown on the terminal: field, title, count.
_DISTRIBUTIONS = (
    ("size_distribution", "Request sizes"),
    ("response_distribution", "Response times"),
    ("inter_arrival_distribution", "Inter-arrival times"),
)
#: Jumps of one trace on the terminal; the page and the JSON have all.
_JUMPS = 10
_MARKS = {"yes": Text("yes", "green"), "no": Text("no", "yellow"), "unknown": Text("?", "dim")}


def show_each(console: Console, profiles: Sequence[Profile]) -> None:
    """Print the tables for all traces, then each trace by itself."""
    _provenance(console, profiles)
    _tables(console, profiles)
    _devices(console, profiles)
    _clock(console, profiles)
    _reissues(console, profiles)
    for profile in profiles:
        console.print()
        console.print(Text(profile.name, "bold"))
        _operations(console, profile)
        shown = [_distribution(profile, *figure) for figure in _DISTRIBUTIONS]
        console.print(Columns([table for table in shown if table is not None], padding=(0, 3)))
        _notes(console, profile)
        _findings(console, profile)


def show_compared(console: Console, profiles: Sequence[Profile]) -> None:
    """Print only what stands side by side: tables, distributions, and which trace shows which finding."""
    _provenance(console, profiles)
    _tables(console, profiles)
    _devices(console, profiles)
    _clock(console, profiles)
    _reissues(console, profiles)
    console.print()
    _sparks(console, profiles)
    console.print()
    table = framed("Findings: does the trace show it?")
    table.add_column("Application")
    for finding in profiles[0].findings:
        table.add_column(_short(finding))
    for profile in profiles:
        table.add_row(Text(profile.name), *(_MARKS[finding["shown"]] for finding in profile.findings))
    console.print(table)
    console.print()
    for finding in profiles[0].findings:
        console.print(Text.assemble((f"{_short(finding)}  ", "bold"), _title(finding)))


def _provenance(console: Console, profiles: Sequence[Profile]) -> None:
    for profile in profiles:
        header = profile["header"]
        console.print(Text.assemble((profile.name, "bold"), f"  {header['source']}, {header['format']}"))
        console.print(Text(f"  ledger: {ledger_line(profile['ledger'])}"), soft_wrap=True)


def _tables(console: Console, profiles: Sequence[Profile]) -> None:
    for title, fields in TABLES:
        table = framed(title)
        table.add_column("Application")
        for field in fields:
            table.add_column(
                field.label.replace(" ", "\n", 1) + (f"\n{field.unit}" if field.unit else ""), justify="right"
            )
        for profile in profiles:
            table.add_row(Text(profile.name), *(field.text(profile[field.name]) for field in fields))
            if published := published_row(profile.name):
                row = (as_printed(field, published[field.name]) for field in fields)
                if fields is SIZE_FIELDS:
                    table.caption = "published means are rounded down to a multiple of 0.5 KB"
                    table.caption_justify = "left"
                table.add_row(Text("  published"), *row, style="dim")
        console.print()
        console.print(table)


def _clock(console: Console, profiles: Sequence[Profile]) -> None:
    """Print the jumps of clocks, and the figures that they distort; nothing where there are none."""
    jumping = [profile for profile in profiles if profile.clock_jumps]
    if not jumping:
        return
    table = framed("Clock jumps or pauses of the recording")
    table.add_column("Application")
    for field in JUMP_FIELDS:
        left = field.name in ("direction", "mended")
        table.add_column(field.heading.replace(", ", "\n"), justify="left" if left else "right")
    for profile in jumping:
        jumps = profile.clock_jumps
        for jump in jumps[:_JUMPS]:
            table.add_row(Text(profile.name), *jump_cells(jump))
        if len(jumps) > _JUMPS:
            table.add_row(Text(profile.name), f"and {len(jumps) - _JUMPS} more", style="dim")
    console.print()
    console.print(table)
    table = framed("Key figures with and without the jumps")
    table.add_column("Application")
    for field in KEY_FIELDS:
        table.add_column(field.heading.replace(", ", "\n"), justify="right")
    for profile in jumping:
        if (without := profile["key_figures_without_jumps"]) is not None:
            figures = profile["key_figures"]
            table.add_row(Text(profile.name), *(field.text(figures[field.name]) for field in KEY_FIELDS))
            cells = (field.text(without[field.name]) for field in KEY_FIELDS)
            table.add_row(Text("  without the jumps"), *cells)
    if table.row_count:
        table.caption = "`--mend-clock` takes the jumps out of all figures"
        table.caption_justify = "left"
        console.print()
        console.print(table)


def _devices(console: Console, profiles: Sequence[Profile]) -> None:
    """Print the devices of traces that hold several, whose addresses are not of one space."""
    table = framed("Devices of the trace")
    for heading in ("Application", "Device"):
        table.add_column(heading)
    for field in DEVICE_FIELDS:
        table.add_column(field.heading.replace(", ", "\n"), justify="right")
    for profile in profiles:
        if len(profile.devices) > 1:
            for row in profile.devices:
                cells = (field.text(row[field.name]) for field in DEVICE_FIELDS)
                table.add_row(Text(profile.name), Text(row["device"]), *cells)
    if table.row_count:
        table.caption = "Figures are of all devices together; `--only device=NAME` takes one"
        table.caption_justify = "left"
        console.print()
        console.print(table)


def _reissues(console: Console, profiles: Sequence[Profile]) -> None:
    """Print the figures that re-issues change, with and without; nothing where there are none."""
    table = framed("Figures with and without suspected re-issues")
    table.add_column("Application")
    for field in REISSUE_FIELDS:
        table.add_column(field.heading.replace(", ", "\n"), justify="right")
    for profile in profiles:
        if (found := profile.reissues) and (without := found["figures_without"]):
            for name, figures in ((profile.name, found["figures"]), ("  without re-issues", without)):
                table.add_row(Text(name), *(field.text(figures[field.name]) for field in REISSUE_FIELDS))
    if table.row_count:
        table.caption = "`--drop-reissued` takes them out of all figures"
        table.caption_justify = "left"
        console.print()
        console.print(table)


def as_printed(field: Field, value: float) -> str:
    """Print a published figure without digits that the paper does not have."""
    return f"{value:,.{field.digits}f}".rstrip("0").rstrip(".") if field.digits else field.text(value)


def _operations(console: Console, profile: Profile) -> None:
    table = framed("By operation")
    for heading in ("Operation", "Requests", "Data\nKB", "Mean\nKB"):
        table.add_column(heading, justify="left" if heading == "Operation" else "right")
    points = ("mean", "p50", "p90", "p99", "p999", "p9999", "max")
    timed = any(row["response_ms"] for row in profile["by_operation"])
    if timed:
        for point in points:
            table.add_column(f"{_percentile(point)}\nms", justify="right")
    for row in profile["by_operation"]:
        times = row["response_ms"] or {}
        mean = "–" if row["mean_kb"] is None else f"{row['mean_kb']:,.1f}"
        cells = (
            ["–" if times.get(point) is None else f"{times[point]:,.2f}" for point in points] if timed else []
        )
        table.add_row(row["op"], f"{row['requests']:,}", f"{row['data_kb']:,.0f}", mean, *cells)
    if timed:
        table.caption = "mean and percentiles of the response time (complete - arrival)"
        table.caption_justify = "left"
    console.print(table)


def _percentile(point: str) -> str:
    """Write `p9999` as `p99.99`."""
    return f"{point[:3]}.{point[3:]}" if len(point) > 3 and point.startswith("p") else point


def _distribution(profile: Profile, figure: str, title: str) -> Table | None:
    rows = _rows_of_all(profile, figure)
    if not rows:
        return None
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False
    )
    table.add_column(justify="right")
    table.add_column(width=12)
    table.add_column(justify="right")
    longest = max(row["pct"] for row in rows)
    for row in rows:
        table.add_row(Text(row["bin"]), Text(bar(row["pct"], longest, 12), "cyan"), f"{row['pct']:.1f} %")
    return table


def _sparks(console: Console, profiles: Sequence[Profile]) -> None:
    table = framed("Distributions, share of requests from small to large")
    table.add_column("Application")
    for _, title in _DISTRIBUTIONS:
        table.add_column(title)
    for profile in profiles:
        shares = [[row["pct"] for row in _rows_of_all(profile, figure)] for figure, _ in _DISTRIBUTIONS]
        table.add_row(Text(profile.name), *(Text(spark(share) or "–", "cyan") for share in shares))
    ranges = []
    for figure, title in _DISTRIBUTIONS:
        rows = next((rows for profile in profiles if (rows := _rows_of_all(profile, figure))), [])
        if rows:
            ranges.append(f"{title.lower()}: {rows[0]['bin']} to {rows[-1]['bin']}")
    table.caption, table.caption_justify = "; ".join(ranges), "left"
    console.print(table)


def _rows_of_all(profile: Profile, figure: str) -> list[dict[str, Any]]:
    """Give the rows for reads and writes together."""
    return [row for row in profile.figure(figure) if row.get("op", "all") == "all"]


def _notes(console: Console, profile: Profile) -> None:
    """Print statistics beyond the tables of the paper, one line each."""
    console.print()
    for name, text in notes(profile):
        console.print(Text.assemble((f"{name}: ", "bold"), text))


def _findings(console: Console, profile: Profile) -> None:
    console.print()
    console.print(Text("Findings", "bold"))
    for finding in profile.findings:
        value = "" if finding["measured"] is None else f" ({finding['measured']:,.2f} {finding['unit']})"
        console.print(Text.assemble(_MARKS[finding["shown"]], f"  {_title(finding)}{value}"))
        console.print(Padding(Text(finding["meaning"], "dim"), (0, 0, 0, 5)))


def _short(finding: dict[str, Any]) -> str:
    return f"{finding['kind'][0].upper()}{finding['number']}"


def _title(finding: dict[str, Any]) -> str:
    return f"{finding['kind'].capitalize()} {finding['number']}: {finding['title']}"


def framed(title: str = "") -> Table:
    """Make an empty table, in the look that all commands share."""
    return Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
