"""Fills the templates of all pages: the first screen, provenance, texts, charts with their rows, and libraries."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NotRequired, TypedDict

import jinja2
from markupsafe import Markup, escape

from emmclab import __version__
from emmclab.errors import harmless
from emmclab.pages.chart_files import library
from emmclab.pages.plots import Figure, Rows, specification
from emmclab.pages.theme import DARK, LIGHT
from emmclab.runtime.document import Section, duration, number_cell, signed, significant, size
from emmclab.traces.inputs import RECORD, ProvenanceFields
from emmclab.traces.profile_fields import Field

#: Units of time with their length in seconds. Values are shown in the unit that suits their size.
_TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_SIZES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
#: Text for a missing figure.
_NONE = "–"


@dataclass(frozen=True)
class Tile:
    """A box with a figure and its label. `exact` is shown on hover, `note` below; `kind` is a badge's CSS class."""

    label: str
    value: str
    exact: str = ""
    note: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Notice:
    """A reason not to trust the result; `link` refers to the details, `kind` is the CSS class of the badge."""

    badge: str
    text: str
    link: str = ""
    kind: str = "no"


class PageRecord(TypedDict):
    """Machine-readable data in a page: its provenance, and the simulated runs that it shows."""

    provenance: ProvenanceFields
    runs: NotRequired[list[Mapping[str, object]]]


@dataclass(frozen=True)
class Provenance:
    """Provenance that a page shows: one visible line, and folded details.

    Attributes:
        summary: the visible line.
        lines: label and text of each further fact.
        lost: description of lost records; empty if there are none.
        made: the group `provenance` of results; it is shown before the lines, and `emmclab explain` reads it.
        results: simulated runs, which `emmclab explain` reads from the page.
    """

    summary: str
    lines: Sequence[tuple[str, Any]] = ()
    lost: str = ""
    made: ProvenanceFields = field(default_factory=lambda: ProvenanceFields())
    results: Sequence[Mapping[str, object]] = ()

    @property
    def made_lines(self) -> list[tuple[str, str]]:
        """Lines of the provenance: label and text of the command, of each input and of the changed settings."""
        lines = [("Command", self.made["command"])] if self.made.get("command") else []
        for label, inputs in (
            ("Input", self.made.get("inputs", [])),
            ("Preconditioned by", self.made.get("aged_by", [])),
        ):
            for record in inputs:
                digest = record["sha256"] or "unknown, because the input was not a regular file"
                options = "".join(f", {key} = {value}" for key, value in record.get("reading", {}).items())
                lines.append((f"{label} {record['name']}", f"SHA-256 {digest}{options}"))
        for device, changes in self.made.get("settings", {}).items():
            text = ", ".join(f"{key} = {value}" for key, value in changes.items()) or "none"
            lines.append((f"Settings of {device} that differ from its preset", text))
        return lines

    @property
    def record(self) -> PageRecord | None:
        """The data that programs read from the page; None if the provenance is unknown."""
        if not self.made:
            return None
        if not self.results:
            return {"provenance": self.made}
        return {"provenance": self.made, "runs": list(self.results)}


@dataclass(frozen=True)
class Head:
    """The first screen of a page.

    Attributes:
        answer: the headline, one sentence.
        lead: paragraphs below the headline: what was measured, and how.
        tiles: three to six figures that support the answer.
        notices: reasons not to trust the answer.
        picture: name of the figure that shows the answer; empty if the page has none.
    """

    answer: str
    lead: Sequence[str] = ()
    tiles: Sequence[Tile] = ()
    notices: Sequence[Notice] = ()
    picture: str = ""


def note_notices(text: str) -> list[Notice]:
    """Return a text as a list of one notice; an empty list if the text is empty."""
    return [Notice("note", text)] if text else []


def tile(label: str, value: float | None, unit: str = "", *, digits: int = 3, note: str = "") -> Tile:
    """Return a tile (box) with a figure in a suitable unit; the exact value is shown on hover."""
    return Tile(label, amount(value, unit, digits), exact(value, unit), note)


