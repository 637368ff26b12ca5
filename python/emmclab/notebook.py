"""What notebooks show of traces, profiles, results and studies: small tables, on light and dark ground.

All text is escaped; there is no script and no file, and colours are those of the notebook.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from emmclab.fields import TABLES
from emmclab.profile import ledger_line
from emmclab.quantity import duration, significant

if TYPE_CHECKING:
    from emmclab.profile import Profile
    from emmclab.result import Result
    from emmclab.study import Study
    from emmclab.trace import Trace

#: Lines are drawn in the colour of the text, so that they are seen on any ground.
_TABLE = "border-collapse:collapse;margin:.3em 0 .8em;color:inherit;font-variant-numeric:tabular-nums"
_CELL = "padding:.15em .7em;border-bottom:1px solid color-mix(in srgb,currentColor 25%,transparent)"
#: Requests of a trace that are shown.
_ROWS = 5


def trace_html(trace: Trace) -> str:
    """Show where a trace comes from and its first requests; counts where it has been read.

    A stream that can be read once is left alone.
    """
    header = trace.header
    facts = [
        ("format", str(header["format"] or "–")),
        ("source", str(header["source"] or "–")),
        ("device", str(header["device"] or "not recorded")),
        ("clock", str(header["clock"] or "–")),
    ]
    if header["note"]:
        facts.append(("note", str(header["note"])))
    if trace.counted is not None:
        facts.append(("ledger", ledger_line(trace.counted)))
    parts = [_title("Trace", trace.name), _pairs(facts)]
    if not trace.is_pipe:
        rows = trace.rows(_ROWS)
        columns = ("arrival_ns", "op", "sector", "sectors", "complete_ns", "process")
        shown = [column for column in columns if any(row[column] is not None for row in rows)]
        parts.append(_grid(shown, [[_cell(row[column]) for column in shown] for row in rows]))
    return "".join(parts)


def profile_html(profile: Profile) -> str:
    """Show Tables III and IV, and what the trace shows of the paper's findings."""
    parts = [_title("Profile", profile.name), f"<div>{escape(ledger_line(profile['ledger']))}</div>"]
    for title, fields in TABLES:
        cells = [field.text(profile[field.name]) for field in fields]
        parts.append(_grid([field.heading for field in fields], [cells], title))
    shown = {"yes": "yes", "no": "no", "unknown": "–"}
    findings = [
        [finding["title"], shown[finding["shown"]], finding["meaning"]] for finding in profile.findings
    ]
    parts.append(
        f"<details><summary>{len(findings)} findings</summary>"
        + _grid(["finding", "shown", "by these figures"], findings, left=True)
        + "</details>"
    )
    return "".join(parts)


def result_html(result: Result) -> str:
    """Show response times by operation, and what the run cost the flash."""
    rows = []
    for op, title in (("", "all"), ("read.", "reads"), ("write.", "writes")):
        mean = result.shown(f"response.{op}mean_ms" if op else "response.mean_response_ms")
        p50, p99, most = (result.shown(f"response.{op}{name}") for name in ("p50_ms", "p99_ms", "max_ms"))
        count = result["requests"][op.rstrip(".") or "total"]
        rows.append([title, f"{count:,}", *(_milliseconds(value) for value in (mean, p50, p99, most))])
    amplification = result["write_amplification"]
    facts = [
        ("no wait", _share(result["requests.no_wait_pct"])),
        ("write amplification", _cell(amplification["waf"])),
        ("preconditioned", str(result["options"]["precondition"])),
        ("mode", str(result["options"]["mode"])),
    ]
    headings = ["requests of", "count", "mean", "median", "99 %", "longest"]
    title = _title("Result", f"{result['trace']} on {result.run_name}")
    return title + _grid(headings, rows, "Response times") + _pairs(facts)


def study_html(study: Study) -> str:
    """Show what a study runs: its grids with inputs, devices, swept settings and seeds."""
    rows = []
    for grid in study.grids:
        axes = [f"{key} = {', '.join(map(str, values))}" for key, values in grid.axes.items()]
        seeds = ", ".join(map(str, grid.seeds or study.seeds))
        rows.append(
            [grid.name, ", ".join(grid.devices), "; ".join(axes) or "–", ", ".join(grid.modes), seeds]
        )
    facts = [("about", study.about or "–"), ("inputs", ", ".join(study.inputs))]
    headings = ["grid", "devices", "settings", "modes", "seeds"]
    return _title("Study", study.name) + _pairs(facts) + _grid(headings, rows, left=True)


def _title(kind: str, name: str) -> str:
    return f"<div>{kind} <b>{escape(name)}</b></div>"


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    """Lay out names with their texts."""
    rows = "".join(
        f'<tr><th style="{_CELL};text-align:left;font-weight:500">{escape(name)}</th>'
        f'<td style="{_CELL};text-align:left">{escape(text)}</td></tr>'
        for name, text in pairs
    )
    return f'<table style="{_TABLE}">{rows}</table>'


def _grid(
    headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", left: bool = False
) -> str:
    """Lay out rows below their headings; numbers to the right."""
    align = "left" if left else "right"
    head = "".join(
        f'<th style="{_CELL};text-align:{align};font-weight:500">{escape(one)}</th>' for one in headings
    )
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{_CELL};text-align:{align}">{escape(cell)}</td>' for cell in row)
        + "</tr>"
        for row in rows
    )
    title = f'<caption style="text-align:left;color:inherit">{escape(caption)}</caption>' if caption else ""
    return f'<table style="{_TABLE}">{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return significant(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _milliseconds(value: float | None) -> str:
    return duration(None if value is None else value / 1e3)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} %"
