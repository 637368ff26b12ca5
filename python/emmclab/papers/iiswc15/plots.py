"""The charts of the study `iiswc15`: converts results to rows, and rows to charts."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from emmclab.pages import plots
from emmclab.pages.plots import Chart, Rows, bare_chart, dots, in_order
from emmclab.pages.profile_figures import FIGURES
from emmclab.pages.theme import GREY
from emmclab.papers.iiswc15.hybrid import (
    EIGHT,
    EIGHT_ALIGNED,
    FOUR,
    HYBRID,
    PRIMARY,
    PUBLISHED,
    STRICT,
    mean_responses,
    readings,
    reductions,
    utilisation,
)
from emmclab.papers.measures import rate_by_size
from emmclab.papers.pages import Drawing
from emmclab.studies.results import Results, in_place, stand_ins, with_substitutes, without
from emmclab.traces.profile import Profile

_EIGHT, _ALIGNED = "8 KB pages", "8 KB pages, aligned"
_DEVICES = {FOUR: "4 KB pages", EIGHT: _EIGHT, HYBRID: "hybrid"}
#: Throughput values of Figure 3 that the paper states in its text: MB/s by operation and request size in KB.
_FIGURE_3 = {"read": {4: 13.94, 256: 99.65}, "write": {4: 5.18, 256: 19.0, 16384: 56.15}}


def drawings(results: Results) -> list[Drawing]:
    """Draw all charts in the order of the page, whose first screen shows the first three."""
    apps, combos = (
        [results.profiles[name] for name in names]
        for names in (_rows_of(results), with_substitutes(results, results.combos))
    )
    placed = in_place(results)
    return [
        _reductions(results),
        _readings(placed),
        _utilisation(results),
        _throughput(results),
        _distribution(apps, "size", "Figure 4: request sizes", "IISWC15 Fig.4"),
        _distribution(apps, "response", "Figure 5: response times", "IISWC15 Fig.5"),
        _distribution(apps, "inter_arrival", "Figure 6: inter-arrival times", "IISWC15 Fig.6"),
        _distribution(combos, "size", "Figure 7a: request sizes of the combos", "", "combo_"),
        _distribution(combos, "response", "Figure 7b: response times of the combos", "", "combo_"),
        _distribution(
            combos, "inter_arrival", "Figure 7c: inter-arrival times of the combos", "IISWC15 Fig.7", "combo_"
        ),
        _responses(results),
        _collection(results),
    ]


def _rows_of(results: Results) -> list[str]:
    """Return the applications, each followed by its recorded trace, if any, and then the user's own traces."""
    users_traces = [name for name in results.recorded if name not in stand_ins(results)]
    return with_substitutes(results, results.applications) + users_traces


def _shapes(orient: Any) -> alt.Legend:
    """Return a legend of shapes that is visible on light and dark backgrounds."""
    return alt.Legend(orient=orient, symbolFillColor=GREY, symbolStrokeColor=GREY)


def _published_rules(base: Chart, values: Sequence[float], axis: str) -> Chart:
    """Draw the published figures as dashed lines, which are no part of the chart's data."""
    rules = [
        base.mark_rule(strokeDash=[4, 3], strokeWidth=1.5, color=GREY).encode(**{axis: alt.datum(value)})
        for value in values
    ]
    return alt.layer(*rules)


