"""The page of `emmclab probe`."""

from dataclasses import asdict

import altair as alt

from emmclab.pages.assemble import Head, Provenance, Tile, amount, assemble, tile
from emmclab.pages.plots import Chart, Rows, chart_of, figure
from emmclab.real_devices.probe import Probe
from emmclab.runtime.document import Bullets, Charts, Section


@figure("Bandwidth by size", "Synchronous direct I/O, one request at a time.", name="curves", wide=True)
def _curves(rows: Rows) -> Chart:
    """Draw bandwidth against request size, a line for each operation and order (sequential or random)."""
    return (
        chart_of(rows)
        .mark_line(point=True)
        .encode(
            x=alt.X("size_kb:Q", title="size, KB", scale=alt.Scale(type="log", base=2)),
            y=alt.Y("mb_per_s:Q", title="MB/s", scale=alt.Scale(type="log")),
            color=alt.Color("op:N", title=None),
            strokeDash=alt.StrokeDash("order:N", title=None),
        )
    )


@figure(
    "Time of a small request by its offset",
    "Requests of 8 KB at every offset; requests that cross the boundary of a clustered page take longer.",
    name="places",
    wide=True,
)
def _places(rows: Rows) -> Chart:
    """Draw the response time of small requests against their offset."""
    return (
        chart_of(rows)
        .mark_line(point=True)
        .encode(
            x=alt.X("offset_kb:Q", title="offset, KB"),
            y=alt.Y("time_ms:Q", title="median time, ms", scale=alt.Scale(zero=False)),
            color=alt.Color("op:N", title=None),
        )
    )


_FIGURES = (_curves, _places)


def render(probe: Probe) -> str:
    """Return the HTML page; equal probe results produce equal bytes."""
    rows = {
        "curves": [{"trace": probe.target, **asdict(point)} for point in probe.points],
        "places": [{"trace": probe.target, **asdict(place)} for place in probe.places],
    }
    access = "written and read" if probe.wrote else "only read"
    method = f"{probe.span_mb:,} MB {access}, by synchronous direct I/O"
    return assemble(
        _FIGURES,
        rows,
        [probe.target],
        title=f"Probe of {probe.target}",
        head=_head(probe, method),
        provenance=Provenance(f"{probe.target}: {method}"),
        sections=[
            Section("findings", "Findings", [Bullets([(finding, "") for finding in probe.findings])], nav="Findings"),
            Section("figures", "Figures", [Charts()], nav="Figures"),
        ],
    )


def _head(probe: Probe, method: str) -> Head:
    page, block = (
        amount(size, "KB") if size is not None else "not found"
        for size in (probe.clustered_page_kb, probe.clustered_block_kb)
    )
    fastest = {
        op: max((point for point in probe.points if point.op == op), key=lambda point: point.mb_per_s, default=None)
        for op in ("read", "write")
    }
    tiles = [Tile("Clustered page", page), Tile("Clustered block", block)]
    tiles += [
        tile(f"Fastest {op}", point.mb_per_s, "MB/s", note=f"{point.order}, {amount(point.size_kb, 'KB')}")
        for op, point in fastest.items()
        if point is not None
    ]
    return Head(
        answer=f"{probe.target}: clustered page {page}, clustered block {block}",
        lead=[f"{method}."],
        tiles=tiles,
        picture="curves",
    )
