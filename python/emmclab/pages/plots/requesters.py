"""Charts about the processes that send requests, and about request flags."""

import json

import altair as alt

from emmclab.pages.plots.chart_parts import chart_of, in_order, op_colour, tooltip, trace_colour, traces_of
from emmclab.pages.plots.figure import Chart, Rows
from emmclab.pages.theme import FSYNC_COLOURS
from emmclab.traces.profile_fields import FSYNC_PARTS

#: Maximum number of processes with their own colour.
_COLOURED = 8


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
            color=op_colour([{"op": "read"}, {"op": "write"}]),
            tooltip=tooltip(rows),
        )
        .properties(height=20 * min(shown, len({row["process"] for row in rows})))
    )


def sync_stalls(rows: Rows) -> Chart:
    """The longest waits for durability over time, by process; processes with short waits share one colour."""
    waits: dict[str, float] = {}
    for row in rows:
        waits[row["process"]] = waits.get(row["process"], 0.0) + row["wait_ms"]
    named = sorted(waits, key=lambda name: -waits[name])[:_COLOURED]
    base = (
        chart_of(rows)
        .transform_calculate(
            of=f"indexof({json.dumps(named)}, datum.process) < 0 ? '(others)' : datum.process",
            shown_ms="max(datum.wait_ms, 0.001)",
        )
        .encode(
            x=alt.X("start_s:Q", title="time, s", scale=alt.Scale(nice=False)),
            y=alt.Y("shown_ms:Q", title="wait, ms", scale=alt.Scale(type="log"), axis=alt.Axis(format="~r")),
            color=alt.Color("of:N", title=None, sort=[*named, "(others)"]),
            tooltip=tooltip(rows),
        )
    )
    return base.mark_rule(strokeWidth=3).encode(x2="end_s:Q") + base.mark_point(filled=True, size=18)


def fsync_parts(rows: Rows) -> Chart:
    """The parts of the longest waits for durability: a stacked bar for each wait."""
    names = {field.name: field.label.lower() for field in FSYNC_PARTS}
    return (
        chart_of(rows, 22 * len(in_order(rows, "rank")))
        .transform_calculate(
            wait="datum.rank + '. ' + datum.process + ', ' + format(datum.start_s, ',.3f') + ' s'",
            of=f"({json.dumps(names)})[datum.part]",
            place=f"indexof({json.dumps(list(names))}, datum.part)",
        )
        .mark_bar()
        .encode(
            y=alt.Y("wait:N", title=None, sort=alt.SortField("rank")),
            x=alt.X("part_ms:Q", title="wait, ms", stack="zero"),
            color=alt.Color(
                "of:N",
                title=None,
                scale=alt.Scale(domain=list(names.values()), range=[FSYNC_COLOURS[name] for name in names]),
                legend=alt.Legend(columns=3),
            ),
            order="place:Q",
            tooltip=tooltip(rows),
        )
    )


def flags(rows: Rows) -> Chart:
    """Requests by flag, and flushes; a dash for what a format cannot record."""
    several = {"xOffset": alt.XOffset("trace:N", sort=traces_of(rows))} if len(traces_of(rows)) > 1 else {}
    base = chart_of(rows).encode(
        x=alt.X("flag:N", sort=in_order(rows, "flag"), title=None, axis=alt.Axis(labelAngle=0)),
        color=trace_colour(rows),
        **several,
    )
    bars = base.mark_bar().encode(y=alt.Y("pct:Q", title="share of requests, %"), tooltip=tooltip(rows))
    # A dash, not an empty bar, shows what the format of a trace cannot record.
    dashes = base.transform_filter("datum.pct === null").mark_text(text="–", baseline="bottom")
    return bars + dashes.encode(y=alt.datum(0))
