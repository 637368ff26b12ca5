"""Prints profiles of traces."""

from collections.abc import Iterator, Sequence

from rich.columns import Columns
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from emmclab.cli.tables import framed, show_table, table_of
from emmclab.core_types import Finding, RecordedActivity
from emmclab.runtime.document import Row, bar, difference_text, spark
from emmclab.traces.activity import activity_tables
from emmclab.traces.fsync_text import Fsync
from emmclab.traces.journal import Journal
from emmclab.traces.profile import FieldDifference, Profile
from emmclab.traces.profile_fields import SIZE_FIELDS, TABLES, Field, ledger_line
from emmclab.traces.profile_notes import (
    clock_tables,
    devices_table,
    doubts,
    notes,
    operations_table,
    recording_note,
    reissues_table,
)
from emmclab.traces.profile_options import percentile_label
from emmclab.traces.published import published_row

#: Distributions that are printed: field of the profile, and title.
_DISTRIBUTIONS = (
    ("size_distribution", "Request sizes"),
    ("response_distribution", "Response times"),
    ("inter_arrival_distribution", "Inter-arrival times"),
)
#: Maximum number of clock jumps per trace on the terminal; the page and the JSON contain all.
_JUMPS = 10
_MARKS = {"yes": Text("yes", "green"), "no": Text("no", "yellow"), "unknown": Text("?", "dim")}


#: Maximum number of processes that a table on the terminal lists.
_PROCESSES = 12


def show_each(console: Console, profiles: Sequence[Profile]) -> None:
    """Print the tables of all traces, then the details of each trace."""
    _provenance(console, profiles)
    _tables(console, profiles)
    _sparse_tables(console, profiles)
    for profile in profiles:
        console.print()
        console.print(Text(profile.name, "bold"))
        _operations(console, profile)
        tables = [_distribution(profile, *figure) for figure in _DISTRIBUTIONS]
        console.print(Columns([table for table in tables if table is not None], padding=(0, 3)))
        _processes(console, profile)
        if profile.journal is not None:
            console.print()
            show_journal(console, profile.journal)
        _notes(console, profile)
        _findings(console, profile)


def show_compared(console: Console, profiles: Sequence[Profile]) -> None:
    """Print a comparison of traces: tables, distributions, and the findings for each trace."""
    _provenance(console, profiles)
    _tables(console, profiles)
    _sparse_tables(console, profiles)
    console.print()
    _sparks(console, profiles)
    console.print()
    headings = map(_short, profiles[0].findings)
    table = framed("Findings: does the trace show it?", "Application", *headings, words=1 + len(profiles[0].findings))
    for profile in profiles:
        table.add_row(Text(profile.name), *(_MARKS[finding.shown] for finding in profile.findings))
    console.print(table)
    console.print()
    for finding in profiles[0].findings:
        title = f"{finding.kind.capitalize()} {finding.number}: {finding.title}"
        console.print(Text.assemble((f"{_short(finding)}  ", "bold"), title))


def _provenance(console: Console, profiles: Sequence[Profile]) -> None:
    for profile in profiles:
        header = profile["header"]
        origin = ", ".join(filter(None, (header["source"], header["format"])))
        console.print(Text.assemble((profile.name, "bold"), f"  {origin}"))
        console.print(Text(f"  ledger: {ledger_line(profile['ledger'])}"), soft_wrap=True)
        if note := recording_note(header):
            console.print(Text(f"  note: {note}"), soft_wrap=True)
        for doubt in doubts(profile["ledger"]):
            console.print(Text(f"  warning: {doubt}", "yellow"), soft_wrap=True)


