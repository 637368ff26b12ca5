"""The declared findings, and their answers from results."""

import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files

from emmclab.papers.findings.measured import Found
from emmclab.studies.results import Results
from emmclab.traces.profile import Profile


@dataclass(frozen=True)
class Finding:
    """A finding as it is declared."""

    id: str
    question: str
    method: str
    limits: str
    #: `MODULE.FUNCTION` of this package that computes the answer, and the command that reproduces it.
    measure: str
    command: str
    #: The study whose results it needs; empty if it needs none.
    study: str = ""
    #: Whether it needs profiles of recorded traces.
    traces: bool = False

    def found(self, results: Mapping[str, Results], profiles: Sequence[Profile]) -> Found | None:
        """Return the answer; None if it needs recorded traces and there are none."""
        module, _, function = self.measure.partition(".")
        measure = getattr(import_module(f"{__package__}.{module}"), function)
        answer: Found | None
        if self.traces:
            answer = measure(profiles) if profiles else None
        else:
            answer = measure(results[self.study]) if self.study else measure()
        return answer


@functools.cache
def declared() -> tuple[Finding, ...]:
    """Return all findings in their order.

    >>> [one.id for one in declared()][:2]
    ['hybrid-merit', 'hybrid-worn']
    """
    text = files(__package__).joinpath("findings.toml").read_text("utf-8")
    return tuple(Finding(**one) for one in tomllib.loads(text)["finding"])


def studies() -> list[str]:
    """Return the studies that the findings need, without duplicates.

    >>> studies()
    ['iiswc15', 'implications', 'fast12', 'dsn17', 'advil12', 'phones']
    """
    return list(dict.fromkeys(one.study for one in declared() if one.study))
