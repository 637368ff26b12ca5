"""Handles Ctrl-C, SIGTERM and SIGHUP as a request to end normally, and redirects the output of child processes."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeVar

#: Time that interrupted work has to end after its child programs were terminated, seconds.
_GRACE_S = 0.5

_Value = TypeVar("_Value")


def terminating() -> list[signal.Signals]:
    """Return the signals that end a command: SIGTERM and SIGHUP, which a closed terminal sends.

    SIGHUP is left out if it is ignored, as under nohup.
    """
    numbers = [signal.SIGTERM]
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


class Ending:
    """Records whether a signal requested the end."""

    def __init__(self) -> None:
        """Begin with no signal received."""
        self.is_requested = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Record that a signal arrived."""
        self.is_requested = True


@contextmanager
def stop_on_signals() -> Iterator[Ending]:
    """Handle Ctrl-C, SIGTERM and SIGHUP as a request to stop."""
    stop = Ending()
    former = {number: signal.signal(number, stop) for number in (signal.SIGINT, *terminating())}
    try:
        yield stop
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def ended_by_signals(work: Callable[[], _Value]) -> _Value:
    """Do work that may wait for another machine without a time limit; a signal ends the wait immediately.

    The work is done in a thread. If a signal handler raises an exception, the programs that the work has
    started, such as ssh, are terminated, and the thread is abandoned.
    """
    values: list[_Value] = []
    errors: list[BaseException] = []
    # After an interrupted `Thread.join`, Python 3.11 considers the thread ended, so an event is used instead.
    done = threading.Event()

    def do() -> None:
        try:
            values.append(work())
        except BaseException as error:
            errors.append(error)
        done.set()

    before = _children()
    try:
        threading.Thread(target=do, daemon=True).start()
        done.wait()
    except BaseException:
        for child in _children() - before:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
        done.wait(_GRACE_S)
        raise
    if errors:
        raise errors[0]
    return values[0]


def _children() -> set[int]:
    """Return the ids of the child processes; empty on a system that does not list them."""
    children: set[int] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children |= {int(child) for child in file.read_text(encoding="ascii").split()}
    return children


@contextmanager
def output_aside(as_json: bool) -> Iterator[None]:
    """Redirect stdout of child processes to stderr within the block, if stdout is reserved for JSON."""
    if not as_json:
        yield
        return
    sys.stdout.flush()
    own_stdout = os.dup(1)
    try:
        os.dup2(_stderr_descriptor(), 1)
        yield
    finally:
        os.dup2(own_stdout, 1)
        os.close(own_stdout)


def _stderr_descriptor() -> int:
    """Return the file descriptor of stderr, or a descriptor of /dev/null if stderr is closed."""
    try:
        os.fstat(2)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
    return 2
