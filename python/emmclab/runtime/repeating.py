"""Work that is repeated while other work goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(every_s: float, work: Callable[[], None]) -> Iterator[None]:
    """Do `work` every this many seconds, in a thread of its own, until the block ends."""
    import threading

    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            work()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
