"""The page of `emmclab profile`."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

from emmclab.core_types import ClockJumpRow
from emmclab.pages.assemble import Head, Notice, Provenance, Tile, amount, assemble, lost, tile, tile_of
from emmclab.pages.profile_figures import FIGURES
from emmclab.runtime.document import Cells, Charts, Heading, Note, Number, Part, Section, TextTable
from emmclab.runtime.files import write_atomically
from emmclab.traces.activity import activity_of, activity_tables
from emmclab.traces.fsync_text import Fsync
from emmclab.traces.inputs import ProvenanceFields
from emmclab.traces.journal import Journal
from emmclab.traces.profile import Profile
from emmclab.traces.profile_fields import RESPONSE_P99, TABLE_FIELDS, TABLES, Field, jumps_text, ledger_line
from emmclab.traces.profile_notes import clock_tables, devices_table, notes, operations_table, reissues_table
from emmclab.traces.published import published_cells, published_row

#: Fields for the summary of a trace: the mean response time or, if it is not recorded, the mean size.
_MEAN, _SIZE = TABLE_FIELDS["mean_response_ms"], TABLE_FIELDS["mean_size_kb"]
#: Maximum number of traces whose means are shown above the tables.
_MOST_TILES = 6


def render(profiles: Sequence[Profile], provenance: ProvenanceFields | None = None) -> str:
    """Return the HTML page for one or several traces; equal profiles produce equal bytes.

    `provenance` is the group of this name in command-line results.

    >>> import emmclab
    >>> page = render([emmclab.profile(emmclab.bundled()[0])])
    >>> "<html lang=" in page
    True
    """
    return assemble(
        FIGURES,
        {figure.name: figure.rows(profiles) for figure in FIGURES},
        [profile.name for profile in profiles],
        template="page.html.j2",
        title=_title(profiles),
        head=_head(profiles),
        provenance=Provenance(
            ledger_line(profiles[0]["ledger"])
            if len(profiles) == 1
            else f"{len(profiles)} traces: ledger, source and format of each",
            lost=lost(profile["ledger"] for profile in profiles),
            made=provenance or {},
        ),
        traces=[_trace(profile) for profile in profiles],
        findings=_findings(profiles),
        sections=_sections(profiles),
    )


def _sections(profiles: Sequence[Profile]) -> Iterator[Section]:
    several = len(profiles) > 1
    parts: list[Part] = []
    for title, fields in TABLES:
        table = _published_table(title, fields, profiles)
        parts += [Heading(title), table]
    clock = [table for table in clock_tables(profiles) if table.rows]
    for anchor, table in (
        *zip(("clock", ""), clock, strict=False),
        ("reissues", reissues_table(profiles)),
        ("devices", devices_table(profiles)),
    ):
        parts += table.titled(anchor) if table.rows else ()
    for number, profile in enumerate(profiles, 1):
        activity = activity_tables(activity_of(profile["header"]))
        if activity:
            text = "Recorded in addition to the requests" + (f": {profile.name}" if several else "")
            parts.append(Heading(text, f"activity-{number}"))
            parts += [part for table in activity for part in table.titled(is_minor=True)]
    reports: list[tuple[str, str, str, Fsync | Journal]] = []
    reports += [("fsync", "Waits for durability", profile.name, profile.fsync) for profile in profiles if profile.fsync]
    reports += [("journal", "Journal", profile.name, profile.journal) for profile in profiles if profile.journal]
    for number, (anchor, title, name, report) in enumerate(reports, 1):
        parts += [Heading(f"{title}: {name}" if several else title, f"{anchor}-{number}"), Note(report.headline, "")]
        parts += [part for table in report.tables() for part in table.titled(is_minor=True)]
        parts += map(Note, report.remarks())
    parts += operations_table(profiles).titled()
    if any(row["service_ms"] for profile in profiles for row in profile["by_operation"]):
        parts += operations_table(profiles, is_service=True).titled()
    yield Section("tables", "Tables III and IV", parts, nav="Tables")
    empty = "None of the traces contains" if several else "This trace does not contain"
    of_paper, beyond = (
        Charts(f"{empty} the data for this figure.", [figure.name for figure in FIGURES if figure.paper is paper])
        for paper in (True, False)
    )
    comparison = [Note("Comparison of the traces, as in the paper's Figure 7.", "")] if several else []
    yield Section("figures", "Figures of the paper", [*comparison, of_paper], nav="Figures")
    yield Section("beyond", "Beyond the paper", [beyond], nav="Beyond the paper")


def _title(profiles: Sequence[Profile]) -> str:
    return ", ".join(profile.name for profile in profiles[:3]) + (" and others" if len(profiles) > 3 else "")


def _head(profiles: Sequence[Profile]) -> Head:
    is_single = len(profiles) == 1
    return Head(
        answer=_answer(profiles[0]) if is_single else _range(profiles),
        lead=[
            f"{_title(profiles)}: I/O of {'this workload' if is_single else 'these workloads'} to the flash "
            "storage, by the definitions of Zhou et al., IISWC 2015."
        ],
        tiles=_tiles(profiles[0]) if is_single else _means(profiles),
        notices=[
            Notice("clock", text if is_single else f"{profile.name}: {text}", "#clock")
            for profile in profiles
            if (text := _clock(profile.clock_jumps))
        ],
        picture="io_over_time" if is_single else "size_distribution",
    )


def _answer(profile: Profile) -> str:
    """Return a sentence on the content of the trace and, if recorded, the mean response time."""
    mean = profile["mean_response_ms"]
    response = "" if mean is None else f", {amount(mean, 'ms')} each from arrival to completion"
    return (
        f"{profile.name}: {profile['requests']:,} requests in {amount(profile['duration_s'], 's')}, "
        f"{profile['write_requests_pct']:.0f} % of them writes, {amount(profile['mean_size_kb'], 'KB')} in "
        f"the mean{response}"
    )


def _range(profiles: Sequence[Profile]) -> str:
    """Return the range of the mean response times over the traces or, if they are not recorded, of the mean sizes."""
    for field in (_MEAN, _SIZE):
        name, unit = field.name, field.unit
        recorded = sorted(
            (profile for profile in profiles if profile[name] is not None), key=lambda profile: profile[name]
        )
        if len(recorded) > 1:
            lowest, highest = recorded[0], recorded[-1]
            return (
                f"{len(profiles)} traces: {field.in_words} from {amount(lowest[name], unit)} ({lowest.name}) "
                f"to {amount(highest[name], unit)} ({highest.name})"
            )
    return f"{len(profiles)} traces"


def _means(profiles: Sequence[Profile]) -> list[Tile]:
    """Return tiles with the mean response time of the first traces or, if not recorded, their mean request size."""
    tiles = []
    for profile in profiles[:_MOST_TILES]:
        field = _SIZE if profile[_MEAN.name] is None else _MEAN
        mean_tile = tile(profile.name, profile[field.name], field.unit)
        tiles.append(replace(mean_tile, note=field.in_words))
    return tiles


class _TraceRow(TypedDict):
    """A trace on the page: name, header, line of record counts (ledger), digests of input and profile, and notes."""

    name: str
    header: Mapping[str, Any]
    ledger: str
    input: str | None
    digest: str
    notes: list[tuple[str, str]]


def _trace(profile: Profile) -> _TraceRow:
    canonical = json.dumps(profile.to_dict(), sort_keys=True).encode()
    return {
        "name": profile.name,
        "header": profile["header"],
        "ledger": ledger_line(profile["ledger"]),
        "input": profile.get("trace_digest"),
        "digest": hashlib.sha256(canonical).hexdigest()[:16],
        "notes": notes(profile),
    }


def _clock(jumps: Sequence[ClockJumpRow]) -> str:
    """Return a text on the clock jumps; empty if there are none."""
    if not jumps:
        return ""
    count = sum(jump.mended for jump in jumps)
    mended = f", {count} of them removed (--mend-clock)" if count else ""
    return f"{jumps_text(len(jumps))}{mended}: see the table of the clock"


def _tiles(profile: Profile) -> list[Tile]:
    names = ("requests", "data_size_kb", "write_requests_pct", "mean_size_kb", "no_wait_pct", "mean_response_ms")
    tiles = [tile_of(TABLE_FIELDS[name], profile[name]) for name in names if profile[name] is not None]
    for row in profile["by_operation"]:
        if row["op"] == "all" and row["response_ms"]:
            tiles.append(tile(RESPONSE_P99.label, row["response_ms"]["p99"], RESPONSE_P99.unit))
    return tiles


def _findings(profiles: Sequence[Profile]) -> list[dict[str, Any]]:
    findings: list[dict[str, Any]] = []
    for number, finding in enumerate(profiles[0].findings):
        verdicts = [{"trace": profile.name, **profile.findings[number]} for profile in profiles]
        findings.append({**finding, "verdicts": verdicts})
    return findings


def _published_table(title: str, fields: Sequence[Field], profiles: Sequence[Profile]) -> TextTable:
    """Return a table of the paper; published figures of a trace follow the measured ones."""
    attached: dict[int, Cells] = {}
    for number, profile in enumerate(profiles):
        if published_row(profile.name) is not None:
            attached[number] = ["published", *published_cells(profile.name, fields)]
    caption = (
        "Published: as printed in the paper, whose means are rounded down to a multiple of 0.5 KB; a figure "
        "with * is contradicted by other figures of its row."
    )
    return TextTable(
        f"Table: {title}",
        ["Application", *(field.column for field in fields)],
        [[row.name, *(Number(field.text(row[field.name]), row[field.name]) for field in fields)] for row in profiles],
        style="sortable",
        caption=caption if attached else "",
        attached=attached,
    )


def write_report(profiles: Sequence[Profile], path: str | Path, provenance: ProvenanceFields | None = None) -> None:
    """Write the report page for `profiles`, atomically."""
    write_atomically(path, render(profiles, provenance))
