"""The figures: one function each, from rows to a chart, for the report page and for `--figures`.

Rows are those of `figures` in a profile's JSON, each with the name of its `trace`; a chart holds them all, so
that the data beside a figure are exactly what it was drawn from.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt

from emmclab.files import write_whole
from emmclab.profile import Profile
from emmclab.theme import LIGHT, OP_COLOURS

Row = dict[str, Any]
Rows = list[Row]
#: A chart of altair, whose chained methods carry no types.
Chart = Any

#: Height of a chart, pixels; the width is that of its place on the page.
_HEIGHT = 240


@dataclass(frozen=True)
class Figure:
    """A figure: `name` is its field in a profile.

    `paper` says that the paper has it, `each` that there is one chart per trace, not one for all, `wide` that
    it takes the width of the page, and `needs` names a field without which a row cannot be drawn.
    """

    name: str
    title: str
    about: str
    draw: Callable[[Rows], Chart]
    paper: bool = False
    each: bool = False
    wide: bool = False
    needs: str = "trace"

    def can_draw(self, rows: Rows) -> bool:
        """Tell whether any row has what the chart stands on."""
        return any(row[self.needs] is not None for row in rows)


def rows_of(profiles: Iterable[Profile], figure: str) -> Rows:
    """Give the rows of a figure for several traces."""
    return [{"trace": profile.name, **row} for profile in profiles for row in profile.figure(figure)]


def to_csv(rows: Rows) -> str:
    """Write rows as CSV with a header; missing values stay empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def write_figures(profiles: Sequence[Profile], folder: Path) -> int:
    """Write each figure as SVG and its rows as CSV; return how many figures there are."""
    import vl_convert

    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for figure in FIGURES:
        rows = rows_of(profiles, figure.name)
        parts = [[row for row in rows if row["trace"] == p.name] for p in profiles] if figure.each else [rows]
        for part in filter(figure.can_draw, parts):
            stem = f"{figure.name}-{_file_name(part[0]['trace'])}" if figure.each else figure.name
            spec = figure.draw(part).properties(width=560).to_dict()
            svg = vl_convert.vegalite_to_svg(spec, config=LIGHT)
            write_whole(folder / f"{stem}.svg", svg)
            write_whole(folder / f"{stem}.csv", to_csv(part))
            count += 1
    return count


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name)


def chart_of(rows: Rows) -> Chart:
    """Start a chart on rows, as wide as its place."""
    return alt.Chart(alt.InlineData(values=rows, name="rows")).properties(width="container", height=_HEIGHT)


def _traces(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["trace"] for row in rows))


def _order(rows: Rows, field: str) -> list[Any]:
    """Give the values of a field from the smallest range to the largest; the rows of each trace stand so."""
    return list(dict.fromkeys(row[field] for row in rows))


def _op_colour(rows: Rows) -> alt.Color:
    ops = [op for op in OP_COLOURS if any(row.get("op") == op for row in rows)]
    scale = alt.Scale(domain=ops, range=[OP_COLOURS[op] for op in ops])
    return alt.Color("op:N", title=None, scale=scale)


def _trace_colour(rows: Rows) -> alt.Color:
    legend = alt.Legend(columns=3, orient="bottom") if len(_traces(rows)) > 1 else None
    return alt.Color("trace:N", title=None, sort=_traces(rows), legend=legend)


def tooltip(rows: Rows) -> list[alt.Tooltip]:
    """Show every value of the row under the pointer."""
    tips = []
    for name, value in rows[0].items():
        number = not isinstance(value, str)
        form = ",.3~f" if number else alt.Undefined
        tips.append(alt.Tooltip(f"{name}:{'Q' if number else 'N'}", format=form))
    return tips


def _bins(rows: Rows, value: str, axis: str, legend: str) -> Chart:
    """Draw a distribution over ranges: columns by operation for one trace, a stacked bar each for several."""
    bins = _order(rows, "bin")
    by_op = any("op" in row for row in rows)
    chart = chart_of(rows)
    if len(_traces(rows)) == 1:
        marks = chart.mark_bar().encode(
            x=alt.X("bin:N", sort=bins, title=legend, axis=alt.Axis(labelAngle=-40, labelOverlap=False)),
            y=alt.Y(f"{value}:Q", title=axis),
            tooltip=tooltip(rows),
        )
        if not by_op:
            return marks
        split = [row for row in rows if row["op"] != "all"]
        return marks.transform_filter("datum.op != 'all'").encode(color=_op_colour(split), xOffset="op:N")
    if by_op:
        chart = chart.transform_filter("datum.op == 'all'")
    chart = chart.transform_calculate(place=f"indexof({bins!r}, datum.bin)")
    return (
        chart.mark_bar()
        .encode(
            y=alt.Y("trace:N", sort=_traces(rows), title=None),
            x=alt.X(f"{value}:Q", title=axis, scale=alt.Scale(nice=False)),
            color=alt.Color(
                "bin:O",
                sort=bins,
                title=legend,
                legend=alt.Legend(columns=3, symbolType="square", orient="bottom"),
            ),
            order="place:Q",
            tooltip=tooltip(rows),
        )
        .properties(height=28 * len(_traces(rows)))
    )


