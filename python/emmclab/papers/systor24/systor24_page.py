"""The page of the study `systor24`: results of each mapping scheme by memory size and trace."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import altair as alt

from emmclab.pages.plots import Rows, bare_chart
from emmclab.papers.claims import rules, verdict
from emmclab.papers.pages import Drawing, PageContent
from emmclab.papers.registry import papers
from emmclab.papers.systor24.maps import (
    CASES,
    DEVICE,
    FIGURES,
    JUDGED,
    PACKED,
    SCHEMES,
    SIZES_KB,
    STATES,
    Case,
    applications,
    at,
    map_reads,
    miss_pct,
    points,
    unwritten_reads,
)
from emmclab.runtime.document import Cells, TextTable, number_cell
from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run


@dataclass(frozen=True)
class PlottedFigure:
    """A metric of runs, and how to draw it as a function of the memory size."""

    name: str
    title: str
    axis: str
    about: str
    of: Callable[[Run], float]
    logarithmic: bool = False


PLOTTED_FIGURES = (
    PlottedFigure(
        "misses",
        "Miss rate",
        "requests that read the map, %",
        "Share of requests for which a page of the map was read, counted in the same way for all schemes.",
        miss_pct,
    ),
    PlottedFigure(
        "p50",
        "Median response of reads",
        "ms",
        "Half of the reads are answered within this time.",
        lambda run: float(run.response.read.p50_ms),
        logarithmic=True,
    ),
    PlottedFigure(
        "p99",
        "99th percentile of reads",
        "ms",
        "99 % of the reads are answered within this time.",
        lambda run: float(run.response.read.p99_ms),
        logarithmic=True,
    ),
)


def content(results: Results, measured: Mapping[str, str]) -> PageContent:
    """Return the texts and tables of the page."""
    return PageContent(
        answer=f"On a device {JUDGED.text}, the miss rate of RQFTL is {measured['systor24-miss-dftl']} than that of "
        f"DFTL and {measured['systor24-miss-leaftl']} than that of LeaFTL, with equal memory for entries of the map.",
        lead=[
            f"{results.about['about']}: {len(results.runs):,} simulations. The claims are those of the "
            "abstract, the traces are those of the authors, and the mechanisms are partly ours, because only the "
            "abstract of the paper is available. Here an ordered list replaces the index of neural nets and finds "
            "the same runs; its memory is assumed to be 10 % of the runs. Device, schemes and traces were not "
            "fitted to published figures, so that each verdict is a test.",
            "The verdicts depend on what the device contains before the installation of an application, and the traces "
            "read much that they never wrote. The README of the traces says that the SSD of the phone had been heavily "
            "utilized, which led to a high degree of fragmentation; the claims are therefore judged on a device that a "
            "phone has used for a year (`used:1y`). The first table shows them in all states.",
            f"{DEVICE} is the flash of the preset pixel6a without its RAM for data and without WriteBooster, "
            "which emmclab does not combine with maps on the flash. Its planes work as one, with pages of 64 KB, "
            "so that consecutive units stay consecutive. No RAM packs small writes there. "
            f"{PACKED} writes units consecutively and is shown for comparison.",
            "Memory is the memory for entries of the map, without the directory of its pages, which all schemes "
            f"have. Claims are judged at {', '.join(map(str, SIZES_KB))} KB.",
        ],
        tables=[
            _verdicts(results),
            *(part for name in applications(results) for part in _missed(results, name).titled()),
        ],
    )


def _verdicts(results: Results) -> TextTable:
    """Return the table of the figure and the verdict of each claim in each case, with the reads of unwritten data."""
    checks = {rule.id: rule.checks for rule in rules(papers()["systor24"])}
    rows: list[Cells] = []
    for case in CASES:
        cells = [f"{case.text}{' (judged)' if case == JUDGED else ''}", unwritten_reads(results, case)]
        for claim, figure in FIGURES.items():
            value = figure.in_case(results, case)
            cells.append(f"{figure.text(value)}: {verdict(checks[claim], {figure.value: value})}")
        rows.append(cells)
    headings = ["Device", "Reads of data that nobody wrote", *(claim.removeprefix("systor24-") for claim in FIGURES)]
    return TextTable("Verdicts in each state of the device", headings, rows, words=7)


def _missed(results: Results, name: str) -> TextTable:
    """Return a table of miss rates and map page reads by scheme and state, at the memory sizes of the claims."""
    rows: list[Cells] = []
    for state, of_device in STATES.items():
        for scheme in SCHEMES:
            if runs := points(results, name, scheme, Case(state)):
                cells = (at(runs, kb) for kb in SIZES_KB)
                missed = (number_cell(miss_pct(run), 2, note=f"{map_reads(run):,.0f}") for run in cells)
                rows.append([of_device, scheme, *missed])
    title = f"{applications(results)[name]}: requests that read the map, %, and page reads of the map"
    return TextTable(title, ["Device", "Scheme", *(f"{kb:,} KB" for kb in SIZES_KB)], rows, words=2, style="sortable")


def drawings(results: Results) -> list[Drawing]:
    """Draw each metric as a function of the memory size, one chart for each trace."""
    return [_drawn(results, figure, application) for figure in PLOTTED_FIGURES for application in applications(results)]


def _drawn(results: Results, figure: PlottedFigure, application: str) -> Drawing:
    rows: Rows = [
        {"trace": f"{application}_exec", "scheme": scheme, "kb": point.kb, "value": figure.of(point.run)}
        for scheme in SCHEMES
        for point in points(results, application, scheme)
    ]
    scale = alt.Scale(type="log") if figure.logarithmic else alt.Undefined
    lines = (
        bare_chart(rows, 240)
        .mark_line(point=True)
        .encode(
            x=alt.X("kb:Q", title="memory for entries of the map, KB", scale=alt.Scale(type="log", base=2)),
            y=alt.Y("value:Q", title=figure.axis, scale=scale),
            color=alt.Color("scheme:N", title=None, sort=list(SCHEMES), legend=alt.Legend(columns=3, orient="bottom")),
        )
    )
    title = f"{figure.title}: {applications(results)[application]}"
    return Drawing(f"{figure.name}-{application}", title, figure.about, rows, lines)
