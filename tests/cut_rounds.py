"""Rounds of writes that end with a power cut; needs only the standard library, so that any Python runs it."""

import os
import random
import threading
import time
from collections.abc import Callable
from typing import Protocol

#: Number of cuts of one test; `EMMCLAB_CUTS=1000` for a long one.
CUTS = int(os.environ.get("EMMCLAB_CUTS", "50"))
BLOCK, BLOCKS = 4096, 64


class Disk(Protocol):
    """The operations of a disk that a round of writes needs."""

    def write(self, block: int, version: int) -> None:
        """Write a block; raise `OSError` if the power is off."""

    def flush(self) -> None:
        """Make all written data durable."""

    def read(self, block: int) -> bytes:
        """Read a block."""


def stamp(version: int) -> bytes:
    """Return a block's content that only this version has."""
    return version.to_bytes(8, "little") * (BLOCK // 8)


def version_of(block: bytes) -> int | None:
    """Return the version of a block; None if it is not the whole content of one version."""
    version = int.from_bytes(block[:8], "little")
    return version if block == stamp(version) else None


def lost_in(disk: Disk, cut: Callable[[], None], restore: Callable[[], None]) -> list[str]:
    """Write while power is cut; return the acknowledged writes that are lost."""
    dice = random.Random(2012)
    newest, promised = [0] * BLOCKS, [0] * BLOCKS
    version, lost = 0, []
    for number in range(CUTS):
        busy, over = threading.Event(), threading.Event()
        # Counted in writes and not in time, so that a slow machine also has enough writes.
        writes = version + dice.randrange(1, 40)

        def power(after_s: float, busy: threading.Event = busy, over: threading.Event = over) -> None:
            busy.wait()
            time.sleep(after_s)
            cut()
            over.set()

        thread = threading.Thread(target=power, args=(dice.uniform(0, 0.003),))
        thread.start()
        try:
            while not over.is_set():
                version += 1
                if version >= writes:
                    busy.set()
                block = dice.randrange(BLOCKS)
                # Its data may be present although the write failed.
                newest[block] = version
                disk.write(block, version)
                if dice.random() < 0.25:
                    complete = list(newest)
                    disk.flush()
                    promised = complete
        except OSError:
            pass
        thread.join()
        restore()
        for block in range(BLOCKS):
            found = version_of(disk.read(block))
            if found is None or not promised[block] <= found <= newest[block]:
                lost.append(f"cut {number}, block {block}: {found}, acknowledged {promised[block]}")
            newest[block] = promised[block] = found or 0
    return lost
