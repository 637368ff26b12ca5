"""Executor for a Ray cluster: runs tasks on its nodes, and sends them the files that they read."""

import contextlib
import functools
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from emmclab.errors import ConfigError, EmmclabError, InputError, UnsupportedError
from emmclab.runtime.executors import Crash, NextTask, Outcome, Task, Work
from emmclab.runtime.files import write_atomically
from emmclab.runtime.local_copies import build_digest, file_digest, scratch, use_copies
from emmclab.runtime.optional_libraries import library

#: Maximum size of a file that is sent to the cluster, bytes.
_MOST_BYTES = 1 << 30
#: Number of tasks per processor that are sent to the cluster: one runs, the next one waits.
_DEEP = 2
#: Number of node failures during a task after which the task is assumed to be their cause, and is not tried again.
_LOSSES = 5
#: Interval between checks of the nodes, and time without any node after which the run ends, seconds.
_LOOK_S, _NOBODY_S = 5.0, 60.0
#: Timeout for a connection to a network port, seconds.
_REACH_S = 10.0


class _Sent(NamedTuple):
    """A file in the cluster's object store; too large files are not stored, so that their content is missing."""

    digest: str
    name: str
    content: Any


class RayCluster:
    """A Ray cluster: `auto` or `ray://HOST:PORT` joins one; without an address, one is started on this machine."""

    is_local = False

    def __init__(self, address: str | None = None, jobs: int = 0) -> None:
        """Connect to a cluster.

        `jobs` limits the processes of a cluster that is started here; 0 means one per CPU.
        """
        # Without this setting, Ray sends usage statistics to its vendor at each start.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if address is None:
            _keep_strangers_out()
        self._ray = library("ray")
        cluster = {"num_cpus": jobs or os.cpu_count()} if address is None else {"address": address}
        quiet = {"log_to_driver": False, "logging_level": logging.CRITICAL, "configure_logging": True}
        try:
            _reach(address)
            with _own_handlers():
                context = self._ray.init(**cluster, **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ConfigError(
                f"{address or 'ray'}: no Ray cluster can be joined: {first}",
                field="--on",
                hint="start a cluster with `ray start --head`; RAY_AUTH_MODE and RAY_AUTH_TOKEN have to be those "
                "of the cluster; `--on ray` starts one on this machine",
            ) from error
        #: Address of Ray's dashboard; empty if there is none.
        self.dashboard = str(getattr(context, "dashboard_url", "") or "")
        self._looked = 0.0
        self._seen = time.monotonic()
        self.jobs = 1
        self._look()

    def close(self) -> None:
        """Disconnect from the cluster; a cluster that was started here ends."""
        self._ray.shutdown()

    def run(
        self, work: Work[Task, Outcome], next_task: NextTask[Task], files: Sequence[str] = ()
    ) -> Generator[tuple[Task, Outcome | Crash]]:
        """Run the tasks on all nodes; tasks of a lost node are run again elsewhere."""
        ray = self._ray
        sent = ray.put({path: self._send(path) for path in files})
        remote = ray.remote(num_cpus=1, max_retries=0)(_run_on_node)
        running: dict[Any, Task] = {}
        back: deque[Task] = deque()
        lost: Counter[int] = Counter()

        def give() -> None:
            while len(running) < _DEEP * self.jobs:
                task = back.popleft() if back else next_task(None)
                if task is None:
                    return
                running[remote.remote(build_digest(), sent, work, task)] = task

        try:
            give()
            while running:
                self._look()
                with _status_of_signal():
                    done, _ = ray.wait(list(running), num_returns=1, timeout=_LOOK_S)
                for reference in done:
                    task = running.pop(reference)
                    outcome = self._outcome(reference)
                    if outcome is None:
                        lost[id(task)] += 1
                        if lost[id(task)] < _LOSSES:
                            back.append(task)
                            continue
                        outcome = Crash(f"its node was lost {_LOSSES} times")
                    give()
                    yield task, outcome
                give()
        finally:
            for reference in running:
                ray.cancel(reference, force=True)

    def _outcome(self, reference: Any) -> Any:
        """Return the outcome of a task; None if the task was lost with its node of the cluster."""
        errors = self._ray.exceptions
        try:
            with _status_of_signal():
                return self._ray.get(reference)
        except (errors.WorkerCrashedError, errors.OutOfMemoryError) as error:
            return Crash(str(error).strip().splitlines()[0])
        except (errors.NodeDiedError, errors.ObjectLostError, errors.LocalRayletDiedError):
            return None
        except errors.RayTaskError as error:
            if "No module named" in str(error.cause):
                raise UnsupportedError(
                    f"a node of the cluster cannot import a required module: {_missing(error)}",
                    hint="install the same emmclab on every node",
                ) from error
            raise (error.cause if isinstance(error.cause, EmmclabError) else error) from None

    def _look(self) -> None:
        """Update the number of CPUs of the cluster, whose nodes may change."""
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        processors = int(self._ray.cluster_resources().get("CPU", 0))
        if processors:
            self.jobs, self._seen = processors, now
        elif now - self._seen > _NOBODY_S:
            raise EmmclabError(
                f"the Ray cluster has had no processor for {_NOBODY_S:.0f} s",
                kind="failed",
                hint="start nodes with `ray start --address=HEAD:PORT`; the same command then runs the missing cells",
            )

    def _send(self, path: str) -> _Sent:
        """Put a file into the object store."""
        place = Path(path)
        small = place.stat().st_size <= _MOST_BYTES
        return _Sent(file_digest(path), place.name, self._ray.put(place.read_bytes()) if small else None)


def _reach(address: str | None) -> None:
    """Connect to the port of a cluster for a test, because Ray itself would retry for half a minute."""
    place = urlsplit(address or "")
    if place.hostname and place.port:
        socket.create_connection((place.hostname, place.port), timeout=_REACH_S).close()


def _keep_strangers_out() -> None:
    """Set an access token for a cluster that is started on this machine, because Ray listens on all interfaces.

    Ray reads the token once, when it is imported. Nothing is done if a token is already set or Ray is already imported.
    """
    if "ray" not in sys.modules and not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"} & os.environ.keys():
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@contextlib.contextmanager
def _own_handlers() -> Iterator[None]:
    """Restore this process's signal handlers: Ray's handler of SIGTERM prints a C++ stack trace and aborts."""
    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGINT) if is_main else ()
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                # The signal handlers are always restored, because Python does not notice handlers that Ray has set.
                signal.signal(number, handler)