def _tables(console: Console, profiles: Sequence[Profile]) -> None:
    """Print Tables III and IV of IISWC 2015, transposed if they are too wide."""
    for title, fields in TABLES:
        units = (f"\n{field.unit}" if field.unit else "" for field in fields)
        headings = (field.label.replace(" ", "\n", 1) + unit for field, unit in zip(fields, units, strict=True))
        table = framed(title, "Application", *headings)
        rows = [row for profile in profiles for row in _rows_of(profile, fields)]
        for name, cells, style in rows:
            table.add_row(Text(name), *cells, style=style)
        tables = [table] if _fits(console, table) else list(_transposed(console, title, fields, rows))
        if fields is SIZE_FIELDS and len(rows) > len(profiles):
            tables[-1].caption = "published means are rounded down to a multiple of 0.5 KB"
            tables[-1].caption_justify = "left"
        for part in tables:
            console.print()
            console.print(part)


#: A row of a table: the name of the row, its cells and their style.
_Row = tuple[str, list[str], str | None]


def _rows_of(profile: Profile, fields: Sequence[Field]) -> Iterator[_Row]:
    """Yield a row with the figures of a profile, and a row with the published figures, if any."""
    yield profile.name, [field.text(profile[field.name]) for field in fields], None
    if published := published_row(profile.name):
        yield "  published", [as_printed(field, published[field.name]) for field in fields], "dim"


def _fits(console: Console, table: Table) -> bool:
    """Return whether a table is at most as wide as the console."""
    return Measurement.get(console, console.options.update(width=10_000), table).maximum <= console.width


def _transposed(console: Console, title: str, fields: Sequence[Field], rows: Sequence[_Row]) -> Iterator[Table]:
    """Yield tables with one row per field, and as many columns of traces as fit into the console."""
    start = 0
    while start < len(rows):
        widest = None
        for end in range(start + 1, len(rows) + 1):
            table = framed(title, "")
            for name, _, style in rows[start:end]:
                table.add_column(Text(name.strip()), justify="right", style=style or "")
            for number, field in enumerate(fields):
                table.add_row(field.heading, *(cells[number] for _, cells, _ in rows[start:end]))
            if widest is not None and not _fits(console, table):
                break
            widest, following = table, end
        assert widest is not None  # noqa: S101 - a table of one column is always accepted
        yield widest
        start = following


def _sparse_tables(console: Console, profiles: Sequence[Profile]) -> None:
    """Print the tables that may be empty: devices, clock jumps, re-issues."""
    for table in (devices_table(profiles), *clock_tables(profiles, _JUMPS), reissues_table(profiles)):
        if table.rows:
            show_table(console, table)


def as_printed(field: Field, value: float) -> str:
    """Format a published figure with the digits that the paper prints."""
    return f"{value:,.{field.digits}f}".rstrip("0").rstrip(".") if field.digits else field.text(value)


def _operations(console: Console, profile: Profile) -> None:
    """Print the table of operations, and their service times if percentiles are requested."""
    console.print(table_of(operations_table([profile])))
    rows = profile["by_operation"]
    if rows[0].get("percentiles") and any(row["service_ms"] for row in rows):
        show_table(console, operations_table([profile], is_service=True))


def _distribution(profile: Profile, figure: str, title: str) -> Table | None:
    rows = _rows_of_all(profile, figure)
    if not rows:
        return None
    table = Table(title=title, title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False)
    table.add_column(justify="right")
    table.add_column(width=12)
    table.add_column(justify="right")
    longest = max(row["pct"] for row in rows)
    for row in rows:
        table.add_row(Text(row["bin"]), Text(bar(row["pct"], longest, 12), "cyan"), f"{row['pct']:.1f} %")
    return table


