#!/usr/bin/env python3
"""Creates images with fast commits, always with the same bytes: `fast_commit_images.py FOLDER`.

`mounts.img`: one complete fast commit. `full.img`: fast commits fill all of their blocks. `torn.img`: power
failed between the two blocks of the first fast commit. `unlinked.img`: the inode of a deleted file that a
program still has open. Needs mke2fs and debugfs.
"""

import struct
import subprocess
import sys
from pathlib import Path

BLOCK = 4096
TRANSACTION = 7
UUID = "01234567-89ab-cdef-0123-456789abcdef"
HEAD, TAIL, PAD, INODE = 9, 8, 7, 6


def crc32c(data: bytes, state: int = 0) -> int:
    """Return the checksum in the kernel's chained form, without inversion."""
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    return state


def record(tag: int, value: bytes) -> bytes:
    """Return one record."""
    return struct.pack("<HH", tag, len(value)) + value


def head() -> bytes:
    """Return the head record of the first fast commit: no features, and its transaction."""
    return record(HEAD, struct.pack("<II", 0, TRANSACTION))


def ended(records: bytes) -> bytes:
    """Return a block with records and the tail record of the commit, which fills the block."""
    tail = struct.pack("<HHI", TAIL, BLOCK - len(records) - 4, TRANSACTION)
    return (records + tail + struct.pack("<I", crc32c(records + tail))).ljust(BLOCK, b"\0")


def padded(records: bytes) -> bytes:
    """Return a block of records of a commit that continues in the next block."""
    return records + record(PAD, bytes(BLOCK - len(records) - 4))


def unlinked() -> bytes:
    """Return the record of inode 12, an empty regular file without a link, mapped by extents."""
    inode = bytearray(160)
    struct.pack_into("<H", inode, 0, 0o100644)
    struct.pack_into("<I", inode, 0x20, 0x80000)
    struct.pack_into("<H", inode, 0x80, 32)
    return record(INODE, struct.pack("<I", 12) + bytes(inode))


def make(path: Path, commits: list[bytes]) -> None:
    """Create a file system with these blocks of fast commits; of three, the second is repeated to fill the area."""
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(32 << 20)
    seed = f"hash_seed={UUID},lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0"
    options = ["-q", "-F", "-b", str(BLOCK), "-J", "size=8", "-O", "fast_commit", "-U", UUID, "-E", seed]
    subprocess.run(["mke2fs", "-t", "ext4", *options, str(path)], check=True)
    output = subprocess.run(["debugfs", "-R", "blocks <8>", str(path)], check=True, capture_output=True, text=True)
    places = [int(word) for word in output.stdout.split()]
    image = bytearray(path.read_bytes())
    journal = places[0] * BLOCK
    fast = 16
    struct.pack_into(">II", image, journal + 0x18, TRANSACTION, 1)  # first transaction; where the log begins
    struct.pack_into(">I", image, journal + 0x28, 0x20)  # fast commits
    struct.pack_into(">I", image, journal + 0x54, fast)
    first = len(places) - fast + 1
    blocks = commits if len(commits) < 3 else [commits[0], *[commits[1]] * (fast - 2)]
    for place, block in zip(places[first:], blocks, strict=False):
        image[place * BLOCK : (place + 1) * BLOCK] = block
    image[1024 + 0x60] |= 4  # the journal has to be replayed
    struct.pack_into("<I", image, 1024 + 0x3FC, crc32c(bytes(image[1024 : 1024 + 0x3FC]), 0xFFFFFFFF))
    path.write_bytes(image)


def main() -> None:
    """Create the images in the folder of the first argument."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    make(folder / "mounts.img", [ended(head())])
    make(folder / "full.img", [ended(head()), ended(b""), ended(b"")])
    make(folder / "torn.img", [padded(head())])
    make(folder / "unlinked.img", [ended(head() + unlinked())])


if __name__ == "__main__":
    main()
