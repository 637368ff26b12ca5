"""The figures of the study `phones`: turns results into rows, and rows into charts."""

from __future__ import annotations

from collections.abc import Callable

import altair as alt

from emmclab.pages.plots import Chart, Rows, chart_of, dots, in_order, tooltip
from emmclab.pages.theme import GREY
from emmclab.papers.measures import share
from emmclab.papers.page_charts import Drawing
from emmclab.papers.phones.runs import (
    UFS,
    as_recorded,
    booster_life_tb,
    by_input,
    cells_life_tb,
    device_of,
    in_use,
    mean_ms,
    new_devices,
    on_new,
    programmed,
    swept,
    workloads_of,
)
from emmclab.simulation.result import at
from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run
from emmclab.traces.profile import Profile

#: Parts of the mean response, with their descriptions.
WAITS = {
    "queue_ms": "behind earlier requests",
    "controller_ms": "driver, controller, link",
    "bus_ms": "flash bus",
    "array_ms": "flash array",
    "gc_ms": "collection",
    "wake_up_ms": "waking up",
}
_LOG = alt.Scale(type="log")
#: The device for each fill level of `fill_levels`: grid, settings and level in percent.
_FILLED: tuple[tuple[str, dict[str, int], int], ...] = (
    ("new", {}, 0),
    ("booster", {"slc__blocks": 60}, 80),
    ("filled", {}, 90),
    ("full", {}, 95),
)
DROPPED, RAW = "mended, re-issues dropped", "as recorded"


def drawings(results: Results) -> list[Drawing]:
    """Draw all figures; the first one is shown on the first screen."""
    return [
        _responses(results, "mean", "mean_response_ms"),
        _responses(results, "p99", "p99_ms"),
        _waits(results),
        _used(results),
        _hibernation(results),
        _cliff(results),
        _fill(results),
        _booster_waf(results),
        _life(results),
        _pages_written(results),
        _pages_response(results),
        _blocks_written(results),
        _blocks_response(results),
        _reissues(results),
    ]


def _below(columns: int = 3) -> alt.Legend:
    return alt.Legend(orient="bottom", columns=columns, labelLimit=220)


def _colour(rows: Rows, field: str, columns: int = 3) -> alt.Color:
    return alt.Color(f"{field}:N", title=None, sort=in_order(rows, field), legend=_below(columns))


def _shape(rows: Rows, field: str) -> alt.Shape:
    legend = alt.Legend(orient="bottom", columns=1, symbolFillColor=GREY, symbolStrokeColor=GREY)
    return alt.Shape(f"{field}:N", title=None, sort=in_order(rows, field), legend=legend)


def _points(rows: Rows, value: str, title: str, colour: str, shape: str = "", *, log: bool = False) -> Chart:
    """Draw a line for each workload, with points whose colour and shape show fields."""
    scale = _LOG if log else alt.Scale(zero=False)
    axis = alt.Axis(format="~r", labelOverlap=True) if log else alt.Axis(format=",~r")
    x = alt.X(f"{value}:Q", title=title, scale=scale, axis=axis)
    chart = dots(rows, "trace", x, colour).encode(color=_colour(rows, colour), tooltip=tooltip(rows))
    return chart.encode(shape=_shape(rows, shape)) if shape else chart


def _lines(rows: Rows, x: alt.X, y: alt.Y, dash: str = "") -> Chart:
    """Draw a line with points for each workload."""
    chart = chart_of(rows).encode(x=x, y=y, color=_colour(rows, "trace", 2), tooltip=tooltip(rows))
    if dash:
        legend = alt.Legend(orient="bottom", columns=2, symbolStrokeColor=GREY, symbolType="stroke")
        chart = chart.encode(
            strokeDash=alt.StrokeDash(f"{dash}:N", title=None, sort=in_order(rows, dash), legend=legend)
        )
    return chart.mark_line() + chart.mark_point(filled=True, size=45)


def _axis_y(value: str, title: str, *, log: bool = False) -> alt.Y:
    scale = _LOG if log else alt.Scale(zero=False)
    axis = alt.Axis(tickCount=5, format="~r") if log else alt.Axis(format=",~r")
    return alt.Y(f"{value}:Q", title=title, scale=scale, axis=axis)