def _processes(console: Console, profile: Profile) -> None:
    """Print the processes with the most requests, if processes are recorded."""
    rows = profile.figure("process_share")
    if not rows:
        return
    chosen = [entry["percentile"] for entry in rows[0].get("percentiles", ())]
    points = ("mean", *([percentile_label(percent) for percent in chosen] or ("p50", "p99")))
    headings = ("Process", "Pid", "Reads", "Writes", "Read\nKB", "Written\nKB", "Data\n%")
    table = framed("By process", *headings, *(f"{point}\nms" for point in points))
    for row in rows[:_PROCESSES]:
        requested = [entry["response_ms"] for entry in row.get("percentiles", ())]
        times = (row["response_mean_ms"], *(requested or (row["response_p50_ms"], row["response_p99_ms"])))
        table.add_row(
            Text(row["process"]),
            "–" if row["pid"] is None else str(row["pid"]),
            f"{row['reads']:,}",
            f"{row['writes']:,}",
            f"{row['read_kb']:,.0f}",
            f"{row['write_kb']:,.0f}",
            f"{row['data_pct']:.1f}",
            *("–" if time is None else f"{time:,.2f}" for time in times),
        )
    if len(rows) > _PROCESSES:
        table.caption = f"the {_PROCESSES} with the most requests of {len(rows)}; `--json` prints more"
        table.caption_justify = "left"
    console.print()
    console.print(table)


def _sparks(console: Console, profiles: Sequence[Profile]) -> None:
    titles = [title for _, title in _DISTRIBUTIONS]
    table = framed("Distributions, share of requests from small to large", "Application", *titles, text=titles)
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


def _rows_of_all(profile: Profile, figure: str) -> list[Row]:
    return [row for row in profile.figure(figure) if row.get("op", "all") == "all"]


def _notes(console: Console, profile: Profile) -> None:
    """Print statistics that the tables of the paper do not contain, one line each."""
    console.print()
    for name, text in notes(profile):
        if name == "Recording" and recording_note(profile["header"]):
            # The note on the recording is skipped here, because it is printed with the provenance.
            continue
        console.print(Text.assemble((f"{name}: ", "bold"), text))


def _findings(console: Console, profile: Profile) -> None:
    console.print()
    console.print(Text("Findings: does the trace show what the paper found?", "bold"))
    for finding in profile.findings:
        value = "" if finding.measured is None else f" ({finding.measured:,.2f} {finding.unit})"
        kind = f"{finding.kind.capitalize()} {finding.number}"
        claim = Text(f'  {kind}, "{finding.title}"{value}', "dim")
        console.print(Text.assemble(_MARKS[finding.shown], claim))
        console.print(Padding(Text(finding.meaning), (0, 0, 0, 5)))


def _short(finding: Finding) -> str:
    return f"{finding.kind[0].upper()}{finding.number}"


def show_fsync(console: Console, profiles: Sequence[Profile]) -> None:
    """Print, for each trace, the parts of the time that processes spent waiting for durability (fsync)."""
    _provenance(console, profiles)
    for profile in profiles:
        if profile.fsync is not None:
            console.print()
            show_journal(console, profile.fsync)


def show_journal(console: Console, report: Journal | Fsync) -> None:
    """Print the cost of journaling, or of waiting for durability, beginning with a summary sentence."""
    console.print(Text(report.headline, "bold"), soft_wrap=True)
    for part in report.tables():
        show_table(console, part)
    for text in report.remarks():
        console.print(Text(text, "dim"), soft_wrap=True)


def show_differences(console: Console, profiles: Sequence[Profile], rows: Sequence[FieldDifference]) -> None:
    """Print the fields of Tables III and IV of two profiles, with the differences."""
    fields = {field.name: field for _, fields in TABLES for field in fields}
    table = framed("Profiles compared", "", *(Text(profile.name) for profile in profiles), "Difference")
    for row in rows:
        field = fields[row["field"]]
        table.add_row(field.heading, field.text(row["first"]), field.text(row["second"]), difference_text(row, 2))
    console.print(table)


def show_activity(console: Console, activity: RecordedActivity) -> None:
    """Print recorded activity other than requests, such as journal commits."""
    for part in activity_tables(RecordedActivity({**activity, "journals": []})):
        show_table(console, part)
    # Journals are printed as lines instead of a table, because there is usually only one.
    for row in activity.journals:
        parts = f"{row.commits:,} commits, {row.blocks:,} blocks, {row.handles:,} handles"
        console.print(f"journal of {row.device}: {parts}", markup=False)
