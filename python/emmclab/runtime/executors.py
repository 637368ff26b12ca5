"""Runs tasks: the interface of executors, and the executors for this computer.

The module `cluster` contains the executor for a cluster.
"""

import contextlib
import ctypes
import functools
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from emmclab.errors import EmmclabError

#: Numbers of the parameters M_TRIM_THRESHOLD and M_MMAP_MAX of glibc's `mallopt`.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
#: Free memory at the end of the heap above which glibc returns memory to the kernel, bytes. The maximum `int` means
#: never.
_KEPT_BYTES = 2**31 - 1


def keep_freed_memory() -> None:
    """Make this process keep freed memory for later use. Does nothing if the C library is not glibc.

    Each simulation copies the state of a used device, some hundred megabytes. By default glibc returns each freed copy
    to the system, which then clears every page for the next copy: this takes half the time of a short simulation.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


#: Time that a worker has for cleaning up after the parent process has ended, seconds.
_TIDY_S = 10.0
#: Maximum number of consecutive worker processes that end before they are ready.
_STILLBORN = 3
#: Task duration below which a worker gets its next task before it finishes the current one, seconds.
_SHORT_S = 2.0

#: Maximum length of the path of a unix socket, without the terminating zero: `sun_path` of Linux has 108 bytes.
_SOCKET_PATH_BYTES = 107

Task = TypeVar("Task")
Outcome = TypeVar("Outcome")
#: Function that runs a task.
Work = Callable[[Task], Outcome]
#: Function that returns the next task of a worker, given its last task; None if no task is available.
NextTask = Callable[[Task | None], Task | None]


@dataclass(frozen=True)
class Crash:
    """The outcome of a task whose worker process ended while it ran, as after a segmentation fault."""

    reason: str


class Executor(Protocol):
    """Runs tasks; results do not depend on their order or on the process that runs them."""

    #: Number of tasks that run at the same time.
    jobs: int
    #: Whether all tasks run on this machine.
    is_local: bool

    def run(
        self, work: Work[Task, Outcome], next_task: NextTask[Task], files: Sequence[str] = ()
    ) -> Generator[tuple[Task, Outcome | Crash]]:
        """Run `work` on tasks; yield each task with its outcome as it finishes, in any order.

        `next_task` is called when a worker is free, with the last task of this worker, if any, so that it can
        select a task on the same device or input. It returns None if no task is available at the moment. The
        run ends when it returns None and no task is running. `files` are the files that `work` reads. An
        exception of `work` is raised, and no further task is started.
        """

    def close(self) -> None:
        """Release all resources."""


def each(tasks: Iterable[Task]) -> NextTask[Task]:
    """Return a function for `next_task` that returns the tasks in order, then None.

    >>> take = each("ab")
    >>> [take(None), take("a"), take("b")]
    ['a', 'b', None]
    """
    remaining = iter(tasks)
    return lambda _previous: next(remaining, None)


class Serial:
    """Runs one task after the other, in this process."""

    jobs, is_local = 1, True

    def run(
        self, work: Work[Task, Outcome], next_task: NextTask[Task], files: Sequence[str] = ()
    ) -> Generator[tuple[Task, Outcome | Crash]]:
        """Run the tasks in order."""
        del files
        task: Task | None = None
        while (task := next_task(task)) is not None:
            yield task, work(task)

    def close(self) -> None:
        """Do nothing: there are no resources."""


@dataclass(eq=False)
class _Worker:
    """A worker process and its queued tasks, of which it runs the first."""

    process: Any
    pipe: Connection
    tasks: deque[Any] = field(default_factory=deque)
    #: The task that was last added to the queue of the worker.
    last: Any = None
    #: Whether the worker has started and accepts tasks.
    is_ready: bool = False


class Pool:
    """Worker processes on this computer; they end when this process ends, even if it is killed.

    Each worker has a separate pipe, so that the task of a crashed worker is known.
    """

    is_local = True

    def __init__(self, jobs: int) -> None:
        """Set the number of processes."""
        self.jobs = jobs
        # The fork server of multiprocessing creates its socket in a subfolder of the temporary folder.
        socket = len(os.fsencode(tempfile.gettempdir())) + len("/pymp-xxxxxxxx/listener-xxxxxxxx")
        method = "forkserver" if os.name == "posix" and socket <= _SOCKET_PATH_BYTES else "spawn"
        self._context: Any = multiprocessing.get_context(method)

    def run(
        self, work: Work[Task, Outcome], next_task: NextTask[Task], files: Sequence[str] = ()
    ) -> Generator[tuple[Task, Outcome | Crash]]:
        """Run the tasks in parallel. An interruption or a failure stops the running tasks."""
        del files
        workers: dict[Connection, _Worker] = {}
        depth_limit = 1
        stillborn = 0
        # Tasks that crashed workers had in their queues but had not started.
        returned: deque[Task] = deque()
        outcome: Any

        def fill_queues() -> None:
            for depth in range(1, depth_limit + 1):
                while True:
                    worker = next((worker for worker in workers.values() if len(worker.tasks) < depth), None)
                    if worker is None and len(workers) >= self.jobs:
                        break
                    task = returned.popleft() if returned else next_task(worker.last if worker else None)
                    if task is None:
                        return
                    if worker is None:
                        worker = self._start(work)
                        workers[worker.pipe] = worker
                    worker.tasks.append(task)
                    worker.last = task
                    with contextlib.suppress(OSError):  # The worker has crashed; the loop below detects it.
                        worker.pipe.send(task)

        try:
            fill_queues()
            while any(worker.tasks for worker in workers.values()):
                for pipe in wait_for(list(workers)):
                    worker = workers[pipe]  # type: ignore[index]
                    try:
                        received = worker.pipe.recv()
                    except (EOFError, OSError):
                        del workers[worker.pipe]
                        crash = Crash(_ending(worker))
                        if not worker.is_ready:
                            stillborn += 1
                            returned.extend(worker.tasks)
                            if stillborn == _STILLBORN:
                                raise _no_workers(crash) from None
                            continue
                        task = worker.tasks.popleft() if worker.tasks else None
                        returned.extend(worker.tasks)
                        if task is None:
                            continue
                        raised, outcome = False, crash
                    else:
                        if received is None:
                            worker.is_ready, stillborn = True, 0
                            continue
                        raised, outcome, took_s = received
                        task = worker.tasks.popleft()
                        depth_limit = 2 if took_s < _SHORT_S else 1
                    if raised:
                        raise outcome
                    fill_queues()
                    yield task, outcome
                fill_queues()
        except BaseException:
            for worker in workers.values():
                worker.process.terminate()
            raise
        finally:
            for worker in workers.values():
                worker.pipe.close()
            for worker in workers.values():
                worker.process.join()

    def close(self) -> None:
        """Do nothing: the processes end with each run."""

    def _start(self, work: Callable[[Any], Any]) -> _Worker:
        if self._context.get_start_method() == "forkserver":
            # The fork server imports the module of the work once, so that its workers do not have to.
            function = work.func if isinstance(work, functools.partial) else work
            self._context.set_forkserver_preload([__name__, function.__module__])
        own_end, worker_end = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(worker_end, work))
        process.start()
        worker_end.close()
        return _Worker(process, own_end)


def _ending(worker: _Worker) -> str:
    """Return how a worker process ended."""
    worker.process.join()
    code = worker.process.exitcode
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process ended with status {code}"


def _no_workers(crash: Crash) -> EmmclabError:
    return EmmclabError(
        f"{_STILLBORN} worker processes in a row ended before they could begin: {crash.reason}",
        hint="free some memory, or run all tasks in this process: `--jobs 1`",
    )


def _serve(pipe: Connection, work: Callable[[Any], Any]) -> None:
    """Run the tasks that arrive through the pipe, until it is closed."""
    _follow_parent()
    keep_freed_memory()
    tasks: SimpleQueue[Any] = SimpleQueue()
    # A thread reads the pipe, so that the parent's `send` never blocks while the worker is busy.
    threading.Thread(target=_receive, args=[pipe, tasks], daemon=True).start()
    # Report that the worker is ready. If it ends before this report, its end was not caused by a task.
    pipe.send(None)
    while (received := tasks.get()) is not None:
        task, refused = received
        started = time.monotonic()
        raised, outcome = False, None
        try:
            if refused is not None:
                raise refused
            outcome = work(task)
        except Exception as error:
            raised, outcome = True, _portable(error)
        pipe.send((raised, outcome, time.monotonic() - started))


def _receive(pipe: Connection, tasks: SimpleQueue[Any]) -> None:
    """Move tasks from the pipe to the queue, or an error if a task cannot be unpickled; at the end, queue None."""
    while True:
        try:
            tasks.put((pipe.recv(), None))
        except (EOFError, OSError):
            tasks.put(None)
            return
        except Exception as error:
            tasks.put((None, error))


def _portable(error: Exception) -> Exception:
    """Return the exception itself or, if it cannot be pickled for another process, an exception with its text."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - pickled here.
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _follow_parent() -> None:
    """Ignore Ctrl-C and hang-ups, which the parent handles; end by SIGTERM when the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform != "win32":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=[parent.sentinel], daemon=True).start()


def _end_after(sentinel: int) -> None:
    wait_for([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_TIDY_S)
    os._exit(1)