def _reductions(results: Results) -> Drawing:
    sorted_gains = sorted(reductions(in_place(results), PRIMARY).items(), key=lambda item: item[1])
    synthetic_gains, recorded = reductions(without(results), PRIMARY), set(stand_ins(results).values())
    published = {"Movie": PUBLISHED["worst"], "Booting": PUBLISHED["best"]}
    rows: Rows = [
        {"trace": name, "reduction_pct": gain, "published_pct": published.get(name)}
        | ({"made_pct": synthetic_gains[name] if name in recorded else None} if recorded else {})
        for name, gain in sorted_gains
    ]
    base = bare_chart(rows, 20 * len(rows))
    y = alt.Y("trace:N", sort=in_order(rows, "trace"), title=None)
    x_axis = alt.X("reduction_pct:Q", title="mean response shortened, %")
    bars = base.mark_bar().encode(y=y, x=x_axis)
    points = (
        base.transform_filter("datum.published_pct != null")
        .mark_point(shape="diamond", filled=True, size=130, opacity=1, color="#e07b39", stroke="white")
        .encode(y=y, x="published_pct:Q")
    )
    chart = bars + _published_rules(base, [PUBLISHED["mean"]], "x") + points
    both = ""
    if recorded:
        circles = (
            base.transform_filter("datum.made_pct != null")
            .mark_point(size=70, strokeWidth=2, color=GREY)
            .encode(y=y, x="made_pct:Q")
        )
        chart += circles
        both = f" Recorded: {', '.join(name for name, _ in sorted_gains if name in recorded)}; circles: synthetic."
    return Drawing(
        "reduction",
        "Figure 8: gain of hybrid pages in mean response",
        f"Bars: here ({PRIMARY.text}). Diamonds and the dashed line: the paper's -86 % (Booting), -24.0 % (Movie) and "
        f"-61.9 % (mean); it gives no figures for other applications.{both}",
        rows,
        chart,
        "IISWC15 Fig.8",
    )


def _readings(results: Results) -> Drawing:
    rows = [
        {
            "trace": reading.label,
            "worst_pct": parts["worst"],
            "mean_pct": parts["mean"],
            "best_pct": parts["best"],
            "loop": "SSDsim" if reading.ssdsim else f"{reading.mode} loop, {reading.write_complete}",
        }
        for reading, parts in readings(results).items()
    ]
    base = bare_chart(rows, 20 * len(rows))
    axis = alt.Axis(labelLimit=220)
    y = alt.Y("trace:N", sort=in_order(rows, "trace"), title=None, axis=axis)
    colour = alt.Color("loop:N", title=None, sort=in_order(rows, "loop"), legend=None)
    spans = base.mark_bar(height=5, opacity=0.55).encode(
        y=y, x=alt.X("worst_pct:Q", title="shortened, %"), x2="best_pct:Q", color=colour
    )
    means = base.mark_point(filled=True, size=70).encode(y=y, x="mean_pct:Q", color=colour)
    chart = spans + _published_rules(base, list(PUBLISHED.values()), "x") + means
    return Drawing(
        "readings",
        "Figure 8 under every reading",
        "From the worst to the best application, with the mean as a point, for each reading of what the paper leaves "
        "open: loop, completion of writes, parallelism. Dashed: the paper's 24.0, 61.9 and 86 %.",
        rows,
        chart,
    )


def _utilisation(results: Results) -> Drawing:
    rows: Rows = []
    for name in _rows_of(results):
        use, aligned = (utilisation(results, name, eight) for eight in (EIGHT, EIGHT_ALIGNED))
        rows.append({"trace": name, _EIGHT: use["8ps"], _ALIGNED: aligned["8ps"], "hybrid": use["hps"]})
    rows.sort(key=lambda row: row[_EIGHT])
    x = alt.X("utilisation:Q", title="space utilisation, of 4 KB pages", scale=alt.Scale(domain=[0.6, 1.0]))
    devices = [_EIGHT, "hybrid", _ALIGNED]
    below = alt.Legend(orient="bottom", columns=2)
    chart = dots(rows, "trace", x, "device", devices).encode(
        color=alt.Color("device:N", title=None, sort=devices, legend=below)
    )
    chart = chart.transform_fold(["hybrid", _ALIGNED, _EIGHT], ["device", "utilisation"])
    return Drawing(
        "utilisation",
        "Figure 9: space utilisation of hybrid pages",
        "Data written over flash space consumed, 4 KB pages = 1. The paper: hybrid pages equal to 4 KB "
        "pages, and +24.2 % against 8 KB pages at best (Music), +13.1 % on average. Its 8 KB pages take 4 KB "
        "units from any address; aligned ones are the other reading.",
        rows,
        chart,
        "IISWC15 Fig.9",
    )


