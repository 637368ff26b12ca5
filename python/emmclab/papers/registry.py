"""The list of papers, read from the folders of this package."""

import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable

from emmclab.errors import ConfigError
from emmclab.studies.bundled import studies_in


@dataclass(frozen=True)
class Paper:
    """A paper.

    `state` is `works`, or `to come` if the system that its claims are about does not exist yet.
    """

    name: str
    title: str
    authors: str
    venue: str
    about: str
    state: str
    #: Names of the studies of the paper; the study that is named like the paper comes first.
    studies: tuple[str, ...]
    #: Whether the option `--traces` can replace the workloads of the studies with the original traces of the paper.
    takes_traces: bool = False
    #: Grids of each study that no claim of the paper uses; `emmclab claims` does not run them.
    grids_without_claims: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def claims_text(self) -> str:
        """Return the claims as TOML; empty if the paper has none."""
        claims = _folder(self.name).joinpath("claims.toml")
        return claims.read_text("utf-8") if claims.is_file() else ""


def _folder(paper: str) -> Traversable:
    return files(__package__).joinpath(paper)


@functools.cache
def papers() -> dict[str, Paper]:
    """Return all papers by name.

    >>> list(papers())
    ['advil12', 'dsn17', 'fast12', 'iiswc15', 'systor24', 'wear19']
    """
    papers_by_name = {}
    for folder in sorted(files(__package__).iterdir(), key=lambda entry: entry.name):
        about = folder.joinpath("paper.toml")
        if folder.is_dir() and about.is_file():
            papers_by_name[folder.name] = Paper(
                name=folder.name, studies=tuple(studies_in(folder)), **tomllib.loads(about.read_text("utf-8"))
            )
    return papers_by_name


def paper(name: str, field: str = "--paper") -> Paper:
    """Find a paper by its name."""
    if name not in papers():
        raise ConfigError(f"there is no paper `{name}`", field=field, hint=f"the papers are: {', '.join(papers())}")
    return papers()[name]


def studies() -> dict[str, Paper]:
    """Return the paper of each study that comes with emmclab.

    >>> {study: found.name for study, found in studies().items()}["implications"]
    'iiswc15'
    """
    return {study: registered for registered in papers().values() for study in registered.studies}
