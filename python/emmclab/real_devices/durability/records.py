"""Records of 4 KB, whose sectors contain run, block, step and checksum, and the steps of each writer.

Each writer has its own blocks. Its steps form episodes of several kinds, because a device may lose the data of each
kind in a different way: writes followed by a flush, writes through the cache without a flush, writes without any
promise, and blocks that are trimmed or zeroed.
"""

import hashlib
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

BLOCK = 4096
SECTOR = 512
SECTORS = BLOCK // SECTOR
_MAGIC = b"emmcLab1"
#: Header of a record: magic number, run, block, number of the step, index of the sector in the block.
_HEADER = struct.Struct("<8sQQQH")
_CHECKSUM = struct.Struct("<I")
_ZEROS = bytes(SECTOR)


class Stamp(NamedTuple):
    """The identity that a sector of a record contains.

    Attributes:
        run: number of the run that wrote the sector.
        block: block for which it was written.
        number: step of the writer that wrote it; 0 for the first pass over all blocks.
    """

    run: int
    block: int
    number: int


#: Contents of a sector that is not a record: zeros, or anything else.
ZERO, GARBAGE = "zero", "garbage"
Content = Stamp | str


def record(stamp: Stamp) -> bytes:
    """Return the 4,096 bytes of a record; they are incompressible.

    >>> len(record(Stamp(7, 3, 12))), contents(record(Stamp(7, 3, 12))) == [Stamp(7, 3, 12)] * 8
    (4096, True)
    """
    filling = hashlib.shake_128(struct.pack("<QQQ", *stamp)).digest(BLOCK)
    sectors = []
    for sector in range(SECTORS):
        begin = sector * SECTOR
        body = _HEADER.pack(_MAGIC, *stamp, sector)
        body += filling[begin + len(body) : begin + SECTOR - _CHECKSUM.size]
        sectors.append(body + _CHECKSUM.pack(zlib.crc32(body)))
    return b"".join(sectors)


def contents(block: bytes) -> list[Content]:
    """Return the content of each sector of a block.

    >>> torn = record(Stamp(7, 3, 12))[:2048] + record(Stamp(7, 3, 9))[2048:]
    >>> [sector.number for sector in contents(torn)]
    [12, 12, 12, 12, 9, 9, 9, 9]
    >>> set(contents(bytes(4096))), set(contents(b"?" * 4096))
    ({'zero'}, {'garbage'})
    """
    return [_content(block[offset : offset + SECTOR], offset // SECTOR) for offset in range(0, BLOCK, SECTOR)]


def _content(sector: bytes, place: int) -> Content:
    if sector == _ZEROS:
        return ZERO
    magic, run, block, number, index = _HEADER.unpack_from(sector)
    (checksum,) = _CHECKSUM.unpack_from(sector, SECTOR - _CHECKSUM.size)
    if magic != _MAGIC or index != place or checksum != zlib.crc32(sector[: -_CHECKSUM.size]):
        return GARBAGE
    return Stamp(run, block, number)


class Kind(StrEnum):
    """What a step of a writer does."""

    WRITE = "write"
    #: A write that is durable when it returns (`RWF_DSYNC`, FUA).
    THROUGH = "through"
    TRIM = "trim"
    #: Zeros that are written by a command without data (write zeroes).
    ZEROES = "zeroes"
    FSYNC = "fsync"
    FDATASYNC = "fdatasync"

    @property
    def is_flush(self) -> bool:
        """Whether a step of this kind makes all earlier steps of its writer durable."""
        return self in (Kind.FSYNC, Kind.FDATASYNC)

    @property
    def is_sync(self) -> bool:
        """Whether data is durable when a step of this kind returns, so that the return is logged."""
        return self.is_flush or self is Kind.THROUGH


class Step(NamedTuple):
    """One step of a writer.

    Attributes:
        number: number of the step among those of the writer, from 1.
        kind: what the step does.
        first: first block that it concerns.
        blocks: number of blocks that it concerns; 0 for a flush.
    """

    number: int
    kind: Kind
    first: int
    blocks: int


class Plan(NamedTuple):
    """The parameters that determine the steps of a run.

    Attributes:
        run: random number that identifies the run.
        blocks: number of 4 KB blocks of all writers together.
        writers: number of writers, which work at the same time.
        trims: whether the target supports trim.
        zeroes: whether the target supports write-zeroes commands.
    """

    run: int
    blocks: int
    writers: int
    trims: bool
    zeroes: bool

    @property
    def share(self) -> int:
        """Number of blocks that each writer owns."""
        return self.blocks // self.writers

    def writer_of(self, block: int) -> int:
        """Return the writer that owns a block.

        >>> Plan(1, 100, 4, trims=False, zeroes=False).writer_of(99)
        3
        """
        return block // self.share


#: Maximum length of a write, blocks (`_LARGEST`), and maximum number of consecutive writes of one kind (`_EPISODE`).
_LARGEST = 16
_EPISODE = 24
#: Number of frequently rewritten blocks at the start of each writer's share of the target.
_HOT = 32


def steps(plan: Plan, writer: int) -> Iterator[Step]:
    """Yield the steps of a writer, endlessly; the same plan results in the same steps.

    >>> plan = Plan(run=1, blocks=400, writers=4, trims=False, zeroes=False)
    >>> first, second = steps(plan, 2), steps(plan, 2)
    >>> all(next(first) == next(second) for _ in range(1000))
    True
    >>> all(200 <= step.first < 300 for step, _ in zip(steps(plan, 2), range(1000)))
    True
    """
    # Only `random()` of this generator returns the same numbers in every version of Python.
    dice = random.Random(f"{plan.run}/{writer}").random  # noqa: S311 - not for secrets
    kinds = [Kind.WRITE, Kind.FSYNC, Kind.FDATASYNC, Kind.THROUGH]
    kinds += [Kind.TRIM] * plan.trims + [Kind.ZEROES] * plan.zeroes
    number, position = 0, 0
    while True:
        episode = kinds[_below(dice, len(kinds))]
        kind = Kind.WRITE if episode.is_flush else episode
        for _ in range(1 + _below(dice, _EPISODE)):
            number += 1
            count = min(1 + _below(dice, _LARGEST), plan.share)
            position = _place(dice, position, count, plan.share)
            yield Step(number, kind, writer * plan.share + position, count)
            position += count
        if episode not in (Kind.WRITE, Kind.THROUGH):
            number += 1
            yield Step(number, episode if episode.is_flush else Kind.FDATASYNC, writer * plan.share, 0)


def _below(dice: Callable[[], float], end: int) -> int:
    return int(end * dice())


def _place(dice: Callable[[], float], position: int, count: int, share: int) -> int:
    """Choose the block of a write: after the previous write, in the frequently written blocks, or anywhere."""
    chance = dice()
    if chance < 0.25 and position + count <= share:
        return position
    span = share if chance < 0.75 else min(share, max(_HOT, count))
    return _below(dice, span - count + 1)
