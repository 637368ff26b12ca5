"""The page of a fleet or of two compared fleets: the result, then distributions of figures over the recordings."""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from emmclab.fleet.summary import (
    ALL,
    NONE,
    TEST_RULE,
    FleetComparison,
    Group,
    Summary,
    differences_table,
    figure_text,
    figures_table,
    outlier_remarks,
    outliers_table,
    refused_table,
)
from emmclab.fleet.table import EXTENTS, FIGURES, Bins, Table
from emmclab.pages.assemble import Head, Notice, Provenance, Tile, assemble
from emmclab.pages.plots import Chart, Figure, Rows, chart_of, in_order, trace_colour
from emmclab.pages.theme import VERDICT_COLOURS
from emmclab.runtime.document import Charts, Heading, Note, Part, Row, Section, TextTable, signed

#: Maximum number of groups that a chart draws, largest first, so that readers can distinguish them.
_MOST_LINES = 8
#: Maximum number of differences between fleets on the first screen of the page.
_MOST_TILES = 5
#: Maximum number of points of a line that shows the distribution of a figure over recordings.
_MOST_POINTS = 100
#: Maximum number of rows in the tables of outliers and of refused files.
_MOST_ROWS = 200
#: Titles of the histogram charts, by column of the table.
_HISTOGRAMS = {
    "histogram_size_read": "Sizes of reads",
    "histogram_size_write": "Sizes of writes",
    "histogram_response_read": "Response times of reads",
    "histogram_response_write": "Response times of writes",
    "histogram_inter_arrival": "Times between arrivals",
    "histogram_idle_gap": "Idle gaps",
    "histogram_reuse_distance": "Reuse distances",
}


def render(tables: Sequence[Table], result: Summary | FleetComparison) -> str:
    """Return the HTML page of one fleet, or of two compared fleets; equal tables produce equal bytes."""
    if isinstance(result, FleetComparison):
        return _compared(tables, result)
    groups = result.groups[:_MOST_LINES]
    parts = [(group.name, group) for group in groups]
    sums = {name: _by_name(counts, result) for name, counts in tables[0].histograms(result.by).items()}
    left_out = len(result.groups) - len(groups)
    in_groups = f" in {len(result.groups)} groups by {', '.join(result.by)}" if result.by else ""
    return _page(
        tables,
        [*_over_recordings(parts), *_over_requests(tables[0], sums, [group.name for group in groups])],
        title="fleet" + (f" by {', '.join(result.by)}" if result.by else ""),
        head=Head(
            result.headline(),
            lead=[f"{result.whole.recordings:,} recordings{in_groups}."],
            tiles=_tiles(result.whole),
            notices=_refused([("", result)]),
            picture="mean_response_ms",
        ),
        comparison=None,
        summaries=[("", result)],
        remark=f"The {_MOST_LINES} largest groups are drawn; {left_out:,} more are in the table." if left_out else "",
    )


def _compared(tables: Sequence[Table], result: FleetComparison) -> str:
    parts = [(name, summary.whole) for name, summary in zip(result.names, (result.before, result.after), strict=True)]
    sums: dict[str, dict[str, list[int]]] = {}
    for table, name in zip(tables, result.names, strict=True):
        for column, counts in table.histograms(()).items():
            sums.setdefault(column, {})[name] = counts[()]
    delta = Figure(
        "effects",
        "Size of each difference",
        f"1: all values of {result.names[1]} are above all values of {result.names[0]}; -1: below.",
        effects,
        wide=True,
        of_all=True,
    )
    rows = [
        {"trace": result.names[1], "figure": row.field.label, "delta": row.delta, "verdict": row.verdict}
        for row in result.differences
        if row.delta is not None
    ]
    return _page(
        tables,
        [(delta, rows), *_over_recordings(parts), *_over_requests(tables[0], sums, result.names)],
        title=" and ".join(result.names),
        head=Head(
            result.headline(),
            lead=[
                f"{result.before.whole.recordings:,} recordings of {result.names[0]}, "
                f"{result.after.whole.recordings:,} of {result.names[1]}."
            ],
            tiles=_differences(result),
            notices=[
                *(Notice("caution", text) for text in result.cautions),
                *_refused(list(zip(result.names, (result.before, result.after), strict=True))),
            ],
            picture="effects",
        ),
        comparison=result,
        summaries=list(zip(result.names, (result.before, result.after), strict=True)),
        remark="",
    )