def throughput_by_size(rows: Rows) -> Chart:
    """Figure 3 (IISWC 2015, section III-A): rate against request size."""
    one = len(_traces(rows)) == 1
    chart = chart_of(rows).transform_filter("datum.high_kb != null")
    base = chart.encode(
        x=alt.X("high_kb:Q", title="request size up to, KB", scale=alt.Scale(type="log", base=2)),
        y=alt.Y("mb_per_s:Q", title="MB/s of service time", scale=alt.Scale(type="log")),
        color=_op_colour(rows) if one else _trace_colour(rows),
        tooltip=tooltip(rows),
    )
    if not one:
        base = base.encode(
            strokeDash=alt.StrokeDash("op:N", legend=None), shape=alt.Shape("op:N", title=None)
        )
    return base.mark_line() + base.mark_point(filled=True, size=45)


def size_distribution(rows: Rows) -> Chart:
    """Figure 4 (section III-B): request sizes."""
    return _bins(rows, "pct", "share of requests, %", "request size")


def response_distribution(rows: Rows) -> Chart:
    """Figure 5 (section III-C): response times."""
    return _bins(rows, "pct", "share of requests, %", "response time")


def service_distribution(rows: Rows) -> Chart:
    """Service times in the bins of figure 5."""
    return _bins(rows, "pct", "share of requests, %", "service time")


def inter_arrival_distribution(rows: Rows) -> Chart:
    """Figure 6 (section III-C): times from one arrival to the next."""
    return _bins(rows, "pct", "share of gaps, %", "inter-arrival time")


def update_interval(rows: Rows) -> Chart:
    """Time between two writes of the same page."""
    return _bins(rows, "pct", "share of overwrites, %", "time since the last write")


def idle_gaps(rows: Rows) -> Chart:
    """Where the idle time lies."""
    return _bins(rows, "idle_pct", "share of idle time, %", "length of the idle gap")


def queue_depth(rows: Rows) -> Chart:
    """Unfinished requests that an arriving one finds."""
    return _bins(rows, "pct", "share of requests, %", "unfinished requests on arrival")


def sequential_runs(rows: Rows) -> Chart:
    """Requests in sequential runs by the length of the run."""
    return _bins(rows, "requests_pct", "share of requests, %", "requests in the run")


def reuse_distance(rows: Rows) -> Chart:
    """Hit rate of a least-recently-used cache by its size (SHARDS: Waldspurger et al., FAST 2015)."""
    base = (
        chart_of(rows)
        .transform_filter("datum.high_kb != null")
        .transform_calculate(size_mb="datum.high_kb / 1024")
        .encode(
            x=alt.X(
                "size_mb:Q", title="cache size, MB", scale=alt.Scale(type="log"), axis=alt.Axis(format="~r")
            ),
            y=alt.Y("hit_pct:Q", title="page touches that hit, %", scale=alt.Scale(domain=[0, 100])),
            color=_trace_colour(rows),
            tooltip=tooltip(rows),
        )
    )
    return base.mark_line() + base.mark_point(filled=True, size=30)


def working_set(rows: Rows) -> Chart:
    """Unique pages touched so far; for one trace also those written. Traces may differ much in length."""
    chart = chart_of(rows).transform_calculate(
        touched="datum.unique_kb / 1024", written="datum.written_kb / 1024"
    )
    if one := len(_traces(rows)) == 1:
        chart = chart.transform_fold(["touched", "written"], ["pages", "mb"])
    return chart.mark_line(interpolate="step-after").encode(
        x=alt.X("time_s:Q", title="time, s", scale=alt.Scale(type="linear" if one else "log")),
        y=alt.Y("mb:Q" if one else "touched:Q", title="unique pages so far, MB"),
        color=alt.Color("pages:N", title=None) if one else _trace_colour(rows),
        tooltip=tooltip(rows),
    )


