"""The page of `emmclab lifetime`."""

from pathlib import Path

import altair as alt

from emmclab.advice.lifetime import Lifetime
from emmclab.advice.lifetime_changes import Remedies
from emmclab.advice.lifetime_text import (
    bounds,
    cautions,
    headline,
    most_important,
    notes_of,
    remarks,
    tables,
    years_text,
)
from emmclab.pages.assemble import Head, Notice, Provenance, Tile, assemble
from emmclab.pages.plots import Chart, Rows, chart_of, figure
from emmclab.runtime.document import Note, Section, decimal_size, significant
from emmclab.runtime.files import write_atomically


@figure("Life used", "Share of the life of each kind of block; at 100 % all its blocks are worn out.", name="used")
def _used(rows: Rows) -> Chart:
    """Draw the share of the life of each kind of block over the years."""
    return (
        chart_of(rows)
        .mark_line()
        .encode(
            x=alt.X("years:Q", title="years from now"),
            y=alt.Y("used_pct:Q", title="life used, %"),
            color=alt.Color("kind:N", title=None),
        )
    )


def write_lifetime(life: Lifetime, html: Path, helps: Remedies) -> None:
    """Write the page; equal estimates produce equal bytes."""
    end = life.years.value
    rows = [
        {
            "trace": life.load,
            "kind": kind.kind,
            "years": years,
            "used_pct": kind.used_now_pct + years * kind.used_per_year_pct,
        }
        for kind in life.kinds
        if kind.erase_limit
        for years in (0.0, end)
    ]
    tiles = [
        Tile("Lifetime", years_text(end), note=f"{years_text(life.years.low)} to {years_text(life.years.high)}"),
        Tile("TBW", decimal_size(life.host_bytes.value), note="decimal"),
        Tile("WAF", significant(life.waf)),
        Tile("Ends first", life.ends_first),
    ]
    parts = [part for table in tables(life, helps) for part in table.titled()]
    sections = [
        Section("estimate", "The estimate", parts, nav="Estimate"),
        Section("method", "Method", [Note(text) for text in (*notes_of(helps), *remarks(life))], nav="Method"),
    ]
    lead = [f"{text}." for text in (*bounds(life), most_important(life)) if text]
    head = Head(
        answer=headline(life),
        lead=lead,
        tiles=tiles,
        notices=[Notice("caution", text) for text in cautions(life)],
        picture="used",
    )
    page = assemble(
        [_used],
        {"used": rows},
        [life.load],
        title=f"Lifetime of {life.device} under {life.load}",
        head=head,
        sections=sections,
        provenance=Provenance(f"{life.load} on {life.device}", made=life.provenance or {}),  # type: ignore[arg-type]
    )
    write_atomically(html, page)
