"""Studies that come with emmclab: those of papers, and those of its own."""

from __future__ import annotations

from importlib.resources import files

from emmclab.papers import studies

#: Studies of no paper, with the package that holds each.
_OWN = {"power-cuts": "emmclab.crash", "phones": "emmclab.phones"}


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
