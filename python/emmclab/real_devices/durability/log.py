"""The log of a durability test: acknowledged syncs of each run, the verdict on each power cut, and a summary.

Each line is a checksum and a JSON list. Lines are independent: if a log lost its end, or lines in the middle, the
others remain valid.

    begin, run, {..}        a run with its plan and its target
    ack, run, writer, step  a sync has returned: after a flush all steps up to it are durable, else only this step
    end, run, {..}          why the writers stopped; missing if the machine lost its power
    checked, run, {..}      the verdict
"""

import json
import math
import os
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypedDict

from msgspec import ValidationError, convert

from emmclab.errors import FormatError, InputError
from emmclab.real_devices.durability.records import BLOCK, Plan
from emmclab.real_devices.durability.targets import TargetIdentity
from emmclab.runtime.persistence_contract import with_clauses
from emmclab.runtime.statistics import binomial_interval

#: Forbidden behaviour of a device, in the order of the output, with its meaning and the clauses that it breaks.
FINDINGS = {
    finding: with_clauses(meaning, f"durability:{finding}")
    for finding, meaning in {
        "lost": "acknowledged by a flush, but older data or no data is present",
        "lost_through": "acknowledged by a write through the cache, but older data or no data is present",
        "order": "of these, a later write of the same writer is present",
        "corrupt": "durable before, but neither old nor new data is present",
        "torn": "not flushed, and only some sectors of the 4 KB are new",
        "garbled": "not flushed, and some sectors are neither old nor new",
    }.items()
}
#: Findings that break no promise of the standards: eMMC, SD and UFS do not require atomic writes of 4 KB.
WEAKNESSES = ("torn", "garbled")


@dataclass
class Verdict:
    """State of the target disk after a power cut, as numbers of 4 KB blocks.

    Attributes:
        is_cut: whether there is evidence that the power was cut; verdicts without it are not counted.
        syncs: syncs that were acknowledged before the cut.
        promised: blocks that a sync after the first pass had made durable.
        lost: blocks that a flush had made durable, but whose data is missing.
        lost_through: blocks that a write-through write had made durable, but whose data is missing.
        order: blocks in `lost` or `lost_through`, although the target has newer data of the same writer.
        corrupt: blocks that were durable before the cut, but contain neither old nor new data.
        torn: blocks, not promised, with sectors of old and of new data.
        garbled: blocks, not promised, with sectors of neither old nor new data.
        unflushed: writes of blocks that were not promised.
        unflushed_lost: writes in `unflushed` that are missing, which is allowed.
        trimmed: blocks whose trim was followed by an acknowledged flush.
        trimmed_old: blocks in `trimmed` that return their data from before the trim, which is allowed.
        examples: descriptions of the first findings.
    """

    is_cut: bool
    syncs: int = 0
    promised: int = 0
    lost: int = 0
    lost_through: int = 0
    order: int = 0
    corrupt: int = 0
    torn: int = 0
    garbled: int = 0
    unflushed: int = 0
    unflushed_lost: int = 0
    trimmed: int = 0
    trimmed_old: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def broken(self) -> list[str]:
        """The findings after this power cut that break a durability promise.

        >>> Verdict(is_cut=True, lost=3, torn=1).broken
        ['lost']
        """
        return [name for name in self.found if name not in WEAKNESSES]

    @property
    def found(self) -> list[str]:
        """All findings after this power cut.

        >>> Verdict(is_cut=True, lost=3, torn=1).found
        ['lost', 'torn']
        """
        return [name for name in FINDINGS if getattr(self, name)]


