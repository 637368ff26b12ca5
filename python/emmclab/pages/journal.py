"""The page of `emmclab journal`."""

import altair as alt

from emmclab.pages.assemble import Head, Provenance, assemble, lost, tile
from emmclab.pages.plots import Chart, Rows, chart_of, figure, in_order
from emmclab.runtime.document import Charts, Section
from emmclab.traces.journal import Journal
from emmclab.traces.profile_fields import ledger_line


@figure("Bytes written by role", "By recorded role, or by flags and addresses.", name="shares")
def _shares(rows: Rows) -> Chart:
    """Draw the share of the written bytes by the role of the block (such as journal or data), or by class."""
    names = in_order(rows, "what")
    return (
        chart_of(rows, 24 * len(names))
        .mark_bar()
        .encode(x=alt.X("written_pct:Q", title="share of bytes written, %"), y=alt.Y("what:N", sort=names, title=None))
    )


@figure(
    "Changed sectors of logged blocks",
    "Sectors that differ from the last logged copy of the block.",
    name="changed",
    optional=True,
)
def _changed(rows: Rows) -> Chart:
    return (
        chart_of(rows)
        .mark_bar()
        .encode(
            x=alt.X("changed_sectors:O", title="sectors that changed"),
            y=alt.Y("pct:Q", title="share of logged blocks, %"),
        )
    )


@figure("Over time", "All bytes written, and bytes written to the journal.", name="over-time", wide=True, optional=True)
def _over_time(rows: Rows) -> Chart:
    """Draw the bytes written in total and by the journal over time."""
    return (
        chart_of(rows)
        .transform_calculate(journal="datum.journal_kb / datum.width_s", all="datum.written_kb / datum.width_s")
        .transform_fold(["all", "journal"], ["writes", "kb_per_s"])
        .mark_line(interpolate="step-after")
        .encode(
            x=alt.X("time_s:Q", title="time, s"),
            y=alt.Y("kb_per_s:Q", title="KB/s written"),
            color=alt.Color("writes:N", title=None),
        )
    )


@figure(
    "By the rate of commits",
    "Each point is a time bin of at least one second.",
    name="rate",
    needs="journal_pct",
    optional=True,
)
def _rate(rows: Rows) -> Chart:
    """Draw the share of the journal against the rate of commits, a point for each time bin."""
    return (
        chart_of(rows)
        .mark_point(filled=True)
        .encode(
            x=alt.X("commits_per_s:Q", title="commits per second"),
            y=alt.Y("journal_pct:Q", title="journal in bytes written, %"),
        )
    )


_FIGURES = (_shares, _changed, _over_time, _rate)


def render(journal: Journal) -> str:
    """Return the HTML page; equal reports produce equal bytes.

    >>> import emmclab
    >>> "<html lang=" in render(emmclab.read(emmclab.bundled()[0]).journal())
    True
    """
    name = journal["name"]
    shares = [{"what": row["role"], **row} for row in journal["by_role"]]
    shares += [{"what": row["sign"], **row} for row in journal["by_sign"]]
    rows = {
        "shares": shares,
        "changed": journal["changed_sectors"],
        "over-time": journal["over_time"],
        "rate": journal["over_time"] if journal["commits"] else [],
    }
    return assemble(
        _FIGURES,
        {figure: [{"trace": name, **row} for row in figure_rows] for figure, figure_rows in rows.items()},
        [name],
        title=f"Journal of {name}",
        head=_head(journal),
        provenance=Provenance(
            ledger_line(journal["ledger"]),
            [("Source", f"{journal['header']['source']}, {journal['header']['format']}")],
            lost([journal["ledger"]]),
        ),
        sections=[
            Section("figures", "Figures", [Charts("Nothing is written in this trace.")], nav="Figures"),
            Section("tables", "Tables", [part for table in journal.tables() for part in table.titled()], nav="Tables"),
        ],
    )


def _head(journal: Journal) -> Head:
    commits = journal["commits"]
    at_most = journal["known_by"] == "flags" and not any(row["sign"] == "journal" for row in journal["by_sign"])
    tiles = [
        tile("Written", journal["written_kb"], "KB"),
        tile("Journal", journal["journal_pct"], "%", note="at most" if at_most else "of bytes written"),
        tile("Commits", commits["commits"] if commits else None, digits=12),
        tile("Flushes and FUA", journal["flush_fua_time_pct"], "%", note="of the service time of synchronous writes"),
    ]
    return Head(
        answer=journal.headline,
        lead=[f"{journal['name']}: {journal['header']['source']}.", *journal.remarks()],
        tiles=tiles,
        picture="shares",
    )