def hot_pages(rows: Rows) -> Chart:
    """How much goes to the hottest pages."""
    one = len(_traces(rows)) == 1
    chart = chart_of(rows) if one else chart_of(rows).transform_filter("datum.op == 'write'")
    return chart.mark_bar().encode(
        x=alt.X("pages_pct:O", title="hottest pages, %", axis=alt.Axis(labelAngle=0)),
        y=alt.Y(
            "share_pct:Q", title="page touches that go there, %" if one else "page writes that go there, %"
        ),
        xOffset=alt.XOffset("op:N") if one else alt.XOffset("trace:N", sort=_traces(rows)),
        color=_op_colour(rows) if one else _trace_colour(rows),
        tooltip=tooltip(rows),
    )


def alignment(rows: Rows) -> Chart:
    """Space utilisation of writes by flash page size (section V-A)."""
    one = len(_traces(rows)) == 1
    chart = chart_of(rows) if one else chart_of(rows).transform_filter("datum.op == 'write'")
    return chart.mark_bar().encode(
        x=alt.X("page_kb:O", title="flash page, KB", axis=alt.Axis(labelAngle=0)),
        y=alt.Y(
            "space_utilisation_pct:Q",
            title="data over pages taken, %" if one else "written data over pages taken, %",
            scale=alt.Scale(domain=[0, 100]),
        ),
        xOffset=alt.XOffset("op:N") if one else alt.XOffset("trace:N", sort=_traces(rows)),
        color=_op_colour(rows) if one else _trace_colour(rows),
        tooltip=tooltip(rows),
    )


def io_over_time(rows: Rows) -> Chart:
    """Data read and written over time, writes on top of reads."""
    return (
        chart_of(rows)
        .transform_calculate(read="datum.read_kb / datum.width_s", write="datum.write_kb / datum.width_s")
        .transform_calculate(end_s="datum.time_s + datum.width_s")
        .transform_fold(["read", "write"], ["op", "kb_per_s"])
        .transform_calculate(bottom="datum.op == 'read' ? 0 : datum.read")
        .transform_calculate(top="datum.bottom + datum.kb_per_s")
        .mark_rect()
        .encode(
            x=alt.X("time_s:Q", title="time, s"),
            x2="end_s:Q",
            y=alt.Y("bottom:Q", title="KB/s"),
            y2="top:Q",
            color=_op_colour([{"op": "read"}, {"op": "write"}]),
            tooltip=tooltip(rows),
        )
        .properties(height=200)
    )


def queue_depth_over_time(rows: Rows) -> Chart:
    """Unfinished requests over time: the mean as bars, the largest as points."""
    base = chart_of(rows).transform_calculate(
        end_s="datum.time_s + datum.width_s", middle_s="datum.time_s + datum.width_s / 2", bottom="0"
    )
    y = alt.Y("mean_depth:Q", title="unfinished requests on arrival")
    mean = base.mark_rect().encode(
        x=alt.X("time_s:Q", title="time, s"), x2="end_s:Q", y=y, y2="bottom:Q", tooltip=tooltip(rows)
    )
    most = base.mark_point(size=14, opacity=0.6, color=OP_COLOURS["write"]).encode(
        x="middle_s:Q", y="max_depth:Q", tooltip=tooltip(rows)
    )
    return (mean + most).properties(height=200)


def address_time(rows: Rows) -> Chart:
    """Requests by time and address."""
    return (
        chart_of(rows)
        .transform_calculate(end_s="datum.time_s + datum.width_s", requests="datum.reads + datum.writes")
        .mark_rect()
        .encode(
            x=alt.X("time_s:Q", title="time, s"),
            x2="end_s:Q",
            y=alt.Y("low_mb:Q", title="address, MB"),
            y2="high_mb:Q",
            color=alt.Color(
                "requests:Q", title="requests", scale=alt.Scale(type="log"), legend=alt.Legend(tickCount=3)
            ),
            tooltip=tooltip(rows),
        )
    )


def wake_up(rows: Rows) -> Chart:
    """Delay of requests by the idle gap before them."""
    bins = _order(rows, "bin")
    base = (
        chart_of(rows)
        .transform_calculate(median="datum.median_delay_ms", slow="datum.p90_delay_ms")
        .transform_fold(["median", "slow"], ["of", "delay_ms"])
        .transform_calculate(of="datum.of == 'slow' ? '90th percentile' : 'median'")
        .transform_calculate(shown_ms="max(datum.delay_ms, 0.001)")
        .encode(
            x=alt.X(
                "bin:N",
                sort=bins,
                title="idle gap before the request",
                axis=alt.Axis(labelAngle=-40, labelOverlap=False),
            ),
            y=alt.Y("shown_ms:Q", title="delay, ms", scale=alt.Scale(type="log"), axis=alt.Axis(format="~r")),
            color=alt.Color("of:N", title=None),
            tooltip=tooltip(rows),
        )
    )
    return base.mark_line() + base.mark_point(filled=True, size=45)


