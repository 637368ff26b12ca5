"""Treats Ctrl-C, SIGTERM and SIGHUP as a request to end normally, and redirects the output of commands of the user."""

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

#: Time that work has to end after the programs that it started, seconds.
_GRACE_S = 0.5

_Value = TypeVar("_Value")


def terminating() -> list[signal.Signals]:
    """Return SIGTERM and, unless it is ignored, SIGHUP, which a closed terminal sends.

    Under nohup, SIGHUP stays ignored.
    """
    numbers = [signal.SIGTERM]
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


class Ending:
    """Records whether a signal requested the end."""

    def __init__(self) -> None:
        """Start without a request."""
        self.is_requested = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Record that a signal arrived."""
        self.is_requested = True


@contextmanager
def stop_on_signals() -> Iterator[Ending]:
    """Handle Ctrl-C, SIGTERM and SIGHUP as a request to stop."""
    ending = Ending()
    former = {number: signal.signal(number, ending) for number in (signal.SIGINT, *terminating())}
    try:
        yield ending
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def ended_by_signals(work: Callable[[], _Value]) -> _Value:
    """Do work that may wait for another machine without end; a signal ends the wait at once.

    The work is done in a thread. If a signal handler raises an exception, the programs that were started for
    the work, such as ssh, are ended, and the work is left.
    """
    values: list[_Value] = []
    errors: list[BaseException] = []
    # An interrupted `Thread.join` of Python 3.11 takes the thread for ended.
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
    """Return the child processes of this process; empty on a system that does not list them."""
    found: set[int] = set()
    for listed in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found |= {int(child) for child in listed.read_text(encoding="ascii").split()}
    return found


@contextmanager
def output_aside(as_json: bool) -> Iterator[None]:
    """Redirect stdout of child processes to stderr within the block, if stdout is for JSON."""
    if not as_json:
        yield
        return
    sys.stdout.flush()
    ours = os.dup(1)
    try:
        os.dup2(_messages(), 1)
        yield
    finally:
        os.dup2(ours, 1)
        os.close(ours)


def _messages() -> int:
    """Return the file descriptor of stderr, or one of /dev/null if stderr is closed."""
    try:
        os.fstat(2)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
    return 2
