"""Notes and tables of a profile in addition to the tables of the IISWC 2015 paper."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from emmclab.core_types import ReissueSummary
from emmclab.runtime.document import Cells, Column, Number, TextTable, duration, number_cell, size
from emmclab.runtime.lists import joined
from emmclab.traces.profile import Estimate, Profile
from emmclab.traces.profile_fields import DEVICE_FIELDS, JUMP_FIELDS, KEY_FIELDS, REISSUE_FIELDS, Field, jump_cells
from emmclab.traces.profile_options import percentile_label
from emmclab.traces.recorded_registers import recorded_devices

#: Fields of a clock jump whose values are texts, not numbers.
_WORDS = ("direction", "mended")


def clock_tables(profiles: Sequence[Profile], most: int | None = None) -> Iterator[TextTable]:
    """Yield two tables: the clock jumps, and the key figures without them.

    At most `most` jumps are listed for each trace; None lists all.
    """
    rows: list[Cells] = []
    for profile in profiles:
        jumps = profile.clock_jumps
        for jump in jumps[:most]:
            values: Mapping[str, Any] = {**jump}
            cells = zip(JUMP_FIELDS, jump_cells(jump), strict=True)
            rows.append(
                [
                    profile.name,
                    *(text if field.name in _WORDS else Number(text, values[field.name]) for field, text in cells),
                ]
            )
        if most is not None and len(jumps) > most:
            left_out = f"and {len(jumps) - most} more"
            rows.append([profile.name, left_out, *([""] * (len(JUMP_FIELDS) - 1))])
    if not rows:
        return
    columns = [jump.column._replace(is_text=jump.name in _WORDS) for jump in JUMP_FIELDS]
    headings: list[str | Column] = ["Application", *columns]
    yield TextTable("Clock jumps or pauses of the recording", headings, rows, style="sortable")
    caption = "`--mend-clock` removes the jumps from all figures"
    yield _table("Key figures with and without the jumps", KEY_FIELDS, _without_jumps(profiles), caption)


def devices_table(profiles: Sequence[Profile]) -> TextTable:
    """Return the table of the devices of traces with several devices, which have separate address spaces."""
    rows = [
        [profile.name, row["device"], *(field.text(row[field.name]) for field in DEVICE_FIELDS)]
        for profile in profiles
        if len(profile.devices) > 1
        for row in profile.devices
    ]
    headings: list[str | Column] = ["Application", "Device", *(field.column for field in DEVICE_FIELDS)]
    caption = "Figures are for all devices together; `--only device=NAME` selects one"
    return TextTable("Devices of the trace", headings, rows, words=2, caption=caption)


def reissues_table(profiles: Sequence[Profile]) -> TextTable:
    """Return the table of the figures with and without suspected re-issues."""
    rows = (
        row
        for profile in profiles
        if (reissues := profile.reissues) and (without := reissues.figures_without)
        for row in ((profile.name, reissues.figures), ("without re-issues", without))
    )
    caption = "`--drop-reissued` removes them from all figures"
    return _table("Figures with and without suspected re-issues", REISSUE_FIELDS, rows, caption)


#: Statistics of times that a table contains if no percentiles were requested, with their labels.
_STATISTICS = {name: name for name in ("mean", "p50", "p90", "p99")} | {
    "p999": "p99.9",
    "p9999": "p99.99",
    "max": "max",
}


def operations_table(profiles: Sequence[Profile], *, is_service: bool = False) -> TextTable:
    """Return requests, data and response times of each operation; if `is_service` is set, their service times."""
    times, several = "service_ms" if is_service else "response_ms", len(profiles) > 1
    operations = [(profile.name, row) for profile in profiles for row in profile["by_operation"]]
    requested = [percentile_label(row["percentile"]) for row in operations[0][1].get("percentiles", ())]
    labels = {"mean": "mean", **{label: label for label in requested}, "max": "max"} if requested else _STATISTICS
    is_timed = any(row[times] for _, row in operations)
    rows: list[Cells] = []
    for name, row in operations:
        of_row = {percentile_label(entry["percentile"]): entry[times] for entry in row.get("percentiles", ())}
        statistics = {**(row[times] or {}), **of_row}
        amounts = [] if is_service else [number_cell(row["data_kb"]), number_cell(row["mean_kb"], 1)]
        cells = [number_cell(statistics.get(label), 2) for label in labels if is_timed]
        rows.append([*([name] if several else []), row["op"], number_cell(row["requests"]), *amounts, *cells])
    headings: list[str | Column] = [*(["Application"] if several else []), "Operation", "Requests"]
    headings += [] if is_service else [Column("Data", "KB"), Column("Mean", "KB")]
    headings += [Column(label, "ms") for label in labels.values() if is_timed]
    meaning = "mean and percentiles of the response time (complete - arrival); all: reads and writes"
    caption = meaning if is_timed and not is_service else ""
    title = "Service time (complete - start)" if is_service else "By operation"
    return TextTable(title, headings, rows, 1 + several, "sortable", caption)


#: A row of a table: its label, and its figures by field.
_Figures = tuple[str, Any]


def _without_jumps(profiles: Sequence[Profile]) -> Iterator[_Figures]:
    for profile in profiles:
        if (without := profile.get("key_figures_without_jumps")) is not None:
            yield profile.name, profile["key_figures"]
            yield "without the jumps", without


def _table(title: str, fields: Sequence[Field], figures: Iterator[_Figures], caption: str) -> TextTable:
    """Return a table with two rows per trace: all figures, and the figures without jumps or re-issues."""
    rows = [
        [f"  {name}" if number % 2 else name, *(field.text(values[field.name]) for field in fields)]
        for number, (name, values) in enumerate(figures)
    ]
    return TextTable(title, ["Application", *(field.column for field in fields)], rows, caption=caption)


def notes(profile: Profile) -> list[tuple[str, str]]:
    """Return notes on what the paper's tables lack: working set, hot pages, queue, idle time, power."""
    texts: list[tuple[str, str]] = []
    if (pages := profile["working_set"]) is not None:
        texts.append(
            (
                "Working set",
                f"{size(pages['unique_kb'] * 1024)} in unique 4 KB pages, "
                f"{size(pages['written_kb'] * 1024)} of them written",
            )
        )
    hot = [row for row in profile.figure("hot_pages") if row["op"] == "write"]
    if hot:
        shares = ", ".join(f"{row['share_pct']:.1f} % to the hottest {row['pages_pct']} %" for row in hot)
        texts.append(("Hot pages", f"of the page writes, {shares} of written pages"))
    if (queue := profile["queue"]) is not None:
        texts.append(
            (
                "Queue",
                f"{queue['mean_at_arrival']:.2f} unfinished requests at an arrival on average, "
                f"{queue['max_at_arrival']:,} at most; busy {queue['busy_pct']:.2f} % of the time",
            )
        )
    if (gc := profile["idle_gc"]) is not None:
        cost = gc["assumed"]
        moved = cost["pages_per_block"] * cost["valid_pct"] // 100
        texts.append(
            (
                "Idle time",
                f"{duration(gc['idle_s'])} ({gc['idle_pct']:.1f} %); {gc['blocks_that_fit']:,} collections of a block "
                f"({duration(gc['block_ms'] / 1e3)} each, assumed) fit into single gaps, "
                f"{gc['blocks_needed']:,} are needed for the bytes written. The assumed device is the 4PS of the "
                f"paper, not the one of the trace: {moved:,} of {cost['pages_per_block']:,} pages of "
                f"{cost['page_kb']} KB are moved one after another; devices that move pages in parallel are faster",
            )
        )
    if estimates := profile.get("estimates"):
        texts.append(("Parts", _parts(profile["parts"], estimates)))
    power = profile["power_saving"]
    if power["found"]:
        texts.append(
            (
                "Power saving",
                f"the device sleeps after an idle gap between {power['threshold_low_ms']:g} and "
                f"{power['threshold_high_ms']:g} ms; waking costs about {power['wake_up_ms']:.2f} ms "
                f"({power['wake_ups']:,} times, {power['longest_wake_up_ms']:.1f} ms at most)",
            )
        )
    if step := profile["header"].get("coarse_clock"):
        texts.append(
            (
                "Clock",
                f"steps of {step}, longer than a usual response: no-wait, queue depth, idle times and gaps "
                "between arrivals are unknown. Requests with the same stamp are in the order of the file",
            )
        )
    if missing := unrecorded(profile["header"].get("recorded")):
        texts.append(("Not recorded", f"{missing}: their counts are unknown"))
    texts += [("Device", device.line()) for device in recorded_devices(profile["header"], profile.name)]
    if note := profile["header"].get("note"):
        texts.append(("Recording", str(note)))
    if (reissues := profile.reissues) is not None and (reissues.reissued or reissues.dropped):
        texts.append(("Suspected re-issues", _reissues(reissues, profile["header"].get("reissue_window"))))
    return texts


