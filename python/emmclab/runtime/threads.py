"""Thread pools for simulations, and functions that a background thread repeats."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from emmclab import _core


@contextmanager
def threads(jobs: int = 0) -> Iterator[ThreadPoolExecutor]:
    """Provide a pool of `jobs` threads; 0 means one per processor.

    Simulations run in parallel, because the core releases the interpreter's lock.
    When an exception such as Ctrl-C ends the block, waiting tasks are not started, and tasks in the core
    end within 0.1 s.

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


@contextmanager
def repeated(every_s: float, work: Callable[[], None]) -> Iterator[None]:
    """Call `work` every `every_s` seconds in its own thread, until the block ends."""
    import threading

    stopped = threading.Event()

    def run() -> None:
        while not stopped.wait(every_s):
            work()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
