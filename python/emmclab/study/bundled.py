"""Studies that come with emmclab: those of papers, and those of its own."""

from __future__ import annotations

from importlib import import_module
from importlib.resources import files
from typing import Any

from emmclab.papers import studies

#: Studies of no paper, with the package that holds each.
_OWN = {"power-cuts": "emmclab.crash", "phones": "emmclab.phones"}

#: The module with `write_page` and `to_dict` of those whose page is their own.
_PAGES = {"phones": "emmclab.phones.page"}


def bundled() -> list[str]:
    """Give the names of all studies that come with emmclab.

    >>> "power-cuts" in bundled()
    True
    """
    return [*studies(), *_OWN]


def bundled_text(name: str) -> str:
    """Give the definition of one of them, as TOML."""
    if name in _OWN:
        return files(_OWN[name]).joinpath(f"{name}.study.toml").read_text("utf-8")
    return studies()[name].study_text(name)


def own_page(name: str) -> Any:
    """Give the module of a study's own page; None where it has that of any study, or of its paper.

    >>> own_page("phones").__name__, own_page("power-cuts")
    ('emmclab.phones.page', None)
    """
    return import_module(_PAGES[name]) if name in _PAGES else None
