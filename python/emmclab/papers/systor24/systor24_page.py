"""The page of the study `systor24`: results of each mapping scheme by memory size and trace."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import altair as alt

from emmclab.pages.plots import Rows, bare_chart
from emmclab.papers.pages import Drawing, PageContent
from emmclab.papers.systor24.maps import (
    APPLICATIONS,
    DEVICE,
    GAMMA,
    PACKED,
    SCHEMES,
    SIZES_KB,
    at,
    map_reads,
    miss_pct,
    points,
)
from emmclab.runtime.document import Cells, Note, TextTable, number_cell
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
    schemes: Sequence[str] = SCHEMES
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
    PlottedFigure(
        "double",
        "Double reads of LeaFTL",
        "page reads without result, % of host page reads",
        "Page reads of a wrong page, to which an approximate segment led. The units of one request are "
        "consecutive, which is an exact segment for every gamma. Only collection would break such sequences, "
        "and installation and use of one application do not fill 128 GB.",
        lambda run: 100 * float(run.map.double_reads) / float(run.flash.page_reads.host),
        schemes=("leaftl", GAMMA),
    ),
)


def content(results: Results, measured: Mapping[str, str]) -> PageContent:
    """Return the texts and tables of the page."""
    unwritten = ", ".join(f"{APPLICATIONS[name]} {share:.1f} %" for name, share in _unwritten(results))
    return PageContent(
        answer="With the same memory for entries of the map, the miss rate of RQFTL is "
        f"{measured['systor24-miss-dftl']} than that of DFTL and "
        f"{measured['systor24-miss-leaftl']} than that of LeaFTL.",
        lead=[
            f"{results.about['about']}: {len(results.runs):,} simulations. The claims are those of the "
            "abstract, the traces are those of the authors, and the mechanisms are partly ours, because only the "
            "abstract of the paper is available. Here an ordered list replaces the index of neural nets and finds "
            "the same runs; its memory is assumed to be 10 % of the runs. Device, schemes and traces were not "
            "fitted to published figures, so that each verdict is a test.",
            f"{DEVICE} is the flash of the preset pixel6a without its RAM for data and without WriteBooster, "
            "which emmclab does not combine with maps on the flash. Its planes work as one, with pages of 64 KB, "
            "so that consecutive units stay consecutive. No RAM packs small writes there. "
            f"{PACKED} writes units consecutively and is shown for comparison. Devices are aged by the writes of "
            "the installation, as the README of the traces describes, and contain nothing else: units that the "
            "application reads but that were never written have entries, too.",
            "Memory is the memory for entries of the map, without the directory of its pages, which all schemes "
            f"have. Claims are judged at {', '.join(map(str, SIZES_KB))} KB.",
        ],
        tables=[
            *(part for name in APPLICATIONS for part in _missed(results, name).titled()),
            Note(
                f"Looked-up units that were never written: {unwritten}. RQFTL stores them as one run up to the end of "
                "a page of the map, LeaFTL without a segment, and DFTL as one entry each."
            ),
        ],
    )


def _missed(results: Results, application: str) -> TextTable:
    """Return a table of miss rates and map page reads by mapping scheme, at the memory sizes of the claims."""
    rows: list[Cells] = []
    for scheme in SCHEMES:
        runs = [at(points(results, application, scheme), kb) for kb in SIZES_KB]
        rows.append([scheme, *(number_cell(miss_pct(run), 2, note=f"{map_reads(run):,.0f}") for run in runs)])
    title = f"{APPLICATIONS[application]}: requests that read the map, %, and page reads of the map"
    return TextTable(title, ["Scheme", *(f"{kb:,} KB" for kb in SIZES_KB)], rows, style="sortable")


def _unwritten(results: Results) -> list[tuple[str, float]]:
    """Return the share of map lookups for units that had never been written, in percent, by application."""
    shares = []
    for application in APPLICATIONS:
        run = at(points(results, application, "dftl"), SIZES_KB[0])
        shares.append((application, 100 * run.map.unwritten_unit_reads / run.map.lookups))
    return shares


def drawings(results: Results) -> list[Drawing]:
    """Draw each metric as a function of the memory size, one chart for each trace."""
    return [_drawn(results, figure, application) for figure in PLOTTED_FIGURES for application in APPLICATIONS]


def _drawn(results: Results, figure: PlottedFigure, application: str) -> Drawing:
    rows: Rows = [
        {"trace": f"{application}_exec", "scheme": scheme, "kb": point.kb, "value": figure.of(point.run)}
        for scheme in figure.schemes
        for point in points(results, application, scheme)
    ]
    scale = alt.Scale(type="log") if figure.logarithmic else alt.Undefined
    lines = (
        bare_chart(rows, 240)
        .mark_line(point=True)
        .encode(
            x=alt.X("kb:Q", title="memory for entries of the map, KB", scale=alt.Scale(type="log", base=2)),
            y=alt.Y("value:Q", title=figure.axis, scale=scale),
            color=alt.Color(
                "scheme:N", title=None, sort=list(figure.schemes), legend=alt.Legend(columns=3, orient="bottom")
            ),
        )
    )
    title = f"{figure.title}: {APPLICATIONS[application]}"
    return Drawing(f"{figure.name}-{application}", title, figure.about, rows, lines)