def _size(rows: Rows, title: str) -> alt.X:
    """Return the axis of a size, which has only a few values."""
    return alt.X("size_gb:O", sort=in_order(rows, "size_gb"), title=title, axis=alt.Axis(labelAngle=0))


def _responses(results: Results, name: str, field: str) -> Drawing:
    rows = [
        {"trace": workload, "device": device, f"{name}_ms": at(runs[workload], f"response.{field}")}
        for device in new_devices(results)
        for runs in [on_new(results, device)]
        for workload in workloads_of(results)
        if workload in runs
    ]
    words = {"mean": "Mean response", "p99": "Slowest request of a hundred"}[name]
    return Drawing(
        f"{name}_response",
        f"{words} on each device, new",
        "Open loop, ms on a logarithmic axis; devices scaled to 128 GB.",
        rows,
        _points(rows, f"{name}_ms", f"{name} response, ms", "device", log=True),
        wide=True,
    )


def _waits(results: Results) -> Drawing:
    rows: Rows = []
    for workload in workloads_of(results):
        for device in new_devices(results):
            run = on_new(results, device).get(workload)
            waits: dict[str, float] = {part: at(run, f"waits.{part}") for part in WAITS} if run else {}
            whole = sum(waits.values())
            if not whole:
                continue
            rows += [
                {
                    "trace": workload,
                    "place": f"{workload} on {device}",
                    "part": words,
                    "ms": waits[part],
                    "pct": 100 * waits[part] / whole,
                }
                for part, words in WAITS.items()
            ]
    places = in_order(rows, "place")
    order = alt.Order("at:Q")
    chart = (
        chart_of(rows, 15 * len(places))
        .transform_calculate(at=f"indexof({list(WAITS.values())!r}, datum.part)")
        .mark_bar()
        .encode(
            y=alt.Y("place:N", sort=places, title=None, axis=alt.Axis(labelLimit=240)),
            x=alt.X("pct:Q", title="share of the mean response, %", scale=alt.Scale(domain=[0, 100])),
            color=_colour(rows, "part"),
            order=order,
            tooltip=tooltip(rows),
        )
    )
    return Drawing(
        "where_time_goes",
        "Where the time of a request goes",
        "Parts of the mean response on new devices, in percent of it; the data have them in ms.",
        rows,
        chart,
        wide=True,
    )


def _used(results: Results) -> Drawing:
    rows = [
        {
            "trace": run["input"],
            "device": device_of(run),
            "new_ms": mean_ms(new),
            "used_ms": mean_ms(run),
            "ratio": mean_ms(run) / mean_ms(new),
        }
        for run in results.select("filled")
        if (new := on_new(results, device_of(run)).get(run["input"])) is not None
    ]
    return Drawing(
        "used_devices",
        "A used device against a new one",
        "Mean response on a device that is 90 % full over that on a new one; 1 is no difference.",
        rows,
        _points(rows, "ratio", "mean response, used / new", "device", log=True),
    )


def _hibernation(results: Results) -> Drawing:
    rows = [
        {
            "trace": run["input"],
            "idle_ms": run["settings"]["power.sleep_after_us"] / 1000,
            "mean_ms": mean_ms(run),
            "wake_up_ms": run["waits"]["wake_up_ms"],
            "hibernated_pct": run["ufs"]["hibernated_pct"],
        }
        for run in results.select("hibernation")
    ]
    x = alt.X("idle_ms:Q", title="hibernates after, ms", scale=_LOG, axis=alt.Axis(format="~r", tickCount=5))
    return Drawing(
        "eager_hibernation",
        "What eager hibernation costs",
        f"Mean response on {UFS} by the silence after which it hibernates. Linux asks for 150 ms.",
        rows,
        _lines(rows, x, _axis_y("mean_ms", "mean response, ms", log=True)),
    )


def _booster_rows(results: Results) -> Rows:
    """Return the runs without WriteBooster and with each size of it, on a device that is 80 % full."""
    rows: Rows = []
    for run in (*results.select("no-booster"), *results.select("booster")):
        booster = run["ufs"]["write_booster"]
        host = run["requests"]["bytes_written"]
        rows.append(
            {
                "trace": run["input"],
                "size_gb": round((booster["size_bytes"] if booster else 0) / 2**30, 2),
                "mean_ms": mean_ms(run),
                "p99_ms": run["response"]["p99_ms"],
                "past_it_pct": 100 * (booster["bytes_past_it"] if booster else 0) / max(host, 1),
                "waf": run["write_amplification"]["waf"],
                "booster_life_tb": booster_life_tb(run),
                "cells_life_tb": cells_life_tb(run),
            }
        )
    return sorted(rows, key=lambda row: row["size_gb"])


