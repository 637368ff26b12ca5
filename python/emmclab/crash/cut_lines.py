"""Finds the lines of generated programs that determine where power is cut."""

from collections.abc import Sequence
from typing import TypedDict

#: Operations after whose success their effect is promised.
_SYNCS = ("fsync", "fdatasync", "msync", "syncfs", "sync")


class CutLines(TypedDict):
    """Lines of a workload, by their index.

    After each line of `first`, and right before it, power is cut before any other moment is chosen; its
    groups are in order of importance. Between a line of `idle` and the next line nothing is judged.
    """

    first: list[list[int]]
    idle: list[int]


def cut_lines(lines: Sequence[str]) -> CutLines:
    """Return the lines that acknowledge syncs, the last one of each program first, and those in between.

    >>> cut_lines(["mount ext4 rw", "begin 0 a", "does sync", "did", "does fsync .", "did", "end 0"])
    {'first': [[5], [3]], 'idle': [0, 6]}
    """
    last: list[int] = []
    others: list[int] = []
    idle: list[int] = []
    own: list[int] = []
    for index, line in enumerate(lines):
        word = line.partition(" ")[0]
        if word in ("begin", "end", "mount"):
            last += own[-1:]
            others += own[:-1]
            own = []
            if word != "begin":
                idle.append(index)
        elif word == "did" and lines[index - 1].removeprefix("does ").partition(" ")[0] in _SYNCS:
            own.append(index)
    return {"first": [last + own[-1:], others + own[:-1]], "idle": idle}