def _page(
    tables: Sequence[Table],
    drawn: Sequence[tuple[Figure, Rows]],
    comparison: FleetComparison | None,
    summaries: Sequence[tuple[str, Summary]],
    remark: str,
    **content: Any,
) -> str:
    figures = [(figure, rows) for figure, rows in drawn if rows]
    names = list(dict.fromkeys(row["trace"] for _, rows in figures for row in rows))
    return assemble(
        [figure for figure, _ in figures],
        {figure.name: rows for figure, rows in figures},
        names,
        sections=_sections(comparison, summaries, remark),
        provenance=_provenance(tables),
        **content,
    )


def _sections(
    comparison: FleetComparison | None, summaries: Sequence[tuple[str, Summary]], remark: str
) -> Iterator[Section]:
    if comparison is not None:
        rule = (
            f"{TEST_RULE}. Recordings of the same device are not independent: compare folders with one "
            "recording of each device, or treat p as a lower bound."
        )
        differences = differences_table(comparison)
        yield Section("differences", "Differences", [differences, Note(rule)], nav="Differences")
    charts = Charts("No recording has this figure.")
    yield Section("figures", "Figures", [*([Note(remark)] if remark else []), charts], nav="Figures")
    weights = (
        "All recordings have the same weight. Known: number of recordings that have the figure. Percentiles "
        "are interpolated linearly."
    )
    figures = [part for name, summary in summaries for part in _titled(name, figures_table(summary))]
    yield Section("recordings", "Percentiles over recordings", [*figures, Note(weights)], nav="Recordings")
    outliers: list[Part] = []
    for name, summary in summaries:
        outliers += _titled(name, outliers_table(summary, _MOST_ROWS))
        outliers += map(Note, outlier_remarks(summary, _MOST_ROWS))
    yield Section("outliers", "Outliers", outliers, nav="Outliers")
    refused: list[Part] = []
    for name, summary in summaries:
        if summary.refused:
            refused += _titled(name, refused_table(summary.refused, _MOST_ROWS))
        if (more := len(summary.refused) - _MOST_ROWS) > 0:
            refused.append(Note(f"{more:,} more are in the table."))
    if refused:
        yield Section("refused", "Refused", refused)


def _titled(name: str, table: TextTable) -> list[Part]:
    """Return a table, with the name of its fleet as a heading if there are several fleets."""
    titled = table._replace(title=f"{table.title} of {name}") if name else table
    return [*([Heading(name)] if name else []), titled if table.rows else Note("None.", "quiet")]


def _refused(summaries: Sequence[tuple[str, Summary]]) -> list[Notice]:
    """Return a notice on the files that could not be read, with a link to the reasons."""
    notices = []
    for name, summary in summaries:
        if count := len(summary.refused):
            files = f"{count:,} file{'s' if count != 1 else ''}{' of ' + name if name else ''}"
            are = "are" if count != 1 else "is"
            notices.append(Notice("refused", f"{files} could not be read and {are} not included.", "#refused"))
    return notices


def _provenance(tables: Sequence[Table]) -> Provenance:
    lines = []
    for table in tables:
        identity = table.description["identity"]
        reading = ", ".join(f"{key} = {value}" for key, value in (identity["reading"] or {}).items())
        text = f"emmclab {identity['version']}, build {identity['build']}"
        lines.append((f"Table {table.name.rpartition('/')[2]}", text + (f", read with {reading}" if reading else "")))
    return Provenance("; ".join(name for name, _ in lines), lines)


def _differences(result: FleetComparison) -> list[Tile]:
    """Return tiles with the largest significant differences by Cliff's delta.

    If there are none, return tiles with the numbers of recordings and of compared figures.
    """
    rows = [row for row in result.differences if row.delta is not None]
    ordered = sorted((row for row in rows if row.verdict in ("higher", "lower")), key=lambda row: -abs(row.delta or 0))
    if not ordered:
        parts = zip(result.names, (result.before, result.after), strict=True)
        counts = [Tile(f"Recordings of {name}", f"{summary.whole.recordings:,}") for name, summary in parts]
        return [*counts, Tile("Figures compared", f"{len(rows):,}", note="none is shown to differ")]
    return [
        Tile(row.field.label, signed(row.delta or 0.0, 2), note=f"Cliff's delta; {row.verdict}")
        for row in ordered[:_MOST_TILES]
    ]


def _tiles(group: Group) -> list[Tile]:
    """Return tiles with the medians of the most important figures, and their interquartile ranges."""
    tiles = [Tile("Recordings", f"{group.recordings:,}")]
    names = ("mean_response_ms", "all_response_p99_ms", "arrival_rate_per_s", "write_requests_pct", "no_wait_pct")
    for field in (figure for figure in FIGURES if figure.name in names):
        points = group.points(field.name)
        if points is not None:
            _, _, low, middle, high, _, _ = points
            tiles.append(
                Tile(
                    f"{field.label}, median",
                    figure_text(field, middle),
                    note=f"half: {field.text(low)} to {field.text(high)}",
                )
            )
    return tiles


