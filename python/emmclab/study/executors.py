"""Where cells run: a small protocol that the engine of a cluster fits too."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing.connection import wait as wait_for
from typing import Literal, Protocol, TypeVar

#: Time that work has to tidy up once the parent is gone, seconds.
_TIDY_S = 10.0

#: Longest path of a unix socket, without the zero behind it: `sun_path` of Linux has 108 bytes.
_SOCKET_PATH_BYTES = 107

Task = TypeVar("Task")
Outcome = TypeVar("Outcome")


class Executor(Protocol):
    """Runs tasks; the results do not depend on order or process."""

    def run(self, work: Callable[[Task], Outcome], tasks: Sequence[Task]) -> Iterator[tuple[Task, Outcome]]:
        """Do `work` on every task; yield each with its outcome as it finishes, in any order.

        Raises whatever `work` raises, and then begins nothing more.
        """
        ...


class Serial:
    """One task after the other, in this process."""

    def run(self, work: Callable[[Task], Outcome], tasks: Sequence[Task]) -> Iterator[tuple[Task, Outcome]]:
        """Do the tasks in order."""
        for task in tasks:
            yield task, work(task)


class Pool:
    """Processes of this computer; they end with this process, however it ends."""

    def __init__(self, jobs: int) -> None:
        """Set the number of processes."""
        self._jobs = jobs

    def run(self, work: Callable[[Task], Outcome], tasks: Sequence[Task]) -> Iterator[tuple[Task, Outcome]]:
        """Do the tasks in parallel. An interruption or a failure stops the tasks that are under way."""
        others = set(multiprocessing.active_children())
        context = multiprocessing.get_context(_start_method())
        pool = ProcessPoolExecutor(self._jobs, mp_context=context, initializer=_worker)
        left = iter(tasks)
        running: dict[Future[Outcome], Task] = {}

        def submit() -> None:
            with contextlib.suppress(StopIteration):
                task = next(left)
                running[pool.submit(work, task)] = task

        try:
            for _ in range(2 * self._jobs):
                submit()
            while running:
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    task = running.pop(future)
                    submit()
                    yield task, future.result()
        except BaseException:
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _start_method() -> Literal["forkserver", "spawn"]:
    # The server listens on a socket two levels below the temporary folder.
    socket = len(os.fsencode(tempfile.gettempdir())) + len("/pymp-xxxxxxxx/listener-xxxxxxxx")
    return "forkserver" if os.name == "posix" and socket <= _SOCKET_PATH_BYTES else "spawn"


def _worker() -> None:
    """Leave Ctrl-C to the parent, and end when it is gone: by SIGTERM, so that work may tidy up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=[parent.sentinel], daemon=True).start()


def _end_after(sentinel: int) -> None:
    wait_for([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_TIDY_S)
    os._exit(1)
