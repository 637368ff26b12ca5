"""A promise that a state breaks."""

from __future__ import annotations

from dataclasses import dataclass

#: How a finding was chosen that commands show, whatever state is left.
COMMANDS = "commands"
#: Levels from below, as findings are sorted.
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
    """What came of the states of a cut."""

    at_ns: int
    states: int = 0
    #: States that break a promise, and those that show a documented loss.
    broken: int = 0
    documented: int = 0

    def add(self, other: CutTally) -> None:
        """Add the states of another share."""
        self.states += other.states
        self.broken += other.broken
        self.documented += other.documented
