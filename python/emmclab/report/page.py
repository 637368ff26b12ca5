"""From profiles to the page: what goes where. The looks are in `page.css`, the behaviour in `page.js`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import jinja2
import vl_convert

from emmclab import __version__
from emmclab.fields import TABLES, Field
from emmclab.notes import notes
from emmclab.plots import FIGURES, Figure, Rows, rows_of
from emmclab.profile import Profile, ledger_line
from emmclab.published import doubts, published_row
from emmclab.theme import DARK, LIGHT

#: Digits of figures on the page; more cannot be seen and would only make it larger.
_DIGITS = 6

#: Times whose percentiles are shown, with their heading.
_TIMES = (
    ("response_ms", "Response time, ms (complete - arrival)"),
    ("service_ms", "Service time, ms (complete - start)"),
)
_POINTS = {
    "mean": "Mean",
    "p50": "p50",
    "p90": "p90",
    "p99": "p99",
    "p999": "p99.9",
    "p9999": "p99.99",
    "max": "Max",
}


def render(profiles: Sequence[Profile]) -> str:
    """Give the page for one or several traces; the same profiles give the same bytes.

    >>> import emmclab
    >>> page = render([emmclab.profile(emmclab.bundled()[0])])
    >>> "<html lang=" in page
    True
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("emmclab", "report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["cell"] = _cell
    template = environment.get_template("page.html.j2")
    figures = [_figure(figure, profiles) for figure in FIGURES]
    data = {figure.name: _columns(rows_of(profiles, figure.name), profiles) for figure in FIGURES}
    specs = {chart["id"]: chart["spec"] for figure in figures for chart in figure["charts"]}
    return template.render(
        title=", ".join(profile.name for profile in profiles[:3])
        + (" and others" if len(profiles) > 3 else ""),
        version=__version__,
        traces=[_provenance(profile) for profile in profiles],
        tiles=_tiles(profiles[0]) if len(profiles) == 1 else [],
        findings=_findings(profiles),
        tables=[
            (title, fields, [_table_row(fields, profile) for profile in profiles]) for title, fields in TABLES
        ],
        times=[(heading, _time_rows(profiles, field)) for field, heading in _TIMES],
        points=_POINTS,
        paper_figures=[figure for figure in figures if figure["paper"]],
        other_figures=[figure for figure in figures if not figure["paper"]],
        library=_script(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")),
        page_data=_json({"themes": {"light": LIGHT, "dark": DARK}, "specs": specs, "data": data}),
    )


def _provenance(profile: Profile) -> dict[str, Any]:
    canonical = json.dumps(profile.to_dict(), sort_keys=True).encode()
    return {
        "name": profile.name,
        "header": profile["header"],
        "ledger": ledger_line(profile["ledger"]),
        "digest": hashlib.sha256(canonical).hexdigest()[:16],
        "notes": notes(profile),
    }


def _tiles(profile: Profile) -> list[tuple[str, str]]:
    """Pick the figures that a reader wants first."""
    shown = {field.name: (field.label, field) for _, fields in TABLES for field in fields}
    names = (
        "requests",
        "data_size_kb",
        "write_requests_pct",
        "mean_size_kb",
        "no_wait_pct",
        "mean_response_ms",
    )
    tiles = []
    for name in names:
        label, field = shown[name]
        if profile[name] is not None:
            tiles.append((label, f"{field.text(profile[name])} {field.unit}".strip()))
    for row in profile["by_operation"]:
        if row["op"] == "all" and row["response_ms"]:
            tiles.append(("p99 response", f"{row['response_ms']['p99']:,.2f} ms"))
    return tiles


def _findings(profiles: Sequence[Profile]) -> list[dict[str, Any]]:
    """Give each finding with its verdict on every trace."""
    found = []
    for number, finding in enumerate(profiles[0].findings):
        verdicts = [{"trace": profile.name, **profile.findings[number]} for profile in profiles]
        found.append({**finding, "verdicts": verdicts})
    return found


def _table_row(fields: Sequence[Field], profile: Profile) -> dict[str, Any]:
    published = published_row(profile.name)
    return {
        "name": profile.name,
        "cells": [(field.text(profile[field.name]), profile[field.name]) for field in fields],
        "published": published
        and [(f"{published[field.name]:,.10g}", doubts(published, field.name)) for field in fields],
    }


def _time_rows(profiles: Sequence[Profile], field: str) -> list[dict[str, Any]]:
    return [
        {"trace": profile.name, "op": row["op"], "requests": row["requests"], "times": row[field]}
        for profile in profiles
        for row in profile["by_operation"]
        if row[field]
    ]


def _figure(figure: Figure, profiles: Sequence[Profile]) -> dict[str, Any]:
    """Give a figure with its charts; a chart takes its rows from the page's data by the figure's name."""
    rows = rows_of(profiles, figure.name)
    parts: list[tuple[str | None, Rows]] = [(None, rows)]
    if figure.each:
        parts = [
            (profile.name, [row for row in rows if row["trace"] == profile.name]) for profile in profiles
        ]
    charts = []
    for number, (trace, part) in enumerate(parts):
        if figure.can_draw(part):
            spec = figure.draw(part).to_dict() | {"autosize": {"type": "fit-x", "contains": "padding"}}
            _forget_rows(spec)
            charts.append(
                {"id": f"{figure.name}-{number}", "trace": trace, "spec": {"trace": trace, "vega": spec}}
            )
    return {
        "name": figure.name,
        "title": figure.title,
        "about": figure.about,
        "paper": figure.paper,
        "charts": charts,
        "wide": figure.wide or len(charts) > 1,
        "count": len(rows),
        "without": [profile.name for profile in profiles if not profile.figure(figure.name)],
    }


def _forget_rows(spec: dict[str, Any]) -> None:
    """Drop the rows from a chart, wherever altair put them."""
    spec.pop("datasets", None)
    data = spec.get("data")
    if isinstance(data, dict):
        data.pop("values", None)
    for layer in spec.get("layer", []):
        _forget_rows(layer)


def _columns(rows: Rows, profiles: Sequence[Profile]) -> list[dict[str, Any]]:
    """Store rows by column for each trace, a column of one value as that value: a fraction of the size."""
    parts = []
    for profile in profiles:
        part = [row for row in rows if row["trace"] == profile.name]
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


def _cell(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _json(value: Any) -> str:
    """Give JSON that may stand inside a script element."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace(
        "<", "\\u003c"
    )


def _script(code: str) -> str:
    """Keep a library from ending its script element."""
    return code.replace("</script", "<\\/script")
