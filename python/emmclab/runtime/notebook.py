"""HTML tables that show objects in notebooks, on light and dark backgrounds.

All text is escaped; there are no scripts and no files, and the colours are those of the notebook.
"""

from collections.abc import Sequence
from typing import Any

from emmclab.errors import harmless
from emmclab.runtime.document import TextTable
from emmclab.runtime.number_format import significant

#: Styles of tables and cells; lines have the colour of the text, so that they are visible on any background.
_TABLE = "border-collapse:collapse;margin:.3em 0 .8em;color:inherit;font-variant-numeric:tabular-nums"
_CELL = "padding:.15em .7em;border-bottom:1px solid color-mix(in srgb,currentColor 25%,transparent)"


def escaped(text: str) -> str:
    """Escape a text for HTML."""
    from html import escape  # Imported here: it loads tables of entities, which commands do not need.

    return escape(harmless(text))


def heading_html(kind: str, name: str) -> str:
    """Return a heading with the kind and the name of an object."""
    return f"<div>{kind} <b>{escaped(name)}</b></div>"


def pairs_html(pairs: Sequence[tuple[str, str]]) -> str:
    """Return a table of names and texts."""
    rows = "".join(
        f'<tr><th style="{_CELL};text-align:left;font-weight:500">{escaped(name)}</th>'
        f'<td style="{_CELL};text-align:left">{escaped(text)}</td></tr>'
        for name, text in pairs
    )
    return f'<table style="{_TABLE}">{rows}</table>'


def table_html(part: TextTable) -> str:
    """Return a table with its title as a caption."""
    columns = [(column, f"{_CELL};text-align:{'left' if column.is_text else 'right'}") for column in part.columns]
    head = "".join(f'<th style="{style};font-weight:500">{escaped(column.name)}</th>' for column, style in columns)
    rows = [[cell if isinstance(cell, str) else cell.text for cell in cells] for cells in part.rows]
    cells = (
        "".join(f'<td style="{style}">{escaped(text)}</td>' for text, (_, style) in zip(row, columns, strict=True))
        for row in rows
    )
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    title = f'<caption style="text-align:left;color:inherit">{escaped(part.title)}</caption>'
    caption = title if part.title else ""
    return f'<table style="{_TABLE}">{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def cell_text(value: Any) -> str:
    """Format a value; a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return significant(value)
    return f"{value:,}" if isinstance(value, int) else str(value)
