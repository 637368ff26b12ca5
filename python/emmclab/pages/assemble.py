"""Fills the templates of all pages: texts, charts with their rows, and the JavaScript libraries."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypedDict

import jinja2
from markupsafe import Markup, escape

from emmclab import __version__
from emmclab.errors import harmless
from emmclab.pages.chart_files import library
from emmclab.pages.first_screen import Head, Provenance
from emmclab.pages.plots import Figure, Rows, specification
from emmclab.pages.theme import DARK, LIGHT
from emmclab.runtime.document import Section
from emmclab.runtime.number_format import signed
from emmclab.simulation.provenance import RECORD

#: Significant digits of values in charts; more would not be visible, but enlarge the page.
_DIGITS = 6
_CODE = re.compile(r"`([^`]+)`")


def assemble(
    template: str,
    figures: Sequence[Figure],
    rows: Mapping[str, Rows],
    names: Sequence[str],
    *,
    title: str,
    head: Head,
    provenance: Provenance,
    figure_claims: Mapping[str, Sequence[Mapping[str, str]]] | None = None,
    trace_names: Sequence[str] | None = None,
    sections: Iterable[Section] = (),
    **content: Any,
) -> str:
    """Fill a template with `content`, and with `figures` drawn from `rows` (each row contains its `trace`).

    The template `document.html.j2` shows `sections`. In each template, `picture` is the figure on the first screen, as
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
    environment.filters["cell"] = _cell
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


def _cell(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _json(value: Any) -> str:
    """Return JSON that is safe inside a script element, without control characters in texts."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return harmless(text).replace("<", "\\u003c")