#: Operations and flags that traces often lack: their names in the header of a trace, and their names in texts.
_KINDS = {
    "discard": "discards",
    "flush": "flushes",
    "sync": "synchronous requests",
    "fua": "FUA",
    "preflush": "preflushes",
    "meta": "metadata",
    "readahead": "read-ahead",
}


def unrecorded(recorded: str | None) -> str:
    """Return the operations and flags that a trace does not record; empty if it records all usual ones.

    >>> unrecorded("discard flush fua preflush"), unrecorded(None)
    ('synchronous requests, metadata and read-ahead', '')
    """
    if recorded is None:
        return ""
    return joined([words for name, words in _KINDS.items() if name not in recorded.split()])


def recording_note(header: Mapping[str, str | None]) -> str | None:
    """Return the header's note if another program recorded the trace; None for other traces.

    >>> recording_note({"format": "blktrace", "note": "the files of processors 1 are missing"})
    'the files of processors 1 are missing'
    >>> recording_note({"format": "record", "note": "loop1"})
    """
    from emmclab import _core

    is_foreign = any(entry["name"] == header.get("format") for entry in _core.formats())
    return header.get("note") if is_foreign else None


def doubts(ledger: Mapping[str, int | None]) -> list[str]:
    """Return reasons to doubt the figures of a trace, from the counts in its ledger; empty if there are none.

    >>> doubts({"lost": 431})
    ['431 events were lost while recording: requests are missing, so rates are too low and gaps too long']
    >>> doubts({"lost": 0})
    []
    """
    if not (lost := ledger.get("lost") or 0):
        return []
    events = "1 event was" if lost == 1 else f"{lost:,} events were"
    return [f"{events} lost while recording: requests are missing, so rates are too low and gaps too long"]


