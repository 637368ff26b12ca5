"""Runs a workload, here or in a guest, and forwards its lines to the log."""

import os
import pty
import select
import signal
import subprocess
import termios
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from emmclab.crash import generated_programs
from emmclab.crash.guest.machine import Guest, GuestEndedError
from emmclab.crash.think_time import Thinking, sync_file_system
from emmclab.crash.tools import full_path_hint
from emmclab.errors import ConfigError, EmmclabError
from emmclab.live.device import LiveDevice

if TYPE_CHECKING:
    from emmclab.crash.recording import Workload

#: Prefix of the line of an operation that failed.
_FAILED = "failed "


@dataclass(frozen=True)
class Recorded:
    """How a run ended."""

    status: int | None
    lines: int
    notes: tuple[str, ...] = field(default=())
    #: Number of the workload's think pauses.
    pauses: int = 0
    #: Whether everything was written back after the workload.
    is_written_back: bool = True


def run_here(disk: LiveDevice, arguments: Sequence[str], folder: Path, workload: "Workload") -> Recorded:
    """Run the workload; every line of its output is an acknowledgement."""
    # Programs write line by line to a terminal, but in blocks to a pipe.
    ours, theirs = pty.openpty()
    settings = termios.tcgetattr(theirs)
    settings[1] &= ~termios.OPOST
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, settings)
    try:
        process = subprocess.Popen(
            arguments, cwd=folder, stdin=subprocess.DEVNULL, stdout=theirs, start_new_session=True
        )
    except OSError as error:
        os.close(ours)
        raise ConfigError(
            f"`{arguments[0]}` cannot be run: {error.strerror}",
            field="command",
            hint=full_path_hint(arguments[0]) or "check the command after `--`",
        ) from None
    finally:
        os.close(theirs)
    thinking = Thinking(process.pid, folder, workload.thinks)
    failed: Counter[str] = Counter()
    try:
        with thinking:
            lines, late = _acknowledge(disk, ours, None, lambda: process.poll() is not None, workload.timeout_s, failed)
    finally:
        os.close(ours)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
    sync_file_system(folder)
    return _recorded_end(None if late else status, lines, failed, thinking.pauses, workload)


def run_in_guest(guest: Guest, disk: LiveDevice, workload: "Workload") -> Recorded:
    """Run a workload that comes with emmclab in a guest, which has mounted the disk."""
    given = [workload.operations, workload.seed]
    text = None
    if generated_programs.is_programs(workload.name):
        text = "".join(f"{one}\n" for one in generated_programs.load(workload.name, workload.seed))
    guest.tell("run", name=workload.name, given=given, text=text, thinks=workload.thinks)
    ours, failed = guest.lines.fileno(), Counter[str]()
    lines, late = _acknowledge(disk, ours, ours, guest.is_answered, workload.timeout_s, failed)
    if late:
        return replace(_recorded_end(None, lines, failed, 0, workload), is_written_back=False)
    try:
        answer = guest.answered()
    except GuestEndedError as error:
        raise EmmclabError(
            f"the guest ended while the workload ran: {error}", kind="failed", hint="use another kernel"
        ) from None
    return _recorded_end(answer["status"], lines, failed, answer["pauses"], workload)


def failure_text(status: int) -> str:
    """Return how a process failed.

    >>> failure_text(3), failure_text(-9)
    ('exit status 3', 'signal 9')
    """
    return f"exit status {status}" if status > 0 else f"signal {-status}"


def _recorded_end(status: int | None, lines: int, failed: Counter[str], pauses: int, workload: "Workload") -> Recorded:
    """Return how a workload ended; the status is `None` if it was ended by the time limit."""
    notes = []
    if status is None:
        notes.append(f"the workload was ended after {workload.timeout_s:g} s; what it did until then counts")
    elif status != 0:
        notes.append(f"the workload failed ({failure_text(status)}); what it did until then counts")
    if failed and generated_programs.is_programs(workload.name):
        said = ", ".join(f"{count:,} with {why}" for why, count in failed.most_common())
        notes.append(f"{failed.total():,} operations failed ({said}): they are judged as not done")
    if lines == 0:
        notes.append("the workload printed no line: only device, layers and file system are judged")
    return Recorded(status, lines, tuple(notes), pauses)


def _acknowledge(
    disk: LiveDevice,
    ours: int,
    answers: int | None,
    is_over: Callable[[], bool],
    timeout_s: float,
    failed: Counter[str],
) -> tuple[int, bool]:
    """Log lines until the workload ends; return their number, and whether the time limit was reached.

    The device reads the lines itself before each request. Here they are read when there is no request.

    Args:
        disk: disk whose log is written.
        ours: file descriptor from which lines are read.
        answers: file descriptor to which a byte is written after each line, or `None`.
        is_over: returns whether the workload has ended.
        timeout_s: time limit of the workload.
        failed: counts the operations of programs that failed, by their reason.
    """
    lines, end = 0, time.monotonic() + timeout_s
    disk.follow(ours, answers)
    while True:
        over = is_over()
        new = disk.new_lines()
        lines += len(new)
        failed.update(line.removeprefix(_FAILED) for line in new if line.startswith(_FAILED))
        left = end - time.monotonic()
        if over or left <= 0:
            return lines, not over
        ready, _, _ = select.select([ours], [], [], min(left, 0.1))
        if ready and not new:  # The other end of the terminal is closed.
            time.sleep(0.01)
