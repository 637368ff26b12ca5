"""Think times: a workload pauses at random moments, for as long as the kernel takes to write everything back.

A workload that runs without a pause is over before any timer of the kernel goes off (ext4 commits every 5 s,
dirty pages are written after 30 s). Between two calls of a program nothing then reaches the device by itself,
and a cut finds none of the states that a program leaves which waits there: for its user, for another program,
for a processor.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import random
import signal
import threading
from pathlib import Path
from types import TracebackType

#: Shortest and longest mean time between two pauses; each seed draws its own.
_MEAN_S = (0.0005, 0.02)


class Thinking:
    """Pauses of a workload's process group while this context is entered; none with the seed 0."""

    def __init__(self, group: int, folder: Path, seed: int) -> None:
        """Name the process group, the folder where its file system is mounted, and the seed."""
        self._group, self._folder = group, folder
        self._dice = random.Random(seed)  # noqa: S311 - the same seed, the same think times.
        low, high = (math.log(bound) for bound in _MEAN_S)
        self._mean_s = math.exp(self._dice.uniform(low, high))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True) if seed else None
        self.pauses = 0

    def __enter__(self) -> Thinking:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            syncfs = ctypes.CDLL(None, use_errno=True).syncfs
            with contextlib.suppress(ProcessLookupError):  # The workload is over.
                while not self._over.wait(self._dice.expovariate(1 / self._mean_s)):
                    os.killpg(self._group, signal.SIGSTOP)
                    try:
                        syncfs(handle)
                    finally:
                        os.killpg(self._group, signal.SIGCONT)
                    self.pauses += 1
        finally:
            os.close(handle)