def tile_of(figure: Field, value: float | None, *, note: str = "") -> Tile:
    """Return a tile (box) with the value of a field of a profile."""
    unit = figure.unit
    text = amount(value, unit) if unit in _TIMES or unit in _SIZES else f"{figure.text(value)} {unit}".strip()
    return Tile(figure.label, text, exact(value, unit), note)


def amount(value: float | None, unit: str = "", digits: int = 3) -> str:
    """Format a figure in a suitable unit, with `digits` significant digits.

    >>> [amount(63_668, "KB"), amount(250.3, "s"), amount(0.42, "ms"), amount(86.4, "%"), amount(None, "ms")]
    ['62.2 MB', '4.17 min', '420 us', '86.4 %', '–']
    """
    if value is None:
        return _NONE
    if unit in _TIMES:
        return duration(value * _TIMES[unit])
    if unit in _SIZES:
        return size(value * _SIZES[unit])
    return f"{significant(value, digits)} {unit}".strip()


def exact(value: float | None, unit: str = "") -> str:
    """Format a figure without rounding, in its original unit.

    >>> exact(63_668, "KB"), exact(None)
    ('63,668 KB', '')
    """
    if value is None:
        return ""
    text = f"{value:,.10g}" if isinstance(value, float) else f"{value:,}"
    return f"{text} {unit}".strip()


def lost(ledgers: Iterable[Mapping[str, int | None]]) -> str:
    """Return a text with the total number of lost records of several traces; empty if none were lost.

    >>> lost([{"lost": 2}, {"lost": 0}]), lost([{}])
    ('2 lost', '')
    """
    count = sum(ledger.get("lost") or 0 for ledger in ledgers)
    return f"{count:,} lost" if count else ""


#: Significant digits of values in charts; more would not be visible, but enlarge the page.
_DIGITS = 6
_CODE = re.compile(r"`([^`]+)`")


def assemble(
    figures: Sequence[Figure],
    rows: Mapping[str, Rows],
    names: Sequence[str],
    *,
    template: str = "document.html.j2",
    title: str,
    head: Head,
    provenance: Provenance,
    figure_claims: Mapping[str, Sequence[Mapping[str, str]]] | None = None,
    trace_names: Sequence[str] | None = None,
    sections: Iterable[Section] = (),
    **content: Any,
) -> str:
    """Fill a template with `content`, and with `figures` drawn from `rows` (each row contains its `trace`).

    The default template shows `sections`. In each template, `picture` is the figure on the first screen, as
    chosen in `head`. `figures` is the list of all other figures; a figure without data contains a text instead.
    `figure_claims` contains the claims that are shown below each figure. `trace_names` lists the traces in `names`; the
    other elements of `names` may be settings or interpretations of a paper.
    """
    figures = [figure for figure in figures if rows[figure.name] or not figure.optional]
    drawn = [_figure(figure, rows[figure.name], names, trace_names) for figure in figures]
    for figure in drawn:
        figure["claims"] = (figure_claims or {}).get(figure["name"], ())
    picture = next((figure for figure in drawn if figure["name"] == head.picture and figure["charts"]), None)
    data = {figure.name: _columns(rows[figure.name], names) for figure in figures}
    specs = {chart["id"]: chart["spec"] for figure in drawn for chart in figure["charts"]}
    return (
        _templates()
        .get_template(template)
        .render(
            version=__version__,
            title=title,
            head=head,
            provenance=provenance,
            picture=picture,
            figures=[figure for figure in drawn if figure is not picture],
            library=library().replace("</script", "<\\/script"),
            sections=list(sections),
            record_name=RECORD,
            record=None if provenance.record is None else _json(provenance.record),
            page_data=_json({"themes": {"light": LIGHT, "dark": DARK}, "specs": specs, "data": data}),
            **content,
        )
    )


