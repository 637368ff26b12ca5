"""A promise that a state breaks, and counts per cut."""

import re
from dataclasses import dataclass

#: Value of `way` for findings that commands show, independent of any state.
COMMANDS = "commands"
#: Levels from the device up, by which findings are sorted.
LEVELS = ("device", "layer", "journal", "filesystem", "application")


#: The promise that a command checks; only the output of the command has the reason of a failure.
CHECK = "check"
#: A word with a digit: a number, or an identifier that differs from state to state.
_COUNTED = re.compile(r"\w*\d\w*")
#: Level, promise, whether the loss is documented, and for a command the text without numbers.
Kind = tuple[str, str, bool, str]


def kind_of(level: str, promise: str, documented: str | None, detail: str) -> Kind:
    """Return the kind of a finding: findings of one kind are counted together.

    >>> kind_of("application", "check", None, "row 12 is lost")
    ('application', 'check', False, 'row # is lost')
    """
    return level, promise, documented is not None, _COUNTED.sub("#", detail) if promise == CHECK else ""


@dataclass
class Finding:
    """A promise that a state breaks; the first finding of each kind is kept."""

    promise: str
    level: str
    cut: int
    state: int
    index: int
    detail: str
    way: str
    at_ns: int
    acknowledged: int
    documented: str | None = None
    count: int = 1

    @property
    def kind(self) -> Kind:
        """The kind of the finding."""
        return kind_of(self.level, self.promise, self.documented, self.detail)


@dataclass
class CutTally:
    """Counts of the judged states of a cut."""

    at_ns: int
    states: int = 0
    #: Numbers of states that break a promise, and of states with a documented loss.
    broken: int = 0
    documented: int = 0

    def add(self, other: "CutTally") -> None:
        """Add the counts of another share."""
        self.states += other.states
        self.broken += other.broken
        self.documented += other.documented
