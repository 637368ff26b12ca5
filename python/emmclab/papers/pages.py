"""Writes the page of a paper's study: its charts, and the parts that all such pages share."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt

from emmclab.pages import plots
from emmclab.pages.assemble import Head, Provenance, Tile, assemble, lost
from emmclab.pages.chart_files import write_charts
from emmclab.pages.plots import Chart, Rows, bare_chart
from emmclab.pages.study import command_of, study_provenance
from emmclab.papers.claims import (
    DIRECTION,
    HOLDS,
    NOT,
    REPRODUCED,
    RESTATED,
    Claim,
    counts,
    headline,
    judge_study,
    settled,
    tested_first,
)
from emmclab.papers.registry import studies
from emmclab.runtime.document import Bullets, Charts, Folded, Note, Number, Part, Section, TextTable, number_cell
from emmclab.runtime.files import write_atomically
from emmclab.studies.results import Results, stand_ins
from emmclab.studies.stored_types import About, RecordingsAbout
from emmclab.studies.unwritten import unwritten_table
from emmclab.traces.profile import Profile
from emmclab.traces.profile_fields import ledger_line
from emmclab.traces.reading import bundled_by_name


@dataclass(frozen=True)
class Drawing:
    """A chart of a paper's page, and its data.

    `source` is the figure, table or section of the paper to which the chart belongs. `of_all` is true if the rows
    describe all traces together, so that traces without rows are not reported as missing.
    """

    name: str
    title: str
    about: str
    rows: Rows
    chart: Chart
    source: str = ""
    wide: bool = False
    of_all: bool = False

    @property
    def figure(self) -> plots.Figure:
        """The drawing as a figure of a page."""
        return plots.Figure(
            self.name, self.title, self.about, lambda _rows: self.chart, wide=self.wide, of_all=self.of_all
        )


@dataclass(frozen=True)
class PageContent:
    """What a paper's page contains besides claims and drawings.

    Attributes:
        answer: the finding, in one or two sentences.
        lead: further paragraphs below the answer.
        facts: further lines of the provenance, as label and text.
        tables: the parts of the section of tables.
        sections: sections after the claims that replace those of figures and tables.
        ledger: the parts of the ledger; by default a line for each input.
    """

    answer: str = ""
    lead: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[Part] = ()
    sections: Sequence[Section] = ()
    ledger: Sequence[Part] | None = None


def bars_by_trace(
    rows: Rows, field: str, axis: str, colour: str, *, order: Sequence[str] = (), columns: int = 2, published: str = ""
) -> Chart:
    """Draw a bar of `field` for each trace and `colour`, side by side in this `order` (stacked if it is None).

    Diamonds mark the values of the field `published`, where rows have it.
    """
    sort = list(order) or alt.Undefined
    chart = bare_chart(rows, 260)
    places: dict[str, Any] = {
        "x": alt.X("trace:N", title=None, sort=None, axis=alt.Axis(labelAngle=-30, labelOverlap=False))
    }
    if order:
        places["xOffset"] = alt.XOffset(f"{colour}:N", sort=sort)
    legend = alt.Legend(columns=columns, orient="bottom")
    bars = chart.mark_bar().encode(
        **places,
        y=alt.Y(f"{field}:Q", title=axis),
        color=alt.Color(f"{colour}:N", title=None, sort=sort, legend=legend),
    )
    if not published:
        return bars
    return bars + (
        chart.transform_filter(f"datum.{published} != null")
        .mark_point(shape="diamond", filled=True, size=130, opacity=1, color="#e07b39", stroke="white")
        .encode(**places, y=f"{published}:Q")
    )


def write_drawings(drawn: Iterable[Drawing], folder: Path) -> int:
    """Write each chart as SVG and PDF, and its data as CSV; return the number of charts."""
    return write_charts(((drawing.name, drawing.chart, drawing.rows) for drawing in drawn), folder)


_BADGES = {REPRODUCED: "yes", HOLDS: "yes", DIRECTION: "near", NOT: "no", RESTATED: "restated"}


class JudgedStudy(NamedTuple):
    """The claims of a study with their verdicts, and the number of chart files written."""

    claims: list[Claim]
    figures: int


def write_judged_page(results: Results, html: Path, figures: Path | None) -> JudgedStudy:
    """Compute the verdicts on a study's claims, and write its page and, if `figures` is given, its charts."""
    claims = judge_study(results)
    return JudgedStudy(claims, write_page(results, claims, html, figures))


def write_page(results: Results, judged: Sequence[Claim], html: Path | None, figures: Path | None) -> int:
    """Write the page and, if a folder is given, each figure as SVG, PDF and CSV; return how many figures."""
    page = page_of(results.about["name"])
    drawn = page.drawings(results)
    if html is not None:
        write_atomically(html, assemble_page(results, judged, drawn))
    return write_drawings(drawn, figures) if figures is not None else 0


def page_of(study: str) -> Any:
    """Return the module with the `drawings` and `content` of a study's page, in the folder of its paper."""
    return import_module(f"emmclab.papers.{studies()[study].name}.{study.replace('-', '_')}_page")


