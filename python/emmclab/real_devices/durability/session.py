"""A session of a durability test: writes records until the power is cut, then compares the data with the log."""

import contextlib
import errno
import secrets
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from emmclab.errors import ConfigError, InputError
from emmclab.real_devices.durability.log import MOST_LINES, Log, Run, Verdict, begin, boot
from emmclab.real_devices.durability.records import (
    BLOCK,
    GARBAGE,
    SECTORS,
    ZERO,
    Content,
    Kind,
    Plan,
    Stamp,
    Step,
    contents,
    record,
    steps,
)
from emmclab.real_devices.durability.targets import LONGEST, Target, lost_io

#: Maximum number of syncs that a writer may have begun after its last sync in the log. In a complete log, only the sync
#: in progress is missing. In a log without its end, syncs whose lines were not yet on the disk of the log are missing,
#: too.
_SYNCS_OF_A_WHOLE_LOG = 1
_SYNCS_OF_A_TORN_LOG = _SYNCS_OF_A_WHOLE_LOG + MOST_LINES + 1
#: Maximum number of examples in a verdict.
_EXAMPLES = 5
#: Properties of a device by which it is recognised after the cut.
_NAMES = ("cid", "serial", "wwid")


class Version(NamedTuple):
    """A possible content of a block: number and kind of the test step that wrote it."""

    number: int
    kind: Kind


#: Version of a block that the first pass of a run wrote.
_FIRST = Version(0, Kind.WRITE)
#: Labels of sectors with unexpected contents: older data of the block, or data that the test did not write.
_OLDER, _FOREIGN = "older", "foreign"


@dataclass
class _Writer:
    """What is known about a writer: its acknowledged steps, and the newest of its steps found on the target."""

    #: Step numbers of acknowledged flushes (`flushes`, in order), and of acknowledged write-through writes (`through`).
    flushes: list[int] = field(default_factory=lambda: [0])
    through: set[int] = field(default_factory=set)
    #: Numbers of two steps: `newest` is the newest step found on the target, `newest_begun` the newest step known to
    #: have begun.
    newest: int = 0
    newest_begun: int = 0
    #: For each block written after the first pass over the target: the newest durable version, then all later versions.
    versions: dict[int, list[Version]] = field(default_factory=dict)

    def promised_through(self, version: Version) -> bool:
        """Return whether a version is durable only because of a write-through write, without a later flush."""
        return version.number in self.through and version.number > self.flushes[-1]

    def promise_of(self, version: Version) -> int:
        """Return the step that made a version durable: the write-through write itself, or the next flush."""
        if version.number in self.through:
            return version.number
        return self.flushes[bisect_left(self.flushes, version.number)]

    def take(self, step: Step) -> None:
        """Record the version that a write, trim or other step may have left in each of its blocks."""
        version = Version(step.number, step.kind)
        is_promised = step.number <= self.flushes[-1] or step.number in self.through
        for block in range(step.first, step.first + step.blocks):
            if is_promised:
                self.versions[block] = [version]
            else:
                self.versions.setdefault(block, [_FIRST]).append(version)