def _fields(rows: Rows, *names: str) -> Rows:
    return [{name: row[name] for name in names} for row in rows]


def _cliff(results: Results) -> Drawing:
    rows = _fields(_booster_rows(results), "trace", "size_gb", "mean_ms", "p99_ms", "past_it_pct")
    y = _axis_y("mean_ms", "mean response, ms", log=True)
    return Drawing(
        "booster_cliff",
        "The cliff: mean response by the size of WriteBooster",
        f"{UFS}, 80 % full; 0 is without it. The data have the share of written bytes that went past it.",
        rows,
        _lines(rows, _size(rows, "size of WriteBooster, GB"), y),
    )


def fill_levels(results: Results) -> Rows:
    """Return the responses of a UFS by its fill level."""
    return [
        {
            "trace": name,
            "full_pct": level,
            "mean_ms": mean_ms(run),
            "p99_ms": run["response"]["p99_ms"],
            "past_it_mb": at(run, "ufs.write_booster.bytes_past_it") / 1e6,
        }
        for grid, settings, level in _FILLED
        for name, run in by_input(results, grid, UFS, **settings).items()
        if name in workloads_of(results)
    ]


def _fill(results: Results) -> Drawing:
    rows = fill_levels(results)
    x = alt.X("full_pct:Q", title="data in the capacity, %", scale=alt.Scale(domain=[0, 100]))
    return Drawing(
        "fill_level",
        "Mean response by how full the device is",
        f"{UFS} with its WriteBooster of 4 GB, filled in order.",
        rows,
        _lines(rows, x, _axis_y("mean_ms", "mean response, ms", log=True)),
    )


def _booster_waf(results: Results) -> Drawing:
    rows = _fields(_booster_rows(results), "trace", "size_gb", "waf")
    return Drawing(
        "booster_waf",
        "What WriteBooster writes: WAF by its size",
        "Bytes programmed over bytes that the host wrote, all causes.",
        rows,
        _lines(rows, _size(rows, "size of WriteBooster, GB"), _axis_y("waf", "WAF")),
    )


def _life(results: Results) -> Drawing:
    rows: Rows = []
    for field, words in (("booster_life_tb", "WriteBooster's blocks"), ("cells_life_tb", "all other blocks")):
        rows += [
            {"trace": row["trace"], "size_gb": row["size_gb"], "blocks": words, "life_tb": row[field]}
            for row in _booster_rows(results)
            if row[field] is not None
        ]
    x = _size(sorted(rows, key=lambda row: row["size_gb"]), "size of WriteBooster, GB")
    return Drawing(
        "booster_life",
        "Lifetime by the size of WriteBooster",
        "TB that the host can write of such a workload until these blocks have had all their erases, if they "
        "wear evenly: 50,000 in SLC mode, 3,000 otherwise (the class; assumed).",
        rows,
        _lines(rows, x, _axis_y("life_tb", "written by the host, TB", log=True), "blocks"),
    )


def page_layouts(results: Results) -> Rows:
    """Return bytes written and speed for each page size, with and without WriteBooster, new and used."""
    both = f"{UFS}-hps"
    cases: list[tuple[str, str, str, dict[str, Run]]] = [
        ("16 KB", "new", "without", by_input(results, "pages-16k")),
        ("1/8 of 4 KB", "new", "without", by_input(results, "pages-hybrid", both)),
        ("4 KB", "new", "without", by_input(results, "pages-4k")),
        ("16 KB", "80 % full", "without", by_input(results, "no-booster")),
        ("1/8 of 4 KB", "80 % full", "without", by_input(results, "pages-hybrid-used", both)),
        ("1/2 of 4 KB", "80 % full", "without", by_input(results, "pages-half-used", both)),
        ("16 KB", "new", "with", on_new(results, UFS)),
        ("1/8 of 4 KB", "new", "with", by_input(results, "pages-hybrid-booster", both)),
    ]
    return [
        {
            "trace": name,
            "pages": pages,
            "state": state,
            "booster": f"{booster} booster",
            "waf": runs[name]["write_amplification"]["waf"],
            "utilisation": runs[name]["space"]["space_utilisation"],
            "mean_ms": mean_ms(runs[name]),
            "p99_ms": runs[name]["response"]["p99_ms"],
        }
        for pages, state, booster, runs in cases
        for name in workloads_of(results)
        if name in runs
    ]