@contextlib.contextmanager
def _status_of_signal() -> Iterator[None]:
    """Exit with the status of SIGTERM: Ray changes it to 1 if the handler exits while Ray waits."""
    try:
        yield
    except SystemExit as end:
        raise SystemExit(128 + signal.SIGTERM) from end


def _missing(error: Exception) -> str:
    """Return the line of the error that names the missing module."""
    return next(line.strip() for line in str(error).splitlines() if "No module named" in line)


def _run_on_node(build: str, files: Mapping[str, _Sent], work: Callable[[Any], Any], task: Any) -> Any:
    if build != build_digest():
        raise UnsupportedError(
            f"{socket.gethostname()} has another build of emmclab, whose results may differ",
            hint="install the same emmclab on every node",
        )
    use_copies({path: _here(path, *sent) for path, sent in files.items()})
    return work(task)


@functools.cache
def _here(path: str, digest: str, name: str, content: Any) -> str:
    """Return the path of a file on this node: the same path on a shared disk, or a copy named by its digest."""
    try:
        if file_digest(path) == digest:
            return path
    except InputError:
        pass
    copy = scratch() / "inputs" / digest / name
    if not copy.exists():
        if content is None:
            raise InputError(
                f"the file is missing or different on {socket.gethostname()}, and too large to be sent",
                hint="put the file on a disk that all nodes share, at the same path on each node",
            ).in_file(path)
        import ray

        copy.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(copy, ray.get(content))
    return str(copy)
