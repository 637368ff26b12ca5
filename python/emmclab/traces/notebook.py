"""HTML views of traces and profiles for notebooks, for light and dark backgrounds."""

from typing import TYPE_CHECKING, Literal

from emmclab.runtime.document import TextTable, cell_text, escaped, heading_html, pairs_html, table_html
from emmclab.traces.profile_fields import TABLES, ledger_line

if TYPE_CHECKING:
    from emmclab.traces.profile import Profile
    from emmclab.traces.trace import Trace

#: Number of requests that the notebook view of a trace shows.
_ROWS = 5
_Column = Literal["arrival_ns", "op", "sector", "sectors", "complete_ns", "process"]


def trace_html(trace: "Trace") -> str:
    """Return an HTML view of a trace: its source and its first requests, and counts if it has been read completely.

    A stream that can be read only once is not read.
    """
    header = trace.header
    facts = [
        ("format", str(header["format"] or "–")),
        ("source", str(header["source"] or "–")),
        ("device", str(header["device"] or "not recorded")),
        ("clock", str(header["clock"] or "–")),
    ]
    if header["note"]:
        facts.append(("note", str(header["note"])))
    if trace.counted is not None:
        facts.append(("ledger", ledger_line(trace.counted)))
    parts = [heading_html("Trace", trace.name), pairs_html(facts)]
    if not trace.is_pipe:
        rows = trace.rows(_ROWS)
        columns: tuple[_Column, ...] = ("arrival_ns", "op", "sector", "sectors", "complete_ns", "process")
        shown_columns = [column for column in columns if any(row[column] is not None for row in rows)]
        cells = [[cell_text(row[column]) for column in shown_columns] for row in rows]
        parts.append(table_html(TextTable("", shown_columns, cells, words=0)))
    return "".join(parts)


def profile_html(profile: "Profile") -> str:
    """Return a profile as HTML: Tables III and IV of IISWC 2015, and whether it shows the paper's findings."""
    parts = [heading_html("Profile", profile.name), f"<div>{escaped(ledger_line(profile['ledger']))}</div>"]
    for title, fields in TABLES:
        cells = [field.text(profile[field.name]) for field in fields]
        parts.append(table_html(TextTable(title, [field.column for field in fields], [cells], words=0)))
    verdicts = {"yes": "yes", "no": "no", "unknown": "–"}
    findings = [[finding.title, verdicts[finding.shown], finding.meaning] for finding in profile.findings]
    parts.append(
        f"<details><summary>{len(findings)} findings</summary>"
        + table_html(TextTable("", ["finding", "shown", "by these figures"], findings, words=3))
        + "</details>"
    )
    return "".join(parts)
