"""Reads the log of JBD2, and counts the bytes of logged blocks that equal their last logged copy.

The format is that of the kernel's documentation (filesystems/ext4/journal). This reader is independent of
emmclab's own, and reads contents, which traces do not have.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_MAGIC = 0xC03B3998
_DESCRIPTOR = 1
#: Incompatible features: block numbers of 64 bits, checksums of version 2 and 3.
_64BIT, _CSUM_V2, _CSUM_V3 = 0x2, 0x8, 0x10
#: Flags of a tag.
_ESCAPED, _SAME_UUID, _LAST = 0x1, 0x2, 0x8
_UUID_BYTES = 16


class Superblock(NamedTuple):
    """The fields of a journal's superblock that this reader uses."""

    block_bytes: int
    blocks: int
    first: int
    sequence: int
    incompatible: int


class Logged(NamedTuple):
    """A block in the log: its transaction, its home, and its contents."""

    sequence: int
    home: int
    data: bytes


def superblock(log: bytes) -> Superblock:
    """Read the superblock of a journal.

    Raises:
        ValueError: the data is not a journal.
    """
    magic, _, _, size, blocks, first, sequence, _, _, _, incompatible = struct.unpack_from(">11I", log)
    if magic != _MAGIC:
        raise ValueError("this is no journal of JBD2")
    return Superblock(size, blocks, first, sequence, incompatible)


def logged(log: bytes) -> Iterator[Logged]:
    """Yield the logged blocks of a log that has not wrapped around, in order.

    The log may have a gap between two mounts. No data block begins with the magic number, because JBD2
    escapes it.
    """
    head = superblock(log)
    at, newest = head.first, 0
    while at < head.blocks:
        block = log[at * head.block_bytes : (at + 1) * head.block_bytes]
        magic, kind, sequence = struct.unpack_from(">3I", block)
        at += 1
        if magic != _MAGIC or kind != _DESCRIPTOR or sequence < newest:
            continue
        newest = sequence
        for home, escaped in _tags(block, head.incompatible):
            data = log[at * head.block_bytes : (at + 1) * head.block_bytes]
            yield Logged(sequence, home, struct.pack(">I", _MAGIC) + data[4:] if escaped else data)
            at += 1


def _tags(block: bytes, incompatible: int) -> Iterator[tuple[int, bool]]:
    """Yield home block and escape flag of each block that a descriptor lists."""
    at = 12
    while at + 8 <= len(block):
        if incompatible & _CSUM_V3:
            home, flags, high, _ = struct.unpack_from(">4I", block, at)
            at += 16
        else:
            home, _, flags = struct.unpack_from(">I2H", block, at)
            high = struct.unpack_from(">I", block, at + 8)[0] if incompatible & _64BIT else 0
            at += 12 if incompatible & _64BIT else 8
            at += 2 if incompatible & _CSUM_V2 else 0
        yield home | (high << 32 if incompatible & _64BIT else 0), bool(flags & _ESCAPED)
        if not flags & _SAME_UUID:
            at += _UUID_BYTES
        if flags & _LAST:
            return


def unchanged(log: Path, since: int) -> dict[str, float]:
    """Compare the blocks that transactions from `since` on logged with their last logged copies.

    Returns the number of compared blocks, and the unchanged shares of their bytes and of their 512-byte sectors.
    """
    last: dict[int, bytes] = {}
    compared = same_bytes = same_sectors = size = 0
    for block in logged(log.read_bytes()):
        before, last[block.home] = last.get(block.home), block.data
        if before is None or block.sequence < since:
            continue
        size = len(block.data)
        compared += 1
        same_bytes += sum(first == second for first, second in zip(before, block.data, strict=True))
        same_sectors += sum(before[at : at + 512] == block.data[at : at + 512] for at in range(0, size, 512))
    return {
        "compared": compared,
        "unchanged_bytes_pct": round(100 * same_bytes / max(compared * size, 1), 2),
        "unchanged_sectors_pct": round(100 * same_sectors / max(compared * size // 512, 1), 2),
    }