def _parts(parts: int, estimates: list[Estimate]) -> str:
    """Return a text that lists the figures that are estimates because the trace was profiled in parts."""
    causes = "; ".join(f"{row['figure']} ({row['why']}{_error(row['error_pct'])})" for row in estimates)
    return (
        f"{parts:,} parts were profiled separately. Estimates: {causes}. Counts, sizes, localities, "
        "response times and gaps between arrivals are exact"
    )


def _error(error_pct: float | None) -> str:
    return "" if error_pct is None else f": {error_pct:.2f} % of the touches"


def _reissues(reissues: ReissueSummary, window: str | None) -> str:
    """Describe suspected re-issues, and what they show about the device's link."""
    if not reissues.reissued:
        return f"{reissues.dropped:,} were dropped on reading"
    text = (
        f"{reissues.reissued:,} requests ({reissues.reissued_pct:.1f} %) are suspected re-issues of earlier "
        "requests; `--drop-reissued` drops them"
    )
    if window is not None:
        text += f". The window is {window.replace('-', ' to ')} after a first issue (`--reissue-window`)"
    if reissues.median_until_again_ms is not None:
        text += f". The median time from the first to the second issue is {reissues.median_until_again_ms:.1f} ms"
    if reissues.asleep_from_ms is not None:
        text += (
            f". After up to {reissues.awake_up_to_ms} ms without requests hardly any is issued twice, after "
            f"more than {reissues.asleep_from_ms} ms nearly all are: the link to the device falls asleep "
            "between these two times, and the driver then returns the next request"
        )
    return text