def _throughput(results: Results) -> Drawing:
    placed = in_place(results)
    apps = [placed.profiles[name] for name in placed.applications]
    sources: list[tuple[str, list[Profile]]] = [("here", apps)]
    if stand_ins(results):
        profiles_by_name = without(results).profiles
        sources.append(("synthetic alone", [profiles_by_name[name] for name in placed.applications]))
    sources += [(name, [results.profiles[name]]) for name in placed.recorded]
    rows: Rows = []
    for op, rates in _FIGURE_3.items():
        rows += [{"trace": "published", "op": op, "size_kb": size, "mb_per_s": rate} for size, rate in rates.items()]
        for name, profiles in sources:
            for power in range(2, 15):
                rate = rate_by_size(profiles, op, 2.0**power)
                if rate is not None:
                    rows.append({"trace": name, "op": op, "size_kb": 2**power, "mb_per_s": rate})
    base = bare_chart(rows).encode(
        x=alt.X("size_kb:Q", title="request size, KB", scale=alt.Scale(type="log", base=2)),
        y=alt.Y("mb_per_s:Q", title="MB/s", scale=alt.Scale(type="log")),
        color=alt.Color("op:N", title=None),
    )
    # Measured values are drawn as lines, and published values as marks: two sets of marks would hide each other.
    names = [name for name, _ in sources]
    dashes = alt.Legend(orient="bottom", symbolStrokeColor=GREY, symbolType="stroke")
    lines = (
        base.transform_filter("datum.trace != 'published'")
        .mark_line()
        .encode(strokeDash=alt.StrokeDash("trace:N", title=None, sort=names, legend=dashes))
    )
    published_points = (
        base.transform_filter("datum.trace == 'published'")
        .mark_point(shape="diamond", filled=True, size=130, opacity=1, stroke="white")
        .encode(tooltip=plots.tooltip(rows))
    )
    return Drawing(
        "throughput",
        "Figure 3: throughput by request size",
        "Lines: mean rate of requests of exactly these sizes. Diamonds: the paper's figures; the models' "
        "service times follow its end points.",
        rows,
        lines + published_points,
        "IISWC15 Fig.3",
    )


def _distribution(profiles: Sequence[Profile], quantity: str, title: str, source: str, prefix: str = "") -> Drawing:
    figure = next(candidate for candidate in FIGURES if candidate.name == f"{quantity}_distribution")
    rows = [
        {key: value for key, value in row.items() if key in ("trace", "op", "bin", "pct")}
        for row in figure.rows(profiles)
        if row.get("op", "all") == "all"
    ]
    chart = figure.draw(rows)
    return Drawing(f"{prefix}{quantity}", title, "Share of all requests.", rows, chart, source)


def _responses(results: Results) -> Drawing:
    rows: Rows = []
    for reading in (PRIMARY, STRICT):
        for device, label in _DEVICES.items():
            means = mean_responses(results, reading, device)
            rows += [
                {"trace": name, "device": label, "complete": reading.write_complete, "mean_response_ms": means[name]}
                for name in _rows_of(results)
            ]
    x = alt.X("mean_response_ms:Q", title="mean response, ms", scale=alt.Scale(type="log"))
    shape = alt.Shape("complete:N", title=None, sort=["transferred", "programmed"], legend=_shapes("top"))
    below = alt.Legend(orient="bottom", columns=3)
    colour = alt.Color("device:N", title=None, sort=list(_DEVICES.values()), legend=below)
    chart = dots(rows, "trace", x, "device").encode(shape=shape, color=colour)
    return Drawing(
        "mean_response",
        "Figure 8: mean response times",
        "Open loop, one operation per chip; coloured by device, shaped by the completion of writes.",
        rows,
        chart,
        "",
        wide=True,
    )


def _collection(results: Results) -> Drawing:
    rows = [
        {
            "trace": run.input,
            "collection": "in idle gaps" if run.settings["gc.idle_after_us"] else "on demand",
            "wait_gc_ms": run.waits.gc_ms,
            "write_amplification": run.write_amplification.waf,
        }
        for run in results.select("idle-gc")
    ]
    x = alt.X("shown:Q", title="mean wait for collection, ms", scale=alt.Scale(type="log"), axis=alt.Axis(format="~r"))
    chart = dots(rows, "trace", x, "collection", ["on demand", "in idle gaps"])
    chart = chart.transform_calculate(shown="max(datum.wait_gc_ms, 0.001)")
    return Drawing(
        "collection",
        "Implication 2: collection in idle gaps",
        "A 1 GB device in steady state: mean wait of a request for garbage collection.",
        rows,
        chart,
        "IISWC15 Implication 2",
        wide=True,
    )
