"""The reproduced papers: each is one folder here, found by itself.

A folder holds `paper.toml` (title, authors, state), `claims.toml` (every claim with its published figures and
the rule that judges it), the studies as `NAME.study.toml`, the modules that measure the claims, and for each
study `NAME_page.py` with its template `NAME.html.j2`. A new paper touches nothing outside its folder.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib.resources import files

from emmclab.errors import ConfigError

WORKS = "works"
TO_COME = "to come"
_STUDY = ".study.toml"


@dataclass(frozen=True)
class Paper:
    """A paper.

    `state` is `works`, or `to come` where the system that its claims are about is not there yet.
    """

    name: str
    title: str
    authors: str
    venue: str
    about: str
    state: str
    #: Its studies, the one of the paper's name first.
    studies: tuple[str, ...]

    @property
    def claims_text(self) -> str:
        """The claims, as TOML."""
        return _text(self.name, "claims.toml")

    def study_text(self, study: str) -> str:
        """Give the definition of one of its studies, as TOML."""
        return _text(self.name, study + _STUDY)


def _text(paper: str, file: str) -> str:
    return files(__package__).joinpath(paper, file).read_text("utf-8")


@functools.cache
def papers() -> dict[str, Paper]:
    """Give all papers by name.

    >>> list(papers())
    ['advil12', 'dsn17', 'fast12', 'iiswc15']
    """
    found = {}
    for folder in sorted(files(__package__).iterdir(), key=lambda entry: entry.name):
        if folder.is_dir() and folder.joinpath("paper.toml").is_file():
            names = sorted(
                entry.name.removesuffix(_STUDY) for entry in folder.iterdir() if entry.name.endswith(_STUDY)
            )
            names.sort(key=lambda name: name != folder.name)
            found[folder.name] = Paper(
                name=folder.name, studies=tuple(names), **tomllib.loads(_text(folder.name, "paper.toml"))
            )
    return found


def paper(name: str, field: str = "--paper") -> Paper:
    """Find a paper by its name.

    Raises:
        ConfigError: there is no such paper.
    """
    if name not in papers():
        raise ConfigError(
            f"there is no paper `{name}`",
            kind="config",
            field=field,
            hint=f"choose one of: {', '.join(papers())}",
        )
    return papers()[name]


def studies() -> dict[str, Paper]:
    """Give the paper of each study that comes with emmclab.

    >>> {study: found.name for study, found in studies().items()}["implications"]
    'iiswc15'
    """
    return {study: found for found in papers().values() for study in found.studies}
