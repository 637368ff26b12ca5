"""Writes the HTML pages of results through functions that the package `pages` registers.

Other packages use this module, because they must not import `pages`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Type of a function that writes the HTML page of a result to a file.
PageWriter = Callable[[Any, str | Path], None]
_writers: dict[str, PageWriter] = {}


def register_page(kind: str, writer: PageWriter) -> None:
    """Set the function that writes the HTML pages of one kind of results."""
    _writers[kind] = writer


def write_page(kind: str, result: object, path: str | Path) -> None:
    """Write the page of a result: one file that needs no network."""
    _writers[kind](result, path)