def _pages_written(results: Results) -> Drawing:
    rows = [row for row in page_layouts(results) if row["state"] == "new"]
    return Drawing(
        "pages_written",
        "What pages of two sizes write: WAF",
        "New devices. Pages of 4 KB hold what does not fill one of 16 KB; WriteBooster has pages of 16 KB "
        "alone. The data have the space utilisation, too.",
        rows,
        _points(rows, "waf", "WAF", "pages", "booster"),
    )


def _pages_response(results: Results) -> Drawing:
    rows = [row for row in page_layouts(results) if row["booster"].startswith("without")]
    return Drawing(
        "pages_response",
        "How fast pages of each size are",
        "Without WriteBooster, ms on a logarithmic axis.",
        rows,
        _points(rows, "mean_ms", "mean response, ms", "pages", "state", log=True),
    )


def file_system_blocks(results: Results) -> Rows:
    """Return bytes written and speed for each block size of the file system, compared with 4 KB."""
    rows: Rows = []
    for grid, booster in (("blocks", "without"), ("blocks-booster", "with")):
        sizes = swept(results, grid, "host.block_kb")
        base = by_input(results, grid, host__block_kb=min(sizes))
        for size in sizes:
            for name, run in by_input(results, grid, host__block_kb=size).items():
                host = base[name]["requests"]["bytes_written"]
                rows.append(
                    {
                        "trace": name,
                        "blocks": f"{size} KB",
                        "booster": f"{booster} booster",
                        "host_ratio": run["requests"]["bytes_written"] / host,
                        "flash_ratio": programmed(run) / host,
                        "mean_ms": mean_ms(run),
                        "slower_pct": 100 * (mean_ms(run) / mean_ms(base[name]) - 1),
                    }
                )
    return rows


def _blocks_written(results: Results) -> Drawing:
    rows = _fields(file_system_blocks(results), "trace", "blocks", "booster", "host_ratio", "flash_ratio")
    return Drawing(
        "blocks_written",
        "What blocks of 16 KB in the file system write",
        f"Bytes programmed by {UFS} over bytes that the host writes in blocks of 4 KB.",
        rows,
        _points(rows, "flash_ratio", "programmed / written in blocks of 4 KB", "blocks", "booster"),
    )


def _blocks_response(results: Results) -> Drawing:
    found = [row for row in file_system_blocks(results) if row["blocks"] != "4 KB"]
    rows = _fields(found, "trace", "booster", "mean_ms", "slower_pct")
    return Drawing(
        "blocks_response",
        "How much slower requests in blocks of 16 KB are",
        f"Change of the mean response on {UFS} against blocks of 4 KB.",
        rows,
        _points(rows, "slower_pct", "mean response, %", "booster"),
    )


def _reissues(results: Results) -> Drawing:
    fields: dict[str, Callable[[Profile], float]] = {
        "writes": lambda profile: profile["write_requests_pct"],
        "4 KB": lambda profile: share(profile, "size_distribution", to=4),
        "spatial locality": lambda profile: profile["spatial_locality_pct"],
        "temporal locality": lambda profile: profile["temporal_locality_pct"],
    }
    raw = as_recorded(results)
    rows = [
        {
            "trace": name,
            "place": f"{name}, {words}",
            "treated": treated,
            "pct": field(results.profiles[source]),
        }
        for name in in_use(results)
        for words, field in fields.items()
        for treated, source in ((DROPPED, name), (RAW, raw.get(name)))
        if source is not None
    ]
    x = alt.X("pct:Q", title="% of the requests")
    chart = dots(rows, "place", x, "treated").encode(
        color=_colour(rows, "treated", 2),
        tooltip=tooltip(rows),
        y=alt.Y("place:N", sort=in_order(rows, "place"), title=None, axis=alt.Axis(labelLimit=240)),
    )
    return Drawing(
        "suspected_reissues",
        "What suspected re-issues and clock jumps change",
        "Shares of the same traces, with their suspected re-issues dropped and clock jumps mended, and as "
        "they were recorded.",
        rows,
        chart,
        wide=True,
        of_all=True,
    )
