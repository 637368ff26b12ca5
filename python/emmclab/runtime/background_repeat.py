"""Repeats a function in a background thread."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
