"""Writes the HTML pages of results with writers that `pages` registers, because rooms below must not import it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Writes the page of a result as a file.
PageWriter = Callable[[Any, str | Path], None]
_writers: dict[str, PageWriter] = {}


def register_page(kind: str, writer: PageWriter) -> None:
    """Set the writer of the pages of one kind of results."""
    _writers[kind] = writer


def write_page(kind: str, result: object, path: str | Path) -> None:
    """Write the page of a result: one file that needs no network."""
    _writers[kind](result, path)
