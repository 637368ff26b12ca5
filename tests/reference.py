"""The generated reference pages, as `make docs` writes them."""

import functools
import sys

from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
from generate_reference import FOLDER, PAGES

__all__ = ["FOLDER", "PAGES", "reference"]


@functools.cache
def reference(name: str) -> str:
    """Return the text of a page."""
    return PAGES[name]()
