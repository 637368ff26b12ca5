"""The glossary: the terms of emmclab, each with one meaning."""

import functools
import re
import tomllib
from pathlib import Path
from typing import NamedTuple

from emmclab.runtime.persistence_contract import persistence_contract

#: Name of the glossary topic with terms that the device model does not cover.
NOT_MODELLED = "Not modelled"
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
#: Letters of the shortest word whose last `s` may be that of the plural.
_LEAST_PLURAL = 3
_FILE = Path(__file__).parents[1] / "data" / "glossary.toml"


class Term(NamedTuple):
    """A term: its definition (`means`), excluded meanings (`excludes`), other spellings (`also`).

    `does` states what a simulated device does in place of the real thing, and `helps` what to use instead (Markdown);
    both are empty for what is modelled.
    """

    term: str
    means: str
    excludes: str
    also: tuple[str, ...]
    topic: str
    does: str = ""
    helps: str = ""

    @property
    def text(self) -> str:
        """The definition with the limits of the model and the excluded meanings."""
        limit = f"{'Limit of the model' if self.means else 'Not modelled'}: a simulated device {self.does}."
        helps = f"What helps: {self.helps}." if self.helps not in ("", "–") else ""
        parts = [self.means, _LINK.sub(r"\1", limit) if self.does else "", _LINK.sub(r"\1", helps), self.excludes]
        return " ".join(filter(None, parts))


@functools.cache
def glossary() -> tuple[Term, ...]:
    """Return all terms, topic by topic.

    >>> glossary()[0].term
    'request'
    """
    table = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    terms = [
        Term(
            entry["term"],
            entry.get("means", ""),
            entry.get("not", ""),
            tuple(entry.get("also", ())),
            topic["name"],
            entry.get("does", ""),
            entry.get("helps", ""),
        )
        for topic in table["topic"]
        for entry in topic["terms"]
    ]
    for clause in persistence_contract():
        standards = "; ".join(f"{interface}: {source}" for interface, source in clause.standards.items())
        text = f"{clause.name}. {clause.text} [{standards}]"
        terms.append(Term(clause.number, text, "", (f"clause {clause.number}",), "The persistence contract"))
    return tuple(terms)


def define(word: str) -> Term | None:
    """Find a term by its name or another spelling; None if it does not exist. Case, blanks and plurals are ignored.

    >>> define("WAF").term, define("2-way").term, define("nothing of the kind")
    ('write amplification', 'way', None)
    >>> define("readdisturb").term, define("Boot-Partitions").term
    ('read disturb', 'boot partition')
    """
    folded = _folded(word)
    singular = folded.removesuffix("s") if len(folded) > _LEAST_PLURAL else folded
    forms = (folded, singular, *(_joined(form) for form in (folded, singular)))
    return next((_by_word()[form] for form in forms if form in _by_word()), None)


def words() -> list[str]:
    """Return all words that `define` accepts."""
    return [word for term in glossary() for word in (term.term, *term.also)]


@functools.cache
def _by_word() -> dict[str, Term]:
    """Return the terms by their folded words, and by these without blanks where no other word has this form."""
    by_word = {_folded(word): term for term in glossary() for word in (term.term, *term.also)}
    return {_joined(word): term for word, term in by_word.items()} | by_word


def _folded(word: str) -> str:
    if word.startswith("--"):  # an option
        return word
    return " ".join(word.casefold().replace("-", " ").replace("_", " ").split())


def _joined(folded: str) -> str:
    return folded.replace(" ", "")
