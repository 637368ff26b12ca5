"""The page of `emmclab reproduce devices`: how far each simulated device is from a real one."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from emmclab.calibration import measured_figures_text as texts
from emmclab.calibration.measured_figures import METRICS, FigureComparison, FigureSummary
from emmclab.pages import plots
from emmclab.pages.assemble import Head, Provenance, Tile, amount, assemble
from emmclab.pages.chart_files import write_charts
from emmclab.pages.plots import Chart, Figure, Rows
from emmclab.pages.theme import GREY
from emmclab.runtime.document import Charts, Folded, Note, Section
from emmclab.runtime.files import write_atomically
from emmclab.traces.inputs import ProvenanceFields

TITLE = "How far is each device from a real one"
#: Height of a group in a chart, pixels.
_GROUP_PX = 36
#: Colour of the medians: differs from those of reads and writes on light and dark backgrounds.
_MEDIAN = "#7b6bd6"


def _draw(rows: Rows) -> Chart:
    """Draw the ratio of each figure by group, and the median of each group, on a logarithmic axis."""
    groups = plots.in_order(rows, "group")
    x: dict[str, Any] = {"title": "simulated / measured", **plots.ratio_axis(rows)}
    chart = plots.bare_chart(rows, _GROUP_PX * len(groups))
    equal = chart.transform_aggregate(figures="count()").mark_rule(color=GREY).encode(x=alt.datum(1, **x))
    grouped = chart.encode(
        y=alt.Y("group:N", sort=groups, title=None), yOffset=alt.YOffset("op:N", sort=["read", "write"])
    )
    points = grouped.mark_point(filled=True, size=40, opacity=0.5).encode(
        x=alt.X("ratio:Q", **x), color=plots.op_colour(rows), tooltip=plots.tooltip(rows)
    )
    return (
        equal
        + points
        + grouped.mark_tick(thickness=3, size=_GROUP_PX / 3, color=_MEDIAN).encode(x=alt.X("median(ratio):Q", **x))
    )


#: The charts: name, and the grouping of the figures.
_GROUPINGS = {"device": "Device", "size": "Request size", "depth": "Unfinished requests", "figure": "Figure"}
_FIGURES = [
    Figure(
        name,
        f"Simulated and measured figures by {grouping.lower()}",
        "Each point is a figure to which no preset was fitted, each tick the median of reads or writes. Right of 1 the "
        "simulated figure is larger.",
        _draw,
        wide=name == "device",
        of_all=True,
    )
    for name, grouping in _GROUPINGS.items()
]


def chart_rows(comparisons: Sequence[FigureComparison]) -> dict[str, Rows]:
    """Return the rows of each chart: the tested figures in the order of their groups."""
    return {
        name: [
            {
                "trace": row.figure.device,
                "group": group,
                "op": "read" if "read" in row.figure.job.rw else "write",
                "job": str(row.figure.job),
                "figure": METRICS[row.figure.metric].label,
                "measured": row.figure.value,
                "simulated": row.simulated,
                "ratio": row.ratio,
            }
            for group, rows in texts.in_order(comparisons, grouping)
            for row in rows
            if row.figure.job and row.ratio
        ]
        for name, grouping in _GROUPINGS.items()
    }


def write_page(comparisons: Sequence[FigureComparison], html: Path, provenance: ProvenanceFields) -> None:
    """Write the HTML page; equal comparisons produce equal bytes."""
    rows = chart_rows(comparisons)
    write_atomically(
        html,
        assemble(
            _FIGURES,
            rows,
            plots.traces_of(rows["device"]),
            title=TITLE,
            head=_head(comparisons),
            provenance=Provenance(f"{len(comparisons):,} figures of the table of measured devices", made=provenance),
            sections=_sections(comparisons),
        ),
    )


def write_figures(comparisons: Sequence[FigureComparison], folder: Path) -> int:
    """Write each chart as SVG and PDF, and its data as CSV; return the number of charts."""
    rows = chart_rows(comparisons)
    return write_charts(((each.name, each.draw(rows[each.name]), rows[each.name]) for each in _FIGURES), folder)


def _head(comparisons: Sequence[FigureComparison]) -> Head:
    summary = FigureSummary.of(comparisons)
    half, nine_of_ten, host = (
        amount(value, "%")
        for value in (summary.half_within_pct, summary.nine_of_ten_within_pct, summary.host_half_within_pct)
    )
    rates, of_host = f"of {summary.rates} rates and latencies", f"of {summary.of_host} submission latencies (host)"
    tails = f"{summary.tails_within_factor_2} of {summary.tails}" if summary.tails else "–"
    return Head(
        answer=f"{summary}",
        lead=[
            "Each figure is the result of a benchmark on a real phone, board or card. Its job runs on the preset that "
            "claims to be this device or its class. Half of the simulated device is written before, and the time that "
            "the processor of the host needs is simulated, too."
        ],
        tiles=[
            Tile("Devices", f"{summary.devices:,}"),
            Tile("Figures", f"{summary.figures:,}"),
            Tile("Half within", half, note=rates),
            Tile("Nine of ten within", nine_of_ten, note=rates),
            Tile("p99 and p99.9", tails, note="within a factor of two"),
            Tile("Half within", host, note=of_host),
            Tile("Restated", f"{summary.fitted:,}", note="their presets were fitted to them"),
        ],
        picture="device",
    )


def _sections(comparisons: Sequence[FigureComparison]) -> Iterator[Section]:
    yield Section("worst", "Where the devices are wrong", [texts.worst_table(comparisons)], nav="Worst")
    groups = [part for name in texts.GROUPINGS for part in texts.summary_table(comparisons, name).titled()]
    yield Section("groups", "Deviations by group", groups, nav="Groups")
    yield Section("figures", "Figures", [Charts()], nav="Figures")
    if left_out := texts.not_compared_table(comparisons):
        note = Note("Each of these could change the result several times over, so nothing is assumed.")
        yield Section("not-compared", "Not compared", [note, left_out], nav="Not compared")
    restated = "A restated figure was an input of its preset: agreement proves nothing, and it does not count."
    tables = [Folded(table.title, [table]) for table in texts.figure_tables(comparisons, repeats_job=True)]
    yield Section("all", "All compared figures", [Note(restated), *tables], nav="All")
