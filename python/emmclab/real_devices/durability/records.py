"""Records of 4 KB. Each sector contains the run and the write that wrote it, and a checksum."""

import hashlib
import struct
import zlib
from typing import NamedTuple

BLOCK = 4096
SECTOR = 512
SECTORS = BLOCK // SECTOR
_MAGIC = b"emmcLab1"
#: Magic, run, block, number of the step, index of the sector in the block.
_HEADER = struct.Struct("<8sQQQH")
_CHECKSUM = struct.Struct("<I")
_ZEROS = bytes(SECTOR)


class Stamp(NamedTuple):
    """The identity that a sector contains.

    Attributes:
        run: number of the run that wrote it.
        block: block for which it was written.
        number: step of its writer that wrote it; 0 for the first pass over all blocks.
    """

    run: int
    block: int
    number: int


#: A sector of zeros, and one that is neither zeros nor a record.
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
    return [_content(block[at : at + SECTOR], at // SECTOR) for at in range(0, BLOCK, SECTOR)]


def _content(sector: bytes, place: int) -> Content:
    if sector == _ZEROS:
        return ZERO
    magic, run, block, number, own = _HEADER.unpack_from(sector)
    (checksum,) = _CHECKSUM.unpack_from(sector, SECTOR - _CHECKSUM.size)
    if magic != _MAGIC or own != place or checksum != zlib.crc32(sector[: -_CHECKSUM.size]):
        return GARBAGE
    return Stamp(run, block, number)
