"""The small tables that notebooks show of the objects of every room, on light and dark ground.

All text is escaped; there is no script and no file, and colours are those of the notebook.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emmclab.runtime.quantity import duration, significant

#: Lines are drawn in the colour of the text, so that they are seen on any ground.
_TABLE = "border-collapse:collapse;margin:.3em 0 .8em;color:inherit;font-variant-numeric:tabular-nums"
_CELL = "padding:.15em .7em;border-bottom:1px solid color-mix(in srgb,currentColor 25%,transparent)"


def escaped(text: str) -> str:
    """Return text for HTML."""
    from html import escape  # Loads the tables of entities, for which a command does not wait.

    return escape(text)


def heading_html(kind: str, name: str) -> str:
    """Name what is shown."""
    return f"<div>{kind} <b>{escaped(name)}</b></div>"


def pairs_html(pairs: Sequence[tuple[str, str]]) -> str:
    """Lay out names with their texts."""
    rows = "".join(
        f'<tr><th style="{_CELL};text-align:left;font-weight:500">{escaped(name)}</th>'
        f'<td style="{_CELL};text-align:left">{escaped(text)}</td></tr>'
        for name, text in pairs
    )
    return f'<table style="{_TABLE}">{rows}</table>'


def grid_html(
    headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", left: bool = False
) -> str:
    """Lay out rows below their headings; numbers to the right."""
    align = "left" if left else "right"
    head = "".join(
        f'<th style="{_CELL};text-align:{align};font-weight:500">{escaped(one)}</th>' for one in headings
    )
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{_CELL};text-align:{align}">{escaped(cell)}</td>' for cell in row)
        + "</tr>"
        for row in rows
    )
    title = f'<caption style="text-align:left;color:inherit">{escaped(caption)}</caption>' if caption else ""
    return f'<table style="{_TABLE}">{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def cell_text(value: Any) -> str:
    """Return the text of a value; a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return significant(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def milliseconds_text(value: float | None) -> str:
    """Return a duration in ms with the unit that suits it."""
    return duration(None if value is None else value / 1e3)


def share_text(value: float | None) -> str:
    """Return a share in percent."""
    return "–" if value is None else f"{value:.1f} %"
