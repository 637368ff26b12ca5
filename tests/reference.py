"""The reference pages that `make docs` generates."""

import functools

from generate_reference import FOLDER, PAGES

__all__ = ["FOLDER", "PAGES", "reference"]


@functools.cache
def reference(name: str) -> str:
    """Return the text of a page."""
    return PAGES[name]()