def process_share(rows: Rows) -> Chart:
    """Data by process."""
    shown = 12
    return (
        chart_of(rows)
        .transform_calculate(all_kb="datum.read_kb + datum.write_kb")
        .transform_window(rank="row_number()", sort=[alt.SortField("all_kb", order="descending")])
        .transform_filter(f"datum.rank <= {shown}")
        .transform_calculate(read="datum.read_kb / 1024", write="datum.write_kb / 1024")
        .transform_fold(["read", "write"], ["op", "mb"])
        .mark_bar()
        .encode(
            y=alt.Y("process:N", sort=alt.SortField("rank"), title=None),
            x=alt.X("mb:Q", title="data, MB"),
            color=_op_colour([{"op": "read"}, {"op": "write"}]),
            tooltip=tooltip(rows),
        )
        .properties(height=20 * min(shown, len({row["process"] for row in rows})))
    )


def flags(rows: Rows) -> Chart:
    """Requests by flag, and flushes."""
    several = {"xOffset": alt.XOffset("trace:N", sort=_traces(rows))} if len(_traces(rows)) > 1 else {}
    return (
        chart_of(rows)
        .mark_bar()
        .encode(
            x=alt.X("flag:N", sort=_order(rows, "flag"), title=None, axis=alt.Axis(labelAngle=0)),
            y=alt.Y("pct:Q", title="share of requests, %"),
            color=_trace_colour(rows),
            tooltip=tooltip(rows),
            **several,
        )
    )


#: Every figure, in the order of the page.
FIGURES = (
    Figure(
        "throughput_by_size",
        "Figure 3: throughput by request size",
        "All data over all service time of the requests in a range. The published axis ends at 16 MB.",
        throughput_by_size,
        paper=True,
        needs="high_kb",
    ),
    Figure(
        "size_distribution",
        "Figure 4: request sizes",
        "Share of requests by size.",
        size_distribution,
        paper=True,
    ),
    Figure(
        "response_distribution",
        "Figure 5: response times",
        "From arrival to completion.",
        response_distribution,
        paper=True,
    ),
    Figure(
        "inter_arrival_distribution",
        "Figure 6: inter-arrival times",
        "From one arrival to the next.",
        inter_arrival_distribution,
        paper=True,
    ),
    Figure(
        "io_over_time",
        "I/O over time",
        "Data read and written in equal steps of time.",
        io_over_time,
        each=True,
        wide=True,
    ),
    Figure(
        "address_time",
        "Addresses over time",
        "Where requests start; fuller colours are more requests. Lines are streams, bands are hot regions.",
        address_time,
        each=True,
        wide=True,
    ),
    Figure(
        "wake_up",
        "Waking up",
        "Delay between fetch and submission (or the service time) by the idle gap before: a step shows the "
        "device's power-saving threshold and what waking costs.",
        wake_up,
        each=True,
    ),
    Figure(
        "idle_gaps",
        "Idle time",
        "Idle time by the length of its gaps; garbage collection can hide in the long ones.",
        idle_gaps,
    ),
    Figure(
        "service_distribution",
        "Service times",
        "From fetch by the driver to completion.",
        service_distribution,
    ),
    Figure(
        "queue_depth",
        "Queue depth",
        "Unfinished requests that an arriving one finds; 0 is no-wait.",
        queue_depth,
    ),
    Figure(
        "queue_depth_over_time",
        "Queue depth over time",
        "Bars: the mean that arriving requests find. Points: the largest.",
        queue_depth_over_time,
        each=True,
        wide=True,
    ),
    Figure("working_set", "Working set", "Unique 4 KB pages touched so far.", working_set),
    Figure(
        "reuse_distance",
        "Hit rate of a buffer",
        "Page touches that a least-recently-used buffer of a size would catch, from reuse distances.",
        reuse_distance,
        needs="high_kb",
    ),
    Figure("hot_pages", "Hot pages", "How much goes to the hottest 1, 5 and 20 % of pages.", hot_pages),
    Figure(
        "update_interval",
        "Update intervals",
        "Time between two writes of the same 4 KB page.",
        update_interval,
    ),
    Figure(
        "sequential_runs",
        "Sequential runs",
        "Requests in runs in which each starts where its predecessor ended.",
        sequential_runs,
    ),
    Figure(
        "alignment",
        "Page size and space",
        "Data over the flash pages it would take, each request padded to whole pages: space utilisation.",
        alignment,
    ),
    Figure(
        "process_share",
        "Processes",
        "Who reads and writes: the twelve processes with most data.",
        process_share,
        each=True,
    ),
    Figure("flags", "Flags and flushes", "Requests with a flag, and flush requests.", flags),
)
