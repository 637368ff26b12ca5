"""Writes records until the power is cut, and logs the acknowledged syncs."""

import contextlib
import errno
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from emmclab.errors import ConfigError, InputError
from emmclab.real_devices.durability.log import Log, begin
from emmclab.real_devices.durability.records import BLOCK, Kind, Plan, Stamp, Step, record, steps
from emmclab.real_devices.durability.targets import LONGEST, Target

#: Number of writers, which work in parallel, each on its own blocks.
WRITERS = 4
#: Minimum size of the tested region of a target, bytes.
LEAST_BYTES = 1 << 20
#: Time between two checks whether the run should end, and maximum time until the writers have stopped, in seconds. The
#: latter is long because cards may pause.
_WAIT_S, _PATIENCE_S = 0.05, 30.0
#: Errors of a full disk, which do not mean a loss of power.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class RunEnd:
    """How a run ended.

    Attributes:
        reason: `gone` if the target failed, `hung` if it no longer answered, `stopped` if the user ended it.
        syncs: number of acknowledged syncs.
        said: the message of the operating system if the target failed.
    """

    reason: str
    syncs: int
    said: str | None


@dataclass
class _Work:
    """State shared by the writers of a run."""

    target: Target
    log: Log
    plan: Plan
    over: threading.Event = field(default_factory=threading.Event)
    syncs: list[int] = field(default_factory=lambda: [0] * WRITERS)
    failures: list[OSError] = field(default_factory=list)
    faults: list[BaseException] = field(default_factory=list)

    def do(self, writer: int) -> None:
        """Execute the steps of a writer until the end; if its target fails, stop all other writers."""
        try:
            for step in steps(self.plan, writer):
                if self.over.is_set():
                    return
                self._take(step)
                if step.kind.is_sync:
                    self.log.add("ack", self.plan.run, writer, step.number, wait=False)
                    self.syncs[writer] += 1
        except InputError as error:  # Raised by the log.
            self.faults.append(error)
        except OSError as error:
            self.failures.append(error)
        except Exception as error:  # A bug, which the waiting thread reports.
            self.faults.append(error)
        finally:
            self.over.set()

    def _take(self, step: Step) -> None:
        offset, length = step.first * BLOCK, step.blocks * BLOCK
        if step.kind.is_flush:
            self.target.flush(step.kind)
        elif step.kind in (Kind.TRIM, Kind.ZEROES):
            self.target.clear(step.kind, offset, length)
        else:
            data = records(self.plan, step.first, step.blocks, step.number)
            self.target.write(offset, data, through=step.kind is Kind.THROUGH)


def records(plan: Plan, first: int, count: int, number: int) -> bytes:
    """Return the records of a step."""
    return b"".join(record(Stamp(plan.run, block, number)) for block in range(first, first + count))


def write(
    target: Target, log: Log, span: int, *, ready: Callable[[], None], asked_to_end: Callable[[], bool]
) -> RunEnd:
    """Write records to the first `span` bytes of a target until it fails or the caller requests the end.

    `ready` is called when every block has been written once, so that the power may be cut.
    """
    work = _Work(target, log, _planned(target, span))
    begin(log, work.plan, target.identity())
    try:
        _fill(work)
    except InputError:
        raise
    except OSError as error:
        work.failures.append(error)
    hung = False
    if not work.failures:
        ready()
        hung = _run(work, asked_to_end)
    if work.faults:
        raise work.faults[0]
    for lost in work.failures:
        if lost.errno in _NO_ROOM:
            raise InputError.of(lost, target.name) from lost
    reason = "gone" if work.failures else "hung" if hung else "stopped"
    message = (work.failures[0].strerror or str(work.failures[0])) if work.failures else None
    with contextlib.suppress(InputError):  # The device of the log may have lost its power, too.
        log.add("end", work.plan.run, {"reason": reason, "said": message})
    return RunEnd(reason, sum(work.syncs), message)


def _planned(target: Target, span: int) -> Plan:
    if not LEAST_BYTES <= span <= target.size:
        raise ConfigError(
            f"cannot test a span of {span >> 20} MB on {target.name}, which has {target.size >> 20} MB",
            field="--span-mb",
            hint=f"give a span of {LEAST_BYTES >> 20} to {target.size >> 20} MB",
        )
    try:
        # This flush before the first write is a part of the test: it makes some devices (Micron Q2J54A) ignore later
        # flushes.
        target.flush(Kind.FSYNC)
        trims, zeroes = target.can(Kind.TRIM), target.can(Kind.ZEROES)
    except OSError as error:
        raise InputError.of(error, target.name, "see `dmesg` for messages of the device") from error
    blocks = span // BLOCK // WRITERS * WRITERS
    return Plan(secrets.randbits(63), blocks, WRITERS, trims=trims, zeroes=zeroes)


def _fill(work: _Work) -> None:
    """Write every block once, as step 0, and flush."""
    plan, count = work.plan, LONGEST // BLOCK
    for first in range(0, plan.blocks, count):
        data = records(plan, first, min(count, plan.blocks - first), 0)
        work.target.write(first * BLOCK, data, through=False)
    work.target.flush(Kind.FSYNC)
    for writer in range(plan.writers):
        work.log.add("ack", plan.run, writer, 0)


def _run(work: _Work, asked_to_end: Callable[[], bool]) -> bool:
    """Run all writers until one fails or the caller requests the end; return whether any of them hangs."""
    threads = [threading.Thread(target=work.do, args=(writer,), daemon=True) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    while not work.over.wait(_WAIT_S):
        if asked_to_end():
            work.over.set()
    end = time.monotonic() + _PATIENCE_S
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return any(thread.is_alive() for thread in threads)