#: Version of the log format, and of the algorithm that generates the test steps. Other versions are rejected.
VERSION = 1
#: The path that stands for stdout or stdin.
STREAM = Path("-")
#: Largest log that is read, in bytes: about 10 million syncs.
_MOST_BYTES = 1 << 30
#: Largest number of blocks of a run: 64 GB.
_MOST_BLOCKS = 1 << 24
#: Maximum number of syncs of a writer that may be missing from a log, and maximum number of steps of a writer per sync
#: (about 10 on average).
_MISSING_SYNCS, _STEPS_OF_A_SYNC = 20_000, 64
#: Maximum number of log lines that may wait to be written to disk before the writers wait, too. At most this number may
#: be missing at the end of a log.
MOST_LINES = 64


def line(*parts: Any) -> str:
    r"""Encode a line of the log of a durability test.

    >>> line("ack", 7, 1, 12)
    '8dbeac52 ["ack",7,1,12]\n'
    """
    text = json.dumps(parts, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x} {text}\n"


def parts_of(text: bytes) -> list[Any] | None:
    r"""Parse a line of the log into its parts; None if the line is damaged.

    >>> parts_of(b'8dbeac52 ["ack",7,1,12]'), parts_of(b'63471fb9 ["ack",7,1,1')
    (['ack', 7, 1, 12], None)
    """
    checksum, _, body = text.partition(b" ")
    try:
        if int(checksum, 16) != zlib.crc32(body):
            return None
        parts = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return parts if isinstance(parts, list) else None


class WriterEnd(TypedDict):
    """Why the writers of a run stopped: a keyword, and the message of the operating system."""

    reason: str
    said: str


@dataclass
class Run:
    """One run in the log of a durability test.

    Attributes:
        plan: the parameters that determine the steps of the run.
        target: properties of the target: `name`, `bytes`, `identity`.
        boot: the boot ID of the machine that wrote, if it has one.
        acknowledged: for each writer, the steps whose sync has returned; 0 is the first pass over all blocks.
        end: why the run ended; None if the log does not contain it.
        verdict: result of the check; None if the run has not been checked.
        damaged: number of damaged lines between the first line of this run and that of the next run.
    """

    plan: Plan
    target: TargetIdentity
    boot: str | None
    acknowledged: list[list[int]]
    end: WriterEnd | None = None
    verdict: Verdict | None = None
    damaged: int = 0

    def most_steps(self, writer: int) -> int:
        """Return the largest step that a writer can have reached after the syncs known so far.

        This is a limit for the check, which repeats all steps: a forged step number could keep it busy for ever.
        """
        return (len(self.acknowledged[writer]) + _MISSING_SYNCS) * _STEPS_OF_A_SYNC

    @property
    def is_whole(self) -> bool:
        """Whether the log contains every acknowledged sync of the run."""
        return self.end is not None and not self.damaged

    @property
    def was_filled(self) -> bool:
        """Whether the first pass, which writes all blocks, was flushed.

        Without this flush, no data has to survive a power cut.
        """
        return all(self.acknowledged)


@dataclass
class Session:
    """The content of a log of durability tests.

    Attributes:
        runs: its runs, in their order.
        damaged: number of lines that are damaged.
    """

    runs: list[Run] = field(default_factory=list)
    damaged: int = 0


def read_log(path: Path, text: bytes | None = None) -> Session:
    """Read the log of a durability test; the end of the log may be missing.

    If `text` is given, it is the content of the log, and the file is not read.
    """
    if text is None:
        try:
            with path.open("rb") as file:
                text = file.read(_MOST_BYTES)
        except OSError as error:
            raise InputError.of(error, path, "give the log that `--write --log FILE` has written") from error
    lines = [text_line for text_line in text.split(b"\n") if text_line]
    session, runs = Session(), dict[int, Run]()
    for text_line in lines:
        parts = parts_of(text_line)
        if parts is None or not _add_line(parts, runs):
            session.damaged += 1
            if runs:
                runs[next(reversed(runs))].damaged += 1
    session.runs = list(runs.values())
    if not session.runs:
        raise _no_run(path, len(lines))
    return session


