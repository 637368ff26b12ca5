"""Threads for simulations: the core works without the interpreter's lock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from emmclab import _core


@contextmanager
def threads(jobs: int = 0) -> Iterator[ThreadPoolExecutor]:
    """Provide a pool of threads; 0 jobs are one for each processor.

    When an exception leaves the block, as Ctrl-C does, what waits is not begun, and what runs in the core
    ends within 0.1 s.

    >>> with threads(2) as pool:
    ...     sum(pool.map(abs, [-1, 2]))
    3
    """
    interruption = _core.Interruption()
    pool = ThreadPoolExecutor(jobs or os.cpu_count() or 1, "emmclab", initializer=interruption.follow)
    try:
        yield pool
    except BaseException:
        interruption.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