def assemble_page(results: Results, judged: Sequence[Claim], drawn: Sequence[Drawing]) -> str:
    """Return the page of a study: claims, recorded traces, figures and tables; the same results give the same bytes.

    Args:
        results: the results of the study.
        judged: the claims; their verdicts form the heading.
        drawn: the figures, each shown above the claims of its source; the first one is on the first screen.
    """
    content: PageContent = page_of(results.about["name"]).content(
        results, {claim.id: claim.measured for claim in judged}
    )
    rows = {drawing.name: drawing.rows for drawing in drawn}
    about = results.about
    reading = ", ".join(f"{key} = {value}" for key, value in (about.get("reading") or {}).items())
    command = command_of_paper(about)
    lines = [
        ("Results", f"SHA-256 {results.digest} of all {about['cells']:,} results"),
        *([("Recorded traces", f"read with {reading}")] if reading else []),
        *content.facts,
    ]
    detail_sections = [*content.sections] or [
        *([Section("figures", "Figures", [Charts()], "Figures")] if len(drawn) > 1 else []),
        *([Section("tables", "Tables", content.tables, "Tables")] if content.tables else []),
    ]
    if unwritten := unwritten_table(results.runs):
        detail_sections.append(Section("unwritten", unwritten.title, [unwritten], unwritten.title))
    ledger = content.ledger
    if ledger is None:
        ledger = [ledger_table(results)] if results.profiles else []
    return assemble(
        [drawing.figure for drawing in drawn],
        rows,
        list(dict.fromkeys(row["trace"] for part in rows.values() for row in part)),
        # A recorded trace gets no chart of its own, because it is drawn in the chart of the workload that it replaces.
        trace_names=[name for name in results.inputs if name not in stand_ins(results)],
        template="reproduction.html.j2",
        title=about["about"],
        head=Head(
            answer=headline(judged),
            lead=[*filter(None, [content.answer]), *content.lead],
            tiles=[
                Tile(verdict, f"{count:,}", kind=_BADGES.get(verdict, "unknown"))
                for verdict, count in counts(judged).items()
            ],
            picture=drawn[0].name if drawn else "",
        ),
        provenance=Provenance(
            f"{command}: {about['cells']:,} results, SHA-256 {results.digest[:16]}",
            lines,
            lost(profile["ledger"] for profile in results.profiles.values()),
            study_provenance(results, command),
        ),
        figure_claims={
            drawing.name: [
                {
                    "kind": _BADGES.get(claim.verdict, "unknown"),
                    "verdict": claim.verdict,
                    "claim": claim.claim,
                    "published": claim.published,
                    "measured": claim.measured,
                }
                for claim in judged
                if claim.source == drawing.source
            ]
            for drawing in drawn
        },
        claims=tested_first(judged),
        settled=settled(judged),
        badges=_BADGES,
        sections=[*_recorded(about, settled(judged)), *detail_sections],
        ledger=ledger,
    )


def ledger_table(results: Results, **columns: Callable[[Profile], str | Number]) -> TextTable:
    """Return a table of the records that were read, skipped or changed in each input.

    `columns` contains further columns by their headings.
    """
    rows = [
        [
            name,
            number_cell(profile["requests"]),
            *(of(profile) for of in columns.values()),
            ledger_line(profile["ledger"]),
        ]
        for name, profile in results.profiles.items()
    ]
    return TextTable("Ledger of each input", ["Input", "Requests", *columns, "Ledger"], rows)


def _recorded(about: About, note: str) -> list[Section]:
    """Return the section on the recorded traces that replace synthetic workloads."""
    recordings = about.get("recordings")
    if not recordings:
        return []
    rows = [[recording["workload"], recording["file"], recording["how"]] for recording in recordings["used"]]
    parts: list[Part] = [Note(note, ""), TextTable("Recorded traces", ["Replaces", "File", "Identified"], rows, 3)]
    if left_out := recordings["left_out"]:
        bullets = Bullets([(f"`{file}`: {why}", "") for file, why in left_out])
        parts.append(Folded(f"{len(left_out)} files left out", [bullets]))
    return [Section("recorded", "Recorded traces", parts, "Recorded traces")]


def command_of_paper(about: About) -> str:
    """Return the command that reproduces these results, with its traces and the options with which they were read."""
    ours = {str(path) for path in bundled_by_name().values()}
    nothing: RecordingsAbout = {"folder": "", "used": [], "left_out": []}
    recordings = about.get("recordings", nothing)
    ours |= {str(Path(recordings["folder"], recording["file"]).resolve()) for recording in recordings["used"]}
    folder = about.get("traces_folder") or recordings["folder"]
    traces = [name for name in about.get("sources", about.get("recorded", ())) if name not in ours]
    if about.get("traces_folder"):
        traces = [name for name in traces if Path(name).parent != Path(folder).resolve()]
    words = ["reproduce", about["name"], *(word for trace in traces for word in ("--trace", trace))]
    if folder:
        words += ["--traces", folder]
    return command_of(words, about.get("reading") or {})
