"""The page of `systor24`: claims, and the results of each scheme for each memory size and trace."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import altair as alt

from emmclab.pages.plots import Rows, chart_of
from emmclab.papers.claims import Claim
from emmclab.papers.pages import Drawing, assemble_page
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
class Shown:
    """A figure of runs that is drawn over the memory size."""

    name: str
    title: str
    axis: str
    about: str
    of: Callable[[Run], float]
    schemes: Sequence[str] = SCHEMES
    logarithmic: bool = False


SHOWN = (
    Shown(
        "misses",
        "Miss rate",
        "requests that read the map, %",
        "Share of requests for which a page of the map was read, counted alike for all schemes.",
        miss_pct,
    ),
    Shown(
        "p50",
        "Median response of reads",
        "ms",
        "Half of the reads are answered within this time.",
        lambda run: float(run["response"]["read"]["p50_ms"]),
        logarithmic=True,
    ),
    Shown(
        "p99",
        "99th percentile of reads",
        "ms",
        "99 % of the reads are answered within this time.",
        lambda run: float(run["response"]["read"]["p99_ms"]),
        logarithmic=True,
    ),
    Shown(
        "double",
        "Double reads of LeaFTL",
        "page reads in vain, % of host page reads",
        "Page reads in vain, because an approximate segment led to another page. What one request writes "
        "lies in a row, which is an exact segment whatever gamma is. Only collection would break such rows, "
        "and installation and use of one application do not fill 128 GB.",
        lambda run: 100 * float(run["map"]["double_reads"]) / float(run["flash"]["page_reads"]["host"]),
        schemes=("leaftl", GAMMA),
    ),
)


def render(results: Results, judged: Sequence[Claim], drawn: Sequence[Drawing]) -> str:
    """Return the page; the same results give the same bytes."""
    measured = {claim.id: claim.measured for claim in judged}
    unwritten = ", ".join(f"{APPLICATIONS[name]} {share:.1f} %" for name, share in _unwritten(results))
    return assemble_page(
        results,
        judged,
        drawn,
        answer="With the same memory for entries of the map, the miss rate of RQFTL is "
        f"{measured['systor24-miss-dftl']} than that of DFTL and "
        f"{measured['systor24-miss-leaftl']} than that of LeaFTL.",
        lead=[
            f"{results.about['about']}: {len(results.runs):,} simulations. The claims are those of the "
            "abstract, the traces are the authors' own, and the mechanisms are partly ours: of the paper "
            "only the abstract is at hand. The index of neural nets is an ordered list here, which finds the "
            "same runs; its memory is counted as 10 % of the runs, an assumption. No published figure went "
            "into device, schemes or traces, so that each verdict is a test.",
            f"{DEVICE} is the flash of the preset pixel6a without its RAM for data and without WriteBooster, "
            "which maps on the flash do not have in emmclab; its planes work as one, with pages of 64 KB, so "
            "that the order of places does not break where planes share the work. No RAM packs small writes "
            f"there. {PACKED} writes units in a row and is given beside it. Devices are aged by the "
            "writes of the installation, as the traces' README says, and hold nothing else: units that the "
            "application reads and that nobody wrote have entries, too.",
            "Memory is that for entries of the map; the directory of its pages comes on top for all schemes. "
            f"Claims are judged at {', '.join(map(str, SIZES_KB))} KB.",
        ],
        tables=[
            *(part for name in APPLICATIONS for part in _missed(results, name).titled()),
            Note(
                f"Units that were looked up and that nobody wrote before: {unwritten}. RQFTL stores them as one run up "
                "to the end of a page of the map, LeaFTL as no segment, and DFTL as one entry each."
            ),
        ],
    )


def _missed(results: Results, application: str) -> TextTable:
    """Return miss rate and page reads of the map by scheme, at the memory sizes of the claims."""
    rows: list[Cells] = []
    for scheme in SCHEMES:
        runs = [at(points(results, application, scheme), kb) for kb in SIZES_KB]
        rows.append([scheme, *(number_cell(miss_pct(run), 2, note=f"{map_reads(run):,.0f}") for run in runs)])
    title = f"{APPLICATIONS[application]}: requests that read the map, %, and page reads of the map"
    return TextTable(title, ["Scheme", *(f"{kb:,} KB" for kb in SIZES_KB)], rows, style="sortable")


def _unwritten(results: Results) -> list[tuple[str, float]]:
    """Return the share of looked-up units that had never been written, in percent."""
    found = []
    for application in APPLICATIONS:
        run = at(points(results, application, "dftl"), SIZES_KB[0])
        found.append((application, 100 * run["map"]["unwritten_unit_reads"] / run["map"]["lookups"]))
    return found


def drawings(results: Results) -> list[Drawing]:
    """Draw each figure over the memory size, one chart for each trace."""
    return [_drawn(results, shown, application) for shown in SHOWN for application in APPLICATIONS]


def _drawn(results: Results, shown: Shown, application: str) -> Drawing:
    rows: Rows = [
        {"trace": f"{application}_exec", "scheme": scheme, "kb": point.kb, "value": shown.of(point.run)}
        for scheme in shown.schemes
        for point in points(results, application, scheme)
    ]
    scale = alt.Scale(type="log") if shown.logarithmic else alt.Undefined
    lines = (
        chart_of(rows, 240)
        .mark_line(point=True)
        .encode(
            x=alt.X("kb:Q", title="memory for entries of the map, KB", scale=alt.Scale(type="log", base=2)),
            y=alt.Y("value:Q", title=shown.axis, scale=scale),
            color=alt.Color(
                "scheme:N", title=None, sort=list(shown.schemes), legend=alt.Legend(columns=3, orient="bottom")
            ),
        )
    )
    title = f"{shown.title}: {APPLICATIONS[application]}"
    return Drawing(f"{shown.name}-{application}", title, shown.about, rows, lines)