def _no_run(path: Path, lines: int) -> FormatError:
    return FormatError(
        f"{path}: the log contains no run" + (f" in {lines:,} lines" if lines else ": it is empty"),
        kind="syntax",
        file=str(path),
        hint="give the log that `--write --log FILE` has written; if this is that log, the power was cut before "
        "the first line was durable: start `--write` again",
    )


def _add_line(parts: list[Any], runs: dict[int, Run]) -> bool:
    """Add a line of the log to its run; return whether the line is valid."""
    try:
        match parts:
            case [
                "begin",
                int(number),
                {"version": 1, "plan": dict(plan), "target": dict(target), "boot": str() | None as boot},
            ]:
                run_plan = Plan(number, **plan)
                identity = convert(target, TargetIdentity)
                if (
                    [type(value) for value in run_plan] != [int, int, int, bool, bool]
                    or not 0 < run_plan.writers <= run_plan.blocks <= _MOST_BLOCKS
                    or identity["bytes"] < run_plan.blocks * BLOCK
                ):
                    return False
                runs[number] = Run(run_plan, identity, boot, [[] for _ in range(run_plan.writers)])
            case ["begin", _, {"version": int(version)}] if version != VERSION:
                raise FormatError(
                    f"the durability log has version {version}, but this emmclab reads version {VERSION}",
                    kind="version",
                    hint="use the version of emmclab that wrote the log",
                )
            case ["ack", int(number), int(writer), int(step)]:
                run = runs[number]
                # A negative number is rejected, because as an index it would count from the last writer.
                if writer < 0 or not 0 <= step <= run.most_steps(writer):
                    return False
                run.acknowledged[writer].append(step)
            case ["end", int(number), dict(end)]:
                runs[number].end = convert(end, WriterEnd)
            case ["checked", int(number), dict(verdict)]:
                runs[number].verdict = convert(verdict, Verdict)
            case _:
                return False
    except (KeyError, IndexError, TypeError, ValidationError):
        return False
    return True


class Log:
    """A log file that a separate thread writes; each sync of the file makes all earlier lines durable.

    The writers under test do not wait for the log: a device could write back its cache in a pause after each flush,
    which would hide that it ignores flushes. If this machine loses its power too, the lines of the last milliseconds
    are missing; syncs without a line count as not promised.
    """

    def __init__(self, path: Path) -> None:
        """Open a log file for appending; the path `-` is stdout."""
        self.name = "the standard output" if path == STREAM else str(path)
        self._is_file = path != STREAM
        try:
            self._file = _appended(path) if self._is_file else os.dup(1)
        except OSError as error:
            raise InputError.of(error, path) from error
        # The first line feed ends a line that an earlier log in this file may have left incomplete.
        self._lines = ["\n"]
        self._changed = threading.Condition()
        self._is_over = False
        self._fault: InputError | None = None
        self._thread = threading.Thread(target=self._write_lines, name="emmclab-log", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._thread.join()
        os.close(self._file)

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._file

    def add(self, *parts: Any, wait: bool = True) -> None:
        """Append a line; with `wait`, return only after the log file has been synced."""
        with self._changed:
            self._lines.append(line(*parts))
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._fault is not None or not self._lines or not (wait or len(self._lines) > MOST_LINES)
            )
            if self._fault is not None:
                raise self._fault

    def _write_lines(self) -> None:
        """Write lines as they arrive, until the log is closed."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._is_over)
                ready = list(self._lines)
            if not ready:
                return
            try:
                self._write("".join(ready).encode())
            except OSError as error:
                hint = "keep the log on another disk, or read it elsewhere"
                self._fault = InputError.of(error, self.name, hint)
            with self._changed:
                del self._lines[: len(ready)]
                self._changed.notify_all()
            if self._fault is not None:
                return

    def _write(self, text: bytes) -> None:
        while text:
            text = text[os.write(self._file, text) :]
        if self._is_file:
            os.fdatasync(self._file)


def _appended(path: Path) -> int:
    """Open a file for appending, and make its directory entry durable."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    folder = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return file


