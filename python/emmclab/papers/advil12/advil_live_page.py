"""The page of `advil-live`: claims, and Figure 7 and Table II with real programs instead of traces."""

from collections.abc import Sequence

import altair as alt

from emmclab.pages.plots import Rows, chart_of
from emmclab.papers.advil12.bandwidth import PUBLISHED, VARIANTS, bandwidths, gains
from emmclab.papers.advil12.live import SIMULATED, modelled, published_rates, rates
from emmclab.papers.claims import Claim
from emmclab.papers.page_charts import Drawing
from emmclab.papers.pages import assemble_page, claims_of
from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run

_LAYERS = ("ressd", "advil")
_MODES = {
    "read": "sequential read",
    "write": "sequential write",
    "randread": "random read",
    "randwrite": "random write",
}


def render(results: Results, judged: Sequence[Claim], drawn: Sequence[Drawing]) -> str:
    """Return the page; the same results give the same bytes."""
    bare = bandwidths(results, "bare")
    runs = [run for grid in ("bare", *_LAYERS) for run in results.select(grid)]
    found, paper = rates(results), published_rates()
    return assemble_page(
        results,
        judged,
        drawn,
        beside=claims_of(drawn, judged),
        lead=[
            f"{results.about['about']}: {results.about['cells']:,} runs. Times are those of the device; the "
            "host's do not count.",
            "Direct I/O of one request at a time depends on nothing else, but for the file system's own "
            "commits; Postmark and SQLite depend on when the kernel of the host writes back, so their "
            "figures differ from run to run. Unlike those of the paper, the layers also write the metadata "
            "that they need to recover after a loss of power.",
        ],
        facts=_facts(runs),
        labels=[VARIANTS[grid] for grid in _LAYERS],
        gains=[
            (
                name,
                rate,
                [
                    (
                        gains(results, grid, names=[name])[name],
                        gains(results, grid, names=[name], drained=True)[name],
                        modelled(results, grid, [name]).get(name),
                    )
                    for grid in _LAYERS
                ],
                PUBLISHED.get(name),
            )
            for name, rate in bare.items()
        ],
        asked=[
            (
                run["input"],
                VARIANTS.get(run["grid"], "none"),
                run["requests"]["write"],
                run["requests"]["bytes_written"] / 2**20,
                run["requests"]["bytes_written"] / 1024 / max(run["requests"]["write"], 1),
                run["run"]["simulated_s"],
                run["run"]["drain_s"],
            )
            for run in runs
        ],
        table2=[
            (_MODES[mode], kb, paper[mode, kb], found[mode, kb], 100 * (found[mode, kb] / paper[mode, kb] - 1))
            for mode, kb in paper
        ],
    )


def _facts(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return the file system and the tools of the host as lines of the provenance."""
    tools = sorted({item for run in runs for item in run["live"]["host"].items()})
    facts = [("Host", ", ".join(f"{name} {text}" for name, text in tools))]
    if runs:
        one = runs[0]["live"]["file_system"]
        text = f"{one['format']}, mounted with {one['mount_options']}, at most {one['dirty_mb']} MB yet to be "
        facts.append(("File system", text + "written in the page cache"))
    return facts


def drawings(results: Results) -> list[Drawing]:
    """Draw Figure 7, with live results next to simulated ones."""
    rows: Rows = []
    for grid in _LAYERS:
        for suffix, how in (("", "live"), (SIMULATED, "model")):
            for name, gain in gains(results, grid + suffix, "bare" + suffix).items():
                said = PUBLISHED.get(name) if (grid, suffix) == ("advil", "") else None
                label = f"{VARIANTS[grid]}, {how}"
                rows.append({"trace": name, "layer": label, "gain": gain, "published": said})
    order = [f"{VARIANTS[grid]}, {how}" for grid in _LAYERS for how in ("live", "model")]
    chart = chart_of(rows, 260)
    x = alt.X("trace:N", title=None, sort=None, axis=alt.Axis(labelAngle=-30, labelOverlap=False))
    offset = alt.XOffset("layer:N", sort=order)
    legend = alt.Legend(columns=2, orient="bottom")
    bars = chart.mark_bar().encode(
        x=x,
        xOffset=offset,
        y=alt.Y("gain:Q", title="of the bare device"),
        color=alt.Color("layer:N", title=None, sort=order, legend=legend),
    )
    said_marks = (
        chart.transform_filter("datum.published != null")
        .mark_point(shape="diamond", filled=True, size=130, opacity=1, color="#e07b39", stroke="white")
        .encode(x=x, xOffset=offset, y="published:Q")
    )
    about = "Bars: programs on ext4 on a served device, and models of them, until the last request. "
    about += "Diamonds: figures that the text of the paper gives."
    title = "Figure 7: write bandwidth over the bare device"
    return [Drawing("figure7", title, about, rows, bars + said_marks, "Fig.7", wide=True)]