def _by_name(counts: dict[tuple[Any, ...], list[int]], summary: Summary) -> dict[str, list[int]]:
    if not summary.by:
        return {ALL: counts[()]} if counts else {}
    return {", ".join(NONE if value is None else str(value) for value in key): sums for key, sums in counts.items()}


def _over_recordings(parts: Sequence[tuple[str, Group]]) -> Iterator[tuple[Figure, Rows]]:
    """Yield a chart with the distribution of each main figure over the recordings; size and duration come last."""
    for field in (*(figure for figure in FIGURES if figure not in EXTENTS), *EXTENTS):
        rows = [
            {"trace": name, "value": value, "share_pct": share}
            for name, group in parts
            for value, share in _steps(group.values[field.name])
        ]
        draw = functools.partial(over_recordings, title=field.heading)
        about = f"{field.about[:1].upper()}{field.about[1:]}; the line is the share of recordings up to a value."
        yield Figure(field.name, field.label, about, draw), rows


def _steps(values: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Yield at most 100 sorted values, evenly spaced, each with the percentage of values up to it."""
    count = len(values)
    for number in range(1, min(count, _MOST_POINTS) + 1):
        rank = number if count <= _MOST_POINTS else math.ceil(count * number / _MOST_POINTS)
        yield values[rank - 1], 100 * rank / count


def _over_requests(
    table: Table, sums: dict[str, dict[str, list[int]]], names: Sequence[str]
) -> Iterator[tuple[Figure, Rows]]:
    """Yield a chart for each histogram, summed over the recordings of each group."""
    for column, title in _HISTOGRAMS.items():
        bins = table.description["bins"][column]
        rows = [row for name in names for row in _cumulative(name, sums.get(column, {}).get(name, []), bins)]
        about = f"{bins['counts'][:1].upper()}{bins['counts'][1:]}; all recordings of a group together."
        unit = "KB" if bins["unit"] == "KB" else "ms"
        yield Figure(column, title, about, functools.partial(over_requests, title=f"up to, {unit}")), rows


def _cumulative(name: str, counts: Sequence[int], bins: Bins) -> Iterator[Row]:
    """Yield the cumulative share of the bins of a histogram, from the first to the last non-empty bin."""
    total, upto = sum(counts), 0
    for edge, count in zip(bins["upper_edges"], counts, strict=False):
        before, upto = upto, upto + count
        if upto and before < total:
            yield {"trace": name, "up_to": edge, "share_pct": 100 * upto / total, "count": count}


#: Ratio of the largest to the smallest value above which the axis is logarithmic.
_FAR_APART = 30


def over_recordings(rows: Rows, title: str) -> Chart:
    """Draw the share of recordings up to each `value`, a line for each group."""
    values = [row["value"] for row in rows]
    logarithmic = min(values) > 0 and max(values) > _FAR_APART * min(values)
    scale = alt.Scale(type="log") if logarithmic else alt.Scale(zero=False)
    axis = alt.Axis(format="~r", labelOverlap=True) if logarithmic else alt.Undefined
    return _shares(rows).encode(x=alt.X("value:Q", title=title, scale=scale, axis=axis))


def over_requests(rows: Rows, title: str) -> Chart:
    """Draw the cumulative share of a histogram at each upper edge, a line for each group."""
    axis = alt.Axis(format="~s", labelOverlap=True)
    return _shares(rows).encode(x=alt.X("up_to:Q", title=title, scale=alt.Scale(type="log"), axis=axis))


def _shares(rows: Rows) -> Chart:
    return (
        chart_of(rows)
        .mark_line(interpolate="step-after", point=alt.OverlayMarkDef(size=12) if len(rows) < 3 else False)
        .encode(
            y=alt.Y("share_pct:Q", title="share up to here, %", scale=alt.Scale(domain=[0, 100])),
            color=trace_colour(rows),
        )
    )


def effects(rows: Rows) -> Chart:
    """Draw Cliff's delta of each figure, coloured by the verdict."""
    names = in_order(rows, "figure")
    present = [verdict for verdict in VERDICT_COLOURS if any(row["verdict"] == verdict for row in rows)]
    return (
        chart_of(rows, 22 * len(names))
        .mark_bar()
        .encode(
            y=alt.Y("figure:N", sort=names, title=None),
            x=alt.X("delta:Q", title="Cliff's delta", scale=alt.Scale(domain=[-1, 1])),
            color=alt.Color(
                "verdict:N",
                title=None,
                sort=present,
                scale=alt.Scale(domain=present, range=[VERDICT_COLOURS[verdict] for verdict in present]),
                legend=alt.Legend(columns=2, orient="bottom", labelLimit=180),
            ),
        )
    )
