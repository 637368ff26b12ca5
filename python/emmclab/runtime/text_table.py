"""A table of texts, for the terminal and for pages."""

from __future__ import annotations

from typing import NamedTuple


class TextTable(NamedTuple):
    """A table of texts; the first `words` columns contain names, the others numbers."""

    title: str
    headings: list[str]
    rows: list[list[str]]
    words: int
