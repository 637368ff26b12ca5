"""Think times: a workload pauses at random moments until the kernel has written everything back.

A workload without pauses ends before any timer of the kernel expires (ext4 commits every 5 s, dirty pages are
written after 30 s). Then nothing reaches the device between two calls of a program, and cuts miss the states
of a program that waits there: for its user, for another program, or for a processor.
"""

import contextlib
import ctypes
import math
import os
import random
import signal
import threading
from pathlib import Path
from types import TracebackType

#: Minimum and maximum of the mean time between two pauses; each seed draws its own mean.
_MEAN_S = (0.0005, 0.02)


def sync_file_system(folder: Path) -> None:
    """Write back everything in the file system of a folder."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        ctypes.CDLL(None, use_errno=True).syncfs(handle)
    finally:
        os.close(handle)


class Thinking:
    """Pauses a workload's process group while this context is active; never with the seed 0."""

    def __init__(self, group: int, folder: Path, seed: int) -> None:
        """Set the process group, the mount point of its file system, and the seed."""
        self._group, self._folder = group, folder
        self._dice = random.Random(seed)  # noqa: S311 - the same seed, the same think times.
        low, high = (math.log(bound) for bound in _MEAN_S)
        self._mean_s = math.exp(self._dice.uniform(low, high))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True) if seed else None
        self.pauses = 0

    def __enter__(self) -> "Thinking":
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
        with contextlib.suppress(ProcessLookupError):  # The workload has ended.
            while not self._over.wait(self._dice.expovariate(1 / self._mean_s)):
                os.killpg(self._group, signal.SIGSTOP)
                try:
                    sync_file_system(self._folder)
                finally:
                    os.killpg(self._group, signal.SIGCONT)
                self.pauses += 1
