"""A promise that a state breaks, and counts per cut."""

from __future__ import annotations

from dataclasses import dataclass

#: Value of `way` for findings that commands show, independent of any state.
COMMANDS = "commands"
#: Levels from the device up, by which findings are sorted.
LEVELS = ("device", "layer", "journal", "filesystem", "application")


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


@dataclass
class CutTally:
    """Counts of the judged states of a cut."""

    at_ns: int
    states: int = 0
    #: Numbers of states that break a promise, and of states with a documented loss.
    broken: int = 0
    documented: int = 0

    def add(self, other: CutTally) -> None:
        """Add the counts of another share."""
        self.states += other.states
        self.broken += other.broken
        self.documented += other.documented
