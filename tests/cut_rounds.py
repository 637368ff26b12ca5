"""Rounds of writes that end with a cut of power; it needs the standard library alone: any Python runs it."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from typing import Protocol

#: Cuts of one test; `EMMCLAB_CUTS=1000` for a long one.
CUTS = int(os.environ.get("EMMCLAB_CUTS", "50"))
BLOCK, BLOCKS = 4096, 64


class Disk(Protocol):
    """What a round of writes needs."""

    def write(self, block: int, version: int) -> None:
        """Write a block; an `OSError` where the power is gone."""

    def flush(self) -> None:
        """Make durable what was written."""

    def read(self, block: int) -> bytes:
        """Read a block."""


def stamp(version: int) -> bytes:
    """Fill a block with what only this version holds."""
    return version.to_bytes(8, "little") * (BLOCK // 8)


def version_of(block: bytes) -> int | None:
    """Return the version that a block holds whole."""
    version = int.from_bytes(block[:8], "little")
    return version if block == stamp(version) else None


def lost_in(disk: Disk, cut: Callable[[], None], restore: Callable[[], None]) -> list[str]:
    """Write under cuts of power; tell what was acknowledged and is not there."""
    dice = random.Random(2012)
    newest, promised = [0] * BLOCKS, [0] * BLOCKS
    version, lost = 0, []
    for number in range(CUTS):
        busy, over = threading.Event(), threading.Event()
        # By writes and not by the clock, so that a slow machine has its writes, too.
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
                # It may be found although its write failed.
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
