"""The reference pages that `make docs` generates."""

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
