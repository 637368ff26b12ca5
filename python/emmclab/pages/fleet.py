"""The page of a fleet, or of two compared fleets: first the result, then figures over the recordings."""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from emmclab.fleet.summary import (
    ALL,
    NONE,
    TEST_RULE,
    Comparison,
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
from emmclab.pages.assemble import assemble
from emmclab.pages.first_screen import Head, Notice, Provenance, Tile
from emmclab.pages.plots import Chart, Figure, Rows, chart_of, in_order, tooltip, trace_colour
from emmclab.pages.theme import VERDICT_COLOURS
from emmclab.runtime.document import Charts, Heading, Note, Part, Row, Section, TextTable
from emmclab.runtime.number_format import signed

#: Maximum number of distinguishable groups in a chart; the largest are drawn.
_MOST_LINES = 8
#: Maximum number of differences on the first screen.
_MOST_TILES = 5
#: Maximum number of points of a line over recordings.
_MOST_POINTS = 100
#: Maximum number of rows in the tables of outliers and of rejected files.
_MOST_ROWS = 200
#: Titles of the histograms, by column; each has a chart.
_HISTOGRAMS = {
    "histogram_size_read": "Sizes of reads",
    "histogram_size_write": "Sizes of writes",
    "histogram_response_read": "Response times of reads",
    "histogram_response_write": "Response times of writes",
    "histogram_inter_arrival": "Times between arrivals",
    "histogram_idle_gap": "Idle gaps",
    "histogram_reuse_distance": "Reuse distances",
}


def render(tables: Sequence[Table], found: Summary | Comparison) -> str:
    """Return the page of a fleet (table and summary) or of two; the same tables produce the same bytes."""
    if isinstance(found, Comparison):
        return _compared(tables, found)
    groups = found.groups[:_MOST_LINES]
    parts = [(group.name, group) for group in groups]
    sums = {name: _by_name(counts, found) for name, counts in tables[0].histograms(found.by).items()}
    left_out = len(found.groups) - len(groups)
    return _page(
        tables,
        [*_over_recordings(parts), *_over_requests(tables[0], sums, [group.name for group in groups])],
        title="fleet" + (f" by {', '.join(found.by)}" if found.by else ""),
        head=Head(
            found.headline(),
            lead=[_recordings_text(found)],
            tiles=_tiles(found.whole),
            notices=_refused([("", found)]),
            picture="mean_response_ms",
        ),
        comparison=None,
        summaries=[("", found)],
        remark=f"The {_MOST_LINES} largest groups are drawn; {left_out:,} more are in the table." if left_out else "",
    )


def _compared(tables: Sequence[Table], found: Comparison) -> str:
    parts = [(name, summary.whole) for name, summary in zip(found.names, (found.before, found.after), strict=True)]
    sums: dict[str, dict[str, list[int]]] = {}
    for table, name in zip(tables, found.names, strict=True):
        for column, counts in table.histograms(()).items():
            sums.setdefault(column, {})[name] = counts[()]
    delta = Figure(
        "effects",
        "Size of each difference",
        f"1: every recording of {found.names[1]} is above every one of {found.names[0]}; -1: below.",
        effects,
        wide=True,
        of_all=True,
    )
    rows = [
        {"trace": found.names[1], "figure": one.field.label, "delta": one.delta, "verdict": one.verdict}
        for one in found.differences
        if one.delta is not None
    ]
    return _page(
        tables,
        [(delta, rows), *_over_recordings(parts), *_over_requests(tables[0], sums, found.names)],
        title=" and ".join(found.names),
        head=Head(
            found.headline(),
            lead=[
                f"{found.before.whole.recordings:,} recordings of {found.names[0]}, "
                f"{found.after.whole.recordings:,} of {found.names[1]}."
            ],
            tiles=_differences(found),
            notices=[
                *(Notice("caution", text) for text in found.cautions),
                *_refused(list(zip(found.names, (found.before, found.after), strict=True))),
            ],
            picture="effects",
        ),
        comparison=found,
        summaries=[(name, one) for name, one in zip(found.names, (found.before, found.after), strict=True)],
        remark="",
    )


def _page(
    tables: Sequence[Table],
    drawn: Sequence[tuple[Figure, Rows]],
    comparison: Comparison | None,
    summaries: Sequence[tuple[str, Summary]],
    remark: str,
    **content: Any,
) -> str:
    figures = [(figure, rows) for figure, rows in drawn if rows]
    names = list(dict.fromkeys(row["trace"] for _, rows in figures for row in rows))
    return assemble(
        "document.html.j2",
        [figure for figure, _ in figures],
        {figure.name: rows for figure, rows in figures},
        names,
        sections=_sections(comparison, summaries, remark),
        provenance=_provenance(tables),
        **content,
    )


def _sections(
    comparison: Comparison | None, summaries: Sequence[tuple[str, Summary]], remark: str
) -> Iterator[Section]:
    if comparison is not None:
        rule = (
            f"{TEST_RULE}. Recordings of one device are not independent: name folders with one "
            "recording of each, or read p as a lower bound."
        )
        differences = differences_table(comparison)
        yield Section("differences", "Differences", [differences, Note(rule)], nav="Differences")
    charts = Charts("No recording has this figure.")
    yield Section("figures", "Figures", [*([Note(remark)] if remark else []), charts], nav="Figures")
    weights = (
        "All recordings have the same weight. Known: number of recordings that have the figure. Percentiles "
        "are interpolated linearly."
    )
    figures = [part for name, one in summaries for part in _of(name, figures_table(one))]
    yield Section("recordings", "Percentiles over recordings", [*figures, Note(weights)], nav="Recordings")
    outliers: list[Part] = []
    for name, summary in summaries:
        outliers += _of(name, outliers_table(summary, _MOST_ROWS))
        outliers += map(Note, outlier_remarks(summary, _MOST_ROWS))
    yield Section("outliers", "Outliers", outliers, nav="Outliers")
    refused: list[Part] = []
    for name, summary in summaries:
        if summary.refused:
            refused += _of(name, refused_table(summary.refused, _MOST_ROWS))
        if (more := len(summary.refused) - _MOST_ROWS) > 0:
            refused.append(Note(f"{more:,} more are in the table."))
    if refused:
        yield Section("refused", "Refused", refused)


def _of(name: str, table: TextTable) -> list[Part]:
    """Return a table below the name of its fleet, if there are several."""
    shown = table._replace(title=f"{table.title} of {name}") if name else table
    return [*([Heading(name)] if name else []), shown if table.rows else Note("None.", "quiet")]


def _recordings_text(found: Summary) -> str:
    groups = f" in {len(found.groups)} groups by {', '.join(found.by)}" if found.by else ""
    return f"{found.whole.recordings:,} recordings{groups}."


def _refused(summaries: Sequence[tuple[str, Summary]]) -> list[Notice]:
    """Return a notice on the files that could not be read, with a link to the reasons."""
    notices = []
    for name, summary in summaries:
        if count := len(summary.refused):
            files = f"{count:,} file{'s' if count != 1 else ''}{' of ' + name if name else ''}"
            are = "are" if count != 1 else "is"
            notices.append(Notice("refused", f"{files} could not be read and {are} in no figure.", "#refused"))
    return notices


def _provenance(tables: Sequence[Table]) -> Provenance:
    lines = []
    for table in tables:
        identity = table.description["identity"]
        reading = ", ".join(f"{key} = {value}" for key, value in (identity["reading"] or {}).items())
        text = f"emmclab {identity['version']}, build {identity['build']}"
        lines.append((f"Table {table.name.rpartition('/')[2]}", text + (f", read with {reading}" if reading else "")))
    return Provenance("; ".join(name for name, _ in lines), lines)


def _differences(found: Comparison) -> list[Tile]:
    """Return the largest differences that are shown, by Cliff's delta; without any, what was compared."""
    known = [one for one in found.differences if one.delta is not None]
    ordered = sorted((one for one in known if one.verdict in ("higher", "lower")), key=lambda one: -abs(one.delta or 0))
    if not ordered:
        parts = zip(found.names, (found.before, found.after), strict=True)
        counts = [Tile(f"Recordings of {name}", f"{one.whole.recordings:,}") for name, one in parts]
        return [*counts, Tile("Figures compared", f"{len(known):,}", note="none is shown to differ")]
    return [
        Tile(one.field.label, signed(one.delta or 0.0, 2), note=f"Cliff's delta; {one.verdict}")
        for one in ordered[:_MOST_TILES]
    ]


def _tiles(group: Group) -> list[Tile]:
    """Return the most important medians, with the interquartile range over the recordings."""
    tiles = [Tile("Recordings", f"{group.recordings:,}")]
    names = ("mean_response_ms", "all_response_p99_ms", "arrival_rate_per_s", "write_requests_pct", "no_wait_pct")
    for field in (one for one in FIGURES if one.name in names):
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
    return {", ".join(NONE if value is None else str(value) for value in key): found for key, found in counts.items()}


def _over_recordings(parts: Sequence[tuple[str, Group]]) -> Iterator[tuple[Figure, Rows]]:
    """Yield a chart for each main figure; extents come last."""
    for field in (*(one for one in FIGURES if one not in EXTENTS), *EXTENTS):
        rows = [
            {"trace": name, "value": value, "share_pct": share}
            for name, group in parts
            for value, share in _steps(group.values[field.name])
        ]
        draw = functools.partial(over_recordings, title=field.heading)
        about = f"{field.about[:1].upper()}{field.about[1:]}; the line is the share of recordings up to a value."
        yield Figure(field.name, field.label, about, draw), rows


def _steps(values: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Yield sorted values, each with the share of values up to it in percent; of many, each hundredth."""
    count = len(values)
    for number in range(1, min(count, _MOST_POINTS) + 1):
        rank = number if count <= _MOST_POINTS else math.ceil(count * number / _MOST_POINTS)
        yield values[rank - 1], 100 * rank / count


def _over_requests(
    table: Table, sums: dict[str, dict[str, list[int]]], names: Sequence[str]
) -> Iterator[tuple[Figure, Rows]]:
    """Yield a chart for each histogram, with the recordings of a group summed."""
    for column, title in _HISTOGRAMS.items():
        bins = table.description["bins"][column]
        rows = [row for name in names for row in _cumulative(name, sums.get(column, {}).get(name, []), bins)]
        about = f"{bins['counts'][:1].upper()}{bins['counts'][1:]}; all recordings of a group together."
        unit = "KB" if bins["unit"] == "KB" else "ms"
        yield Figure(column, title, about, functools.partial(over_requests, title=f"up to, {unit}")), rows


def _cumulative(name: str, counts: Sequence[int], bins: Bins) -> Iterator[Row]:
    """Yield the cumulative share up to each upper edge, from the first to the last non-empty bin."""
    total, below = sum(counts), 0
    for edge, count in zip(bins["upper_edges"], counts, strict=False):
        before, below = below, below + count
        if below and before < total:
            yield {"trace": name, "up_to": edge, "share_pct": 100 * below / total, "count": count}


#: Ratio of the values above which the axis is logarithmic.
_FAR_APART = 30


def over_recordings(rows: Rows, title: str) -> Chart:
    """Draw the share of recordings with at most a `value`, a line for each group."""
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
            tooltip=tooltip(rows),
        )
    )


def effects(rows: Rows) -> Chart:
    """Draw Cliff's delta of each figure, coloured by the verdict."""
    names = in_order(rows, "figure")
    there = [verdict for verdict in VERDICT_COLOURS if any(row["verdict"] == verdict for row in rows)]
    return (
        chart_of(rows, 22 * len(names))
        .mark_bar()
        .encode(
            y=alt.Y("figure:N", sort=names, title=None),
            x=alt.X("delta:Q", title="Cliff's delta", scale=alt.Scale(domain=[-1, 1])),
            color=alt.Color(
                "verdict:N",
                title=None,
                sort=there,
                scale=alt.Scale(domain=there, range=[VERDICT_COLOURS[verdict] for verdict in there]),
                legend=alt.Legend(columns=2, orient="bottom", labelLimit=180),
            ),
            tooltip=tooltip(rows),
        )
    )