def judge(run: Run, target: Target, *, same_device: bool = False) -> Verdict:
    """Compare the content of a target after a power cut with what was acknowledged as durable.

    With `same_device`, a target is accepted even if it is smaller, or contains no data of the run.

    Raises:
        ConfigError: the target is not the one of the run.
        InputError: the target cannot be read.
    """
    _check_identity(run, target, same_device)
    if not run.was_filled:
        return Verdict(is_cut=False)
    readable = min(run.plan.blocks, target.size // BLOCK)
    content_of = dict(_read(target, readable))
    # Blocks that are missing, because the device returned with a smaller capacity, count as garbage.
    content_of |= {block: [GARBAGE] * SECTORS for block in range(readable, run.plan.blocks)}
    _check_content(run, target, content_of, same_device)
    judging = _VerdictBuilder(run, content_of)
    for block, content in content_of.items():
        judging.judge(block, content)
    return judging.verdict


def _read(target: Target, blocks: int) -> Iterator[tuple[int, list[Content]]]:
    count = LONGEST // BLOCK
    for first in range(0, blocks, count):
        length = min(count, blocks - first) * BLOCK
        try:
            data = target.read(first * BLOCK, length)
        except OSError as error:
            raise lost_io(target.name, error) from error
        for offset in range(0, length, BLOCK):
            yield first + offset // BLOCK, contents(data[offset : offset + BLOCK])


def _check_identity(run: Run, target: Target, same_device: bool) -> None:
    """Reject a target with another identity, or a smaller one unless it is known to be the same device."""
    logged, current = run.target.get("identity", {}), target.identity()["identity"]
    for name in _NAMES:
        if name in logged and name in current and logged[name] != current[name]:
            raise _wrong_device(target, f"its {name} is {current[name]}, that of the log {logged[name]}", vouch=False)
    is_known = any(name in logged and logged.get(name) == current.get(name) for name in _NAMES)
    if target.size < run.target["bytes"] and not (is_known or same_device):
        raise _wrong_device(target, f"it has {target.size:,} bytes, that of the log {run.target['bytes']:,}")


def _check_content(run: Run, target: Target, content_of: dict[int, list[Content]], same_device: bool) -> None:
    """Reject a target without any record of the run, unless it is known to be the same device."""
    if same_device:
        return
    for content in content_of.values():
        if any(isinstance(sector, Stamp) and sector.run == run.plan.run for sector in content):
            return
    other_runs = {sector.run for content in content_of.values() for sector in content if isinstance(sector, Stamp)}
    records = "only records of other runs" if other_runs else "no record of any run"
    raise _wrong_device(target, f"it contains {records}")


def _wrong_device(target: Target, reason: str, *, vouch: bool = True) -> ConfigError:
    advice = "; if it is the same device and has lost everything, add --same-device" if vouch else ""
    return ConfigError(
        f"{target.name}: this is not the device of the log's last run: {reason}",
        file=target.name,
        field="TARGET",
        hint=f"give the device and the log of the same run, which must be the last one on the device{advice}",
    )


def is_cut(run: Run) -> bool:
    """Return whether there is evidence of a power cut: the target failed, or the machine was rebooted."""
    if run.end is not None:
        return run.end.get("reason") in ("gone", "hung")
    current_boot = boot()
    return current_boot is None or current_boot != run.boot


class _VerdictBuilder:
    """Builds the verdict on a run, block by block."""

    def __init__(self, run: Run, content_of: dict[int, list[Content]]) -> None:
        self.plan = run.plan
        self.writers = [self._writer(number, run, content_of) for number in range(run.plan.writers)]
        self.verdict = Verdict(
            is_cut=is_cut(run), syncs=sum(step > 0 for acknowledged in run.acknowledged for step in acknowledged)
        )

    def _writer(self, number: int, run: Run, content_of: dict[int, list[Content]]) -> _Writer:
        """Replay the steps that a writer may have begun, and record the possible versions of each block."""
        blocks = range(number * self.plan.share, (number + 1) * self.plan.share)
        limit = run.most_steps(number)
        newest = max(
            (
                sector.number
                for block in blocks
                for sector in content_of[block]
                if isinstance(sector, Stamp)
                and (sector.run, sector.block) == (self.plan.run, block)
                and sector.number <= limit
            ),
            default=0,
        )
        acknowledged = set(run.acknowledged[number])
        newest_begun = max([newest, *acknowledged])
        possible = list(_possible_steps(run, number, newest_begun))
        writer = _Writer(newest=newest, newest_begun=newest_begun)
        for step in possible:
            if step.number in acknowledged and step.kind.is_flush:
                writer.flushes.append(step.number)
            elif step.number in acknowledged:
                writer.through.add(step.number)
        for step in possible:
            writer.take(step)
        return writer

    def judge(self, block: int, content: list[Content]) -> None:
        """Classify one block of the target (such as lost or torn), and count it in the verdict."""
        writer, verdict = self.writers[self.plan.writer_of(block)], self.verdict
        versions = writer.versions.get(block, [_FIRST])
        verdict.promised += versions[0] is not _FIRST
        if any(version.kind is Kind.TRIM for version in versions):
            # A trim guarantees nothing about later reads, so a trimmed block is only counted.
            if len(versions) == 1:
                verdict.trimmed += 1
                verdict.trimmed_old += all(isinstance(sector, Stamp) for sector in content)
            return
        labels = {self._label(block, sector, versions) for sector in content}
        present = [label for label in labels if isinstance(label, int)]
        pending = [index for index, version in enumerate(versions) if index and version.number <= writer.newest_begun]
        verdict.unflushed += len(pending)
        verdict.unflushed_lost += sum(index > max(present, default=0) for index in pending)
        if _FOREIGN in labels:
            self._note("corrupt", block, content, versions)
        elif _OLDER in labels:
            self._note("lost_through" if writer.promised_through(versions[0]) else "lost", block, content, versions)
            if writer.newest > writer.promise_of(versions[0]):
                verdict.order += 1
        elif GARBAGE in labels:
            self._note("garbled" if len(versions) > 1 else "corrupt", block, content, versions)
        elif len(present) > 1:
            self._note("torn", block, content, versions)

    def _label(self, block: int, sector: Content, versions: list[Version]) -> int | str:
        """Return the index of the version that a sector contains, or a label for other content."""
        if not isinstance(sector, Stamp):
            if sector != ZERO:
                return GARBAGE
            zeroed = (index for index, version in reversed(list(enumerate(versions))) if version.kind is Kind.ZEROES)
            return next(zeroed, _OLDER)
        if sector.block != block:
            return _FOREIGN
        if sector.run != self.plan.run or sector.number < versions[0].number:
            return _OLDER
        matching = (index for index, version in enumerate(versions) if version.number == sector.number)
        return next(matching, _FOREIGN)

    def _note(self, finding: str, block: int, content: list[Content], versions: list[Version]) -> None:
        setattr(self.verdict, finding, getattr(self.verdict, finding) + 1)
        if len(self.verdict.examples) < _EXAMPLES:
            present = ", ".join(dict.fromkeys(self._words(block, sector) for sector in content))
            promised = versions[0]
            due = self._words(block, Stamp(self.plan.run, block, promised.number))
            self.verdict.examples.append(f"{finding}: block {block:,} contains {present}; {due} was promised")

    def _words(self, block: int, sector: Content) -> str:
        if not isinstance(sector, Stamp):
            return "zeros" if sector == ZERO else "neither zeros nor a record"
        if sector.block != block:
            return f"a record of block {sector.block:,}"
        if sector.run != self.plan.run:
            return "a record of an earlier run"
        return f"data of step {sector.number:,}" if sector.number else "data of the first pass"


def _possible_steps(run: Run, writer: int, newest_begun: int) -> Iterator[Step]:
    """Yield the steps of a writer that may have begun: the known steps, and all up to the syncs in progress.

    A step that is missing in the log matters if it wrote zeros: a sector of zeros does not show which step wrote it.
    """
    remaining = _SYNCS_OF_A_WHOLE_LOG if run.is_whole else _SYNCS_OF_A_TORN_LOG
    for step in steps(run.plan, writer):
        yield step
        remaining -= step.number > newest_begun and step.kind.is_sync
        if not remaining:
            return


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