@cache
def _templates() -> jinja2.Environment:
    """Return the environment of the templates; each template is compiled once per process."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("emmclab", "pages"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_visible,
    )
    environment.filters["cell"] = lambda value, digits=2: number_cell(value, digits).text
    environment.filters["signed"] = signed
    environment.filters["code"] = _code
    environment.filters["lines"] = lambda text: Markup("<br>").join(map(harmless, text.splitlines()))
    return environment


def _visible(value: Any) -> Any:
    """Make control characters and marks of text direction visible in a text, such as the name of a trace.

    Code and JSON, which are marked as safe, are not changed.
    """
    return harmless(value) if type(value) is str else value


class _DrawnChart(TypedDict):
    """A chart of a figure; `trace` is None if it shows all traces, `spec` contains the Vega specification."""

    id: str
    trace: str | None
    spec: dict[str, Any]


class _DrawnFigure(TypedDict):
    """A figure in the form that templates use."""

    name: str
    title: str
    about: str
    paper: bool
    charts: list[_DrawnChart]
    wide: bool
    count: int
    #: Names of the inputs that have no data for this figure.
    without: list[str]
    #: Claims of a paper that the page shows below the figure.
    claims: Sequence[Mapping[str, str]]


class _Columns(TypedDict):
    """Rows of a trace by column; a column in which all values are equal is stored as one value."""

    rows: int
    columns: dict[str, Any]


def _figure(figure: Figure, rows: Rows, traces: Sequence[str], inputs: Sequence[str] | None) -> _DrawnFigure:
    """Return a figure with its charts; their data is stored separately in the page, by the figure's name."""
    parts: list[tuple[str | None, Rows]] = [(None, rows)]
    if figure.each:
        parts = [(trace, [row for row in rows if row["trace"] == trace]) for trace in traces]
    charts: list[_DrawnChart] = []
    for number, (trace, part) in enumerate(parts):
        if figure.can_draw(part):
            spec = specification(figure.draw(part))
            if "vconcat" not in spec:
                spec["autosize"] = {"type": "fit-x", "contains": "padding"}
            _remove_rows(spec)
            charts.append({"id": f"{figure.name}-{number}", "trace": trace, "spec": {"trace": trace, "vega": spec}})
    drawn_traces = {row["trace"] for row in rows}
    return {
        "name": figure.name,
        "title": figure.title,
        "about": figure.about,
        "paper": figure.paper,
        "charts": charts,
        "wide": figure.wide or len(charts) > 1,
        "count": len(rows),
        "without": [] if figure.of_all else _without(drawn_traces, traces if inputs is None else inputs),
        "claims": (),
    }


def _without(drawn_traces: set[str], inputs: Sequence[str]) -> list[str]:
    """Return the inputs for which a figure has no data; empty if the figure shows settings instead of inputs."""
    return [name for name in inputs if name not in drawn_traces] if drawn_traces & {*inputs} else []


def _remove_rows(spec: dict[str, Any]) -> None:
    """Remove the rows from the specification of a chart, wherever altair stores them."""
    spec.pop("datasets", None)
    data = spec.get("data")
    if isinstance(data, dict):
        data.pop("values", None)
    for part in (*spec.get("layer", ()), *spec.get("vconcat", ())):
        _remove_rows(part)


def _columns(rows: Rows, traces: Sequence[str]) -> list[_Columns]:
    """Return the rows of each trace by column; a constant column is stored as one value, which saves much space."""
    parts: list[_Columns] = []
    for trace in traces:
        part = [row for row in rows if row["trace"] == trace]
        if part:
            columns = {name: _shorten([_round(row[name]) for row in part]) for name in part[0]}
            parts.append({"rows": len(part), "columns": columns})
    return parts


def _shorten(values: list[Any]) -> Any:
    return values[0] if all(value == values[0] for value in values) else values


def _round(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    short = float(f"{value:.{_DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 2**53 else short


def _code(text: str) -> Markup:
    """Convert a text to HTML in which passages between backticks are code.

    >>> _code("`a < b`, or not")
    Markup('<code>a &lt; b</code>, or not')
    """
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(harmless(text)))))  # noqa: S704 - it is escaped


def _json(value: Any) -> str:
    """Return JSON that is safe inside a script element, without control characters in texts."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return harmless(text).replace("<", "\\u003c")
