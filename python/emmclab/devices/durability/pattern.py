"""The steps of a writer: they follow from the number of the run, so that a log need not hold them.

Each writer has blocks of its own. Its steps come in episodes, each of which leaves something that a device
may lose in a way of its own: writes with a flush after them, writes through the cache without a flush,
writes without any promise, and blocks that are trimmed or zeroed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What a step does."""

    WRITE = "write"
    #: A write that is durable when it returns (`RWF_DSYNC`, FUA).
    THROUGH = "through"
    TRIM = "trim"
    #: Zeros that the device is told to write, without data.
    ZEROES = "zeroes"
    FSYNC = "fsync"
    FDATASYNC = "fdatasync"

    @property
    def is_flush(self) -> bool:
        """Whether the step makes all earlier ones of its writer durable."""
        return self in (Kind.FSYNC, Kind.FDATASYNC)

    @property
    def is_sync(self) -> bool:
        """Whether the step promises something when it returns, so that the log has a line of it."""
        return self.is_flush or self is Kind.THROUGH


class Step(NamedTuple):
    """One step of a writer.

    Attributes:
        number: its place among the steps of the writer, from 1.
        kind: what it does.
        first: its first block.
        blocks: number of its blocks; 0 for a flush.
    """

    number: int
    kind: Kind
    first: int
    blocks: int


class Plan(NamedTuple):
    """What determines the steps of a run.

    Attributes:
        run: its number, drawn by chance.
        blocks: number of blocks of all writers, of 4 KB.
        writers: number of writers, which work at the same time.
        trims: whether the target takes trims.
        zeroes: whether the target takes writes of zeros without data.
    """

    run: int
    blocks: int
    writers: int
    trims: bool
    zeroes: bool

    @property
    def share(self) -> int:
        """Number of blocks of each writer."""
        return self.blocks // self.writers

    def writer_of(self, block: int) -> int:
        """Return the writer to which a block belongs.

        >>> Plan(1, 100, 4, trims=False, zeroes=False).writer_of(99)
        3
        """
        return block // self.share


#: Largest write, blocks; largest number of writes of an episode.
_LARGEST = 16
_EPISODE = 24
#: Blocks that are written again and again, at the start of a writer's share.
_HOT = 32


def steps(plan: Plan, writer: int) -> Iterator[Step]:
    """Yield the steps of a writer, without end; the same plan gives the same steps.

    >>> plan = Plan(run=1, blocks=400, writers=4, trims=False, zeroes=False)
    >>> one, again = steps(plan, 2), steps(plan, 2)
    >>> all(next(one) == next(again) for _ in range(1000))
    True
    >>> all(200 <= step.first < 300 for step, _ in zip(steps(plan, 2), range(1000)))
    True
    """
    # Of this generator only `random` gives the same numbers in every version of Python.
    dice = random.Random(f"{plan.run}/{writer}").random  # noqa: S311 - not for secrets
    kinds = [Kind.WRITE, Kind.FSYNC, Kind.FDATASYNC, Kind.THROUGH]
    kinds += [Kind.TRIM] * plan.trims + [Kind.ZEROES] * plan.zeroes
    number, at = 0, 0
    while True:
        episode = kinds[_below(dice, len(kinds))]
        each = Kind.WRITE if episode.is_flush else episode
        for _ in range(1 + _below(dice, _EPISODE)):
            number += 1
            count = min(1 + _below(dice, _LARGEST), plan.share)
            at = _place(dice, at, count, plan.share)
            yield Step(number, each, writer * plan.share + at, count)
            at += count
        if episode not in (Kind.WRITE, Kind.THROUGH):
            number += 1
            yield Step(number, episode if episode.is_flush else Kind.FDATASYNC, writer * plan.share, 0)


def _below(dice: Callable[[], float], end: int) -> int:
    return int(end * dice())


def _place(dice: Callable[[], float], at: int, count: int, share: int) -> int:
    """Choose where a write goes: after the one before, to blocks that are often written, or anywhere."""
    chance = dice()
    if chance < 0.25 and at + count <= share:
        return at
    span = share if chance < 0.75 else min(share, max(_HOT, count))
    return _below(dice, span - count + 1)
