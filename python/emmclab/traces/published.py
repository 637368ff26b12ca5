"""The published figures with which traces are compared."""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from emmclab import _core
from emmclab.runtime.document import Cell
from emmclab.traces.profile_fields import Field


class Inconsistency(TypedDict):
    """A published figure that contradicts the other figures of its row; `column` is a field of a profile."""

    name: str
    column: str
    explanation: str
    check: str
    published: float
    #: Lower bound of the published figure that follows from the other published figures; None for no bound.
    low: float | None
    high: float | None


class PublishedTables(TypedDict):
    """Published tables; a row contains the name of its trace, and figures by the names of profile fields."""

    rows: list[dict[str, Any]]
    inconsistencies: list[Inconsistency]


@functools.cache
def published() -> PublishedTables:
    """Return Tables III and IV of the IISWC 2015 paper, and figures in them that contradict others.

    `rows` use the field names of a profile. An inconsistency contains the column, the check that it fails, and the
    range that the other figures of the row allow.

    >>> published()["rows"][0]["name"]
    'Idle'
    """
    tables: PublishedTables = _core.published()
    return tables


def published_row(name: str) -> dict[str, Any] | None:
    """Return the paper's table row for a trace, by its name with or without the number in its public file names.

    >>> published_row("log106_Messaging")["requests"]
    5702
    >>> published_row("my phone") is None
    True
    """
    base_name = re.sub(r"^log\d+_", "", name).casefold()
    for row in published()["rows"]:
        if row["name"].casefold() == base_name:
            return row
    return None


def doubts(row: Mapping[str, Any], column: str) -> str:
    """Return the reason why a published figure cannot be right; empty if no figure contradicts it.

    >>> doubts(published()["rows"][0], "requests")
    ''
    """
    entries = published()["inconsistencies"]
    return "; ".join(e["explanation"] for e in entries if (e["name"], e["column"]) == (row["name"], column))


def published_cells(name: str, fields: Sequence[Field]) -> list[Cell]:
    """Return the published figures of a trace; a star and a reason mark a figure that others contradict."""
    row = published_row(name)
    if row is None:
        return [Cell("–")] * len(fields)
    cells = []
    for field in fields:
        value, doubt = row[field.name], doubts(row, field.name)
        cells.append(Cell("–" if value is None else f"{value:,.10g}{'*' if doubt else ''}", about=doubt))
    return cells
