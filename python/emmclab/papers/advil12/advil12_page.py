"""The page of the study `advil12`: claims, Figures 7 to 9, and the work of each layer."""

from collections.abc import Mapping

import altair as alt

from emmclab.pages.plots import Rows, bare_chart
from emmclab.papers.advil12.bandwidth import DRAWN, PUBLISHED, VARIANTS, bandwidths, gains, lengths, pattern
from emmclab.papers.measures import table
from emmclab.papers.pages import Drawing, PageContent, bars_by_trace
from emmclab.runtime.document import Cells, Heading, Number, TextTable, number_cell
from emmclab.simulation.result_fields import layer_field
from emmclab.studies.results import Results

#: Counters of a layer that the page lists, with their column headings.
_COUNTS = {
    "logged_writes": "Logged",
    "passed_writes": "Passed",
    "rewritten_bytes": "Rewritten in the log, MB",
    "moved_bytes": "Moved, MB",
    "padded_bytes": "Padded, MB",
    "hot_bytes": "Kept hot, MB",
    "filled_blocks": "Blocks filled",
    "held_full": "Held for room",
    "memory_bytes": "Memory, MB",
}


_TABLE1 = (*("Device", "Capacity, GB"), *("Clustered page, KB", "Clustered block, MB"))
_TABLE2 = (
    *("Device", "Unit, KB", "Sequential read, MB/s", "Sequential write, MB/s"),
    *("Random read, MB/s", "Random write, MB/s"),
)


def content(results: Results, _measured: Mapping[str, str]) -> PageContent:
    """Return the texts and tables of the page."""
    return PageContent(
        lead=[
            f"{results.about['about']}, run again: {results.about['cells']:,} profiles and simulations of "
            f"{len(results.profiles)} workloads. The paper's recordings of phones are not public: here Phone_6H "
            "consists of models of the same kinds of applications, WebBench is a browser that opens 50 web "
            "sites on the model of a phone, and Postmark runs on a model of ext4. All are replayed back to "
            "back, one request at a time."
        ],
        tables=[
            Heading("Tables I and II as published: devices and their bandwidths"),
            TextTable("Table I", _TABLE1, [list(row.values()) for row in table("advil12_table1_devices")]),
            TextTable("Table II", _TABLE2, [list(row.values()) for row in table("advil12_table2_bandwidth")]),
            *_rates(results).titled(),
            *_counts(results).titled(),
        ],
    )


def _rates(results: Results) -> TextTable:
    bare = bandwidths(results, "bare")
    until, drained = ([gains(results, grid, drained=drain) for grid in VARIANTS] for drain in (False, True))

    def cell(gain: float | None, with_drain: float | None) -> Number:
        return Number("–" if gain is None else f"{gain:.2f} ({with_drain:.2f})", gain)

    rows: list[Cells] = [
        [
            name,
            number_cell(rate, 3),
            *(cell(before.get(name), after.get(name)) for before, after in zip(until, drained, strict=True)),
        ]
        for name, rate in bare.items()
    ]
    headings = ["Workload", "Bare, MB/s", *(f"{label}, x" for label in VARIANTS.values())]
    title = "Write bandwidth, and gain of the layers: until the last request (with the log drained)"
    return TextTable(title, headings, rows, style="sortable")


def _counts(results: Results) -> TextTable:
    rows: list[Cells] = [
        [run.input, VARIANTS[grid], *(layer_field(key).text(run.layers[0].get(key)) for key in _COUNTS)]
        for grid in VARIANTS
        for run in results.select(grid)
    ]
    return TextTable("Counts of the layers", ["Workload", "Layer", *_COUNTS.values()], rows, 2)


def drawings(results: Results) -> list[Drawing]:
    """Draw Figures 7, 8 and 9; Figure 9 without and with the layer."""
    return [
        _bars(
            results,
            "figure7",
            "Figure 7: write bandwidth over the bare device",
            "Bars: simulated, until the last request. Diamonds: figures in the text of the paper.",
            {grid: VARIANTS[grid] for grid in ("ressd", "advil", "data", "rewritten")},
            "Advil12 Fig.7",
            PUBLISHED,
        ),
        _bars(
            results,
            "figure8",
            "Figure 8: gains of padding and of hot data",
            "None is ReSSD. With the last bar, only clustered pages that were overwritten in the log stay in it.",
            {
                "ressd": "None",
                "padding": "Padding only",
                "advil": "Padding + hot/cold",
                "data": "Padding + overwritten data",
                "rewritten": "Padding + rewritten",
            },
            "Advil12 Fig.8",
            {},
        ),
        _length(results),
        _pattern(results, "bare", "a", "without Advil", ""),
        _pattern(results, "advil", "b", "with Advil", "Advil12 Fig.9"),
    ]


def _bars(
    results: Results, name: str, title: str, about: str, grids: dict[str, str], source: str, published: dict[str, float]
) -> Drawing:
    rows: Rows = [
        {
            "trace": workload,
            "layer": label,
            "gain": gain,
            "published": published.get(workload) if grid == "advil" else None,
        }
        for grid, label in grids.items()
        for workload, gain in gains(results, grid).items()
    ]
    marks = "published" if published else ""
    chart = bars_by_trace(
        rows, "gain", "of the bare device", "layer", order=list(grids.values()), columns=3, published=marks
    )
    return Drawing(name, title, about, rows, chart, source, wide=True)


def _length(results: Results) -> Drawing:
    """Draw the gain of each layer by the length of a recording, without and with the final drain of its log."""
    rows: Rows = [
        {"trace": "Browsing", "layer": f"{row['layer']}{until}", "requests": row["requests"], "gain": gain}
        for row in lengths(results)
        for gain, until in ((row["gain"], ""), (row["drained"], ", drained"))
    ]
    chart = (
        bare_chart(rows, 260)
        .mark_line(point=True)
        .encode(
            x=alt.X("requests:Q", title="requests of the recording", scale=alt.Scale(type="log")),
            y=alt.Y("gain:Q", title="of the bare device", scale=alt.Scale(zero=False)),
            color=alt.Color("layer:N", title=None, legend=alt.Legend(columns=2, orient="bottom")),
        )
    )
    return Drawing(
        "length",
        "Gain by the length of the recording",
        "Not in the paper. Browsing for 144 hours, truncated after a number of requests: a short recording "
        "stays in the log, the data of a long one has to be moved. Drained: including the time to move the "
        "data that the log contains at the end.",
        rows,
        chart,
        "",
        wide=True,
    )


def _pattern(results: Results, grid: str, letter: str, words: str, source: str) -> Drawing:
    rows: Rows = [
        {"trace": DRAWN, "write": number, "sector": sector, "kb": sectors / 2}
        for number, (sector, sectors) in enumerate(pattern(results, grid))
    ]
    chart = (
        bare_chart(rows, 260)
        .mark_circle(size=6, opacity=0.7)
        .encode(
            x=alt.X("write:Q", title="write to the original area"),
            y=alt.Y("sector:Q", title="first sector"),
            color=alt.Color("kb:Q", title="KB", scale=alt.Scale(type="log")),
        )
    )
    return Drawing(
        f"figure9{letter}",
        f"Figure 9 ({letter}): writes to the eMMC {words}",
        f"The first {len(rows):,} writes of {DRAWN} that reach the original area.",
        rows,
        chart,
        source,
        wide=True,
    )