def begin(log: Log, plan: Plan, target: TargetIdentity) -> None:
    """Append the first line of a run to the log."""
    settings = plan._asdict()
    number = settings.pop("run")
    log.add("begin", number, {"version": VERSION, "plan": settings, "target": target, "boot": boot()})


def boot() -> str | None:
    """Return the boot ID of this machine, or None."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


#: Confidence level of every bound on a probability.
CONFIDENCE = 0.99
#: Probabilities of a loss. For each, the number of loss-free cuts that would exclude it is printed.
_GOALS = (0.1, 0.01, 0.001)


@dataclass(frozen=True)
class Share:
    """How many power cuts show a finding.

    Attributes:
        finding: a name of `FINDINGS`, or `broken` for any finding that breaks a promise.
        cuts: number of cuts that show it.
        low: lower bound of the probability that a cut shows it.
        high: upper bound of the probability that a cut shows it.
    """

    finding: str
    cuts: int
    low: float
    high: float


@dataclass(frozen=True)
class Report:
    """Summary of all power cuts in a log.

    Attributes:
        cuts: runs that ended with a cut and were checked.
        uncut: runs that were checked, but show no evidence of a cut; they are not counted as cuts.
        unchecked: runs that were not checked before the next run began.
        damaged: number of damaged lines in the log.
        harmless: cuts that lost nothing, not even unflushed data: the cache may have been empty.
        shares: how many cuts show each finding, with the bounds of its probability.
        trims_old: cuts after which trimmed blocks returned old data; this is allowed.
        confidence: confidence level of the bounds.
        goals: by probability of a loss: number of loss-free cuts needed to show that the real probability is lower.
    """

    cuts: int
    uncut: int
    unchecked: int
    damaged: int
    harmless: int
    shares: list[Share]
    trims_old: int
    confidence: float
    goals: dict[str, int]

    @property
    def broken(self) -> int:
        """Number of power cuts after which a promise was broken."""
        return next(share.cuts for share in self.shares if share.finding == "broken")


def report_of(session: Session) -> Report:
    """Summarise the power cuts in the log of a durability test.

    >>> report_of(Session()).goals
    {'10 %': 51, '1 %': 528, '0.1 %': 5296}
    """
    verdicts = [run.verdict for run in session.runs if run.verdict is not None]
    cuts = [verdict for verdict in verdicts if verdict.is_cut]
    return Report(
        cuts=len(cuts),
        uncut=len(verdicts) - len(cuts),
        unchecked=len(session.runs) - len(verdicts),
        damaged=session.damaged,
        harmless=sum(not (verdict.found or verdict.unflushed_lost) for verdict in cuts),
        shares=_shares(cuts),
        trims_old=sum(verdict.trimmed_old > 0 for verdict in cuts),
        confidence=CONFIDENCE,
        goals={f"{100 * goal:g} %": clean_cuts_needed(goal) for goal in _GOALS},
    )


def _shares(cuts: Sequence[Verdict]) -> list[Share]:
    counts = {"broken": sum(bool(verdict.broken) for verdict in cuts)}
    counts |= {name: sum(name in verdict.found for verdict in cuts) for name in FINDINGS}
    return [Share(name, count, *binomial_interval(count, len(cuts), CONFIDENCE)) for name, count in counts.items()]


def clean_cuts_needed(probability: float, confidence: float = CONFIDENCE) -> int:
    """Return how many cuts without a loss show that the probability of a loss is below `probability`.

    After so many cuts, the upper bound of `binomial_interval` is at most `probability`: with a probability of `p` the
    chance of `n` clean cuts is `(1 - p)^n`, and `n` is the smallest number for which it is at most
    `(1 - confidence) / 2`.

    >>> [clean_cuts_needed(p) for p in (0.1, 0.01, 0.001)]
    [51, 528, 5296]
    """
    return math.ceil(math.log((1 - confidence) / 2) / math.log1p(-probability))
