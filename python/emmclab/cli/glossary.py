"""The glossary: the terms of emmclab, each with one meaning."""

import functools
import tomllib
from pathlib import Path
from typing import NamedTuple

from emmclab.runtime.persistence_contract import persistence_contract

#: Name of the glossary topic with terms that the device model does not cover.
NOT_MODELLED = "Not modelled"
_FILE = Path(__file__).parents[1] / "data" / "glossary.toml"


class Term(NamedTuple):
    """A term: its definition (`means`), excluded meanings (`excludes`), other spellings (`also`)."""

    term: str
    means: str
    excludes: str
    also: tuple[str, ...]
    topic: str

    @property
    def text(self) -> str:
        """The definition with the excluded meanings."""
        return f"{self.means} {self.excludes}".rstrip()


@functools.cache
def glossary() -> tuple[Term, ...]:
    """Return all terms, topic by topic.

    >>> glossary()[0].term
    'request'
    """
    table = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    terms = [
        Term(entry["term"], entry["means"], entry.get("not", ""), tuple(entry.get("also", ())), topic["name"])
        for topic in table["topic"]
        for entry in topic["terms"]
    ]
    for clause in persistence_contract():
        standards = "; ".join(f"{interface}: {source}" for interface, source in clause.standards.items())
        text = f"{clause.name}. {clause.text} [{standards}]"
        terms.append(Term(clause.number, text, "", (f"clause {clause.number}",), "The persistence contract"))
    return tuple(terms)


def define(word: str) -> Term | None:
    """Find a term by its name or another spelling, ignoring case; None if it does not exist.

    >>> define("WAF").term, define("2-way").term, define("nothing of the kind")
    ('write amplification', 'way', None)
    """
    return _by_word().get(_folded(word))


def words() -> list[str]:
    """Return all words that `define` accepts."""
    return [word for term in glossary() for word in (term.term, *term.also)]


@functools.cache
def _by_word() -> dict[str, Term]:
    return {_folded(word): term for term in glossary() for word in (term.term, *term.also)}


def _folded(word: str) -> str:
    return " ".join(word.casefold().replace("-", " ").replace("_", " ").split())
