"""Controls of an exploration: the check must pass on the complete disk, and fail where all data is missing.

A check proves nothing about power cuts if it fails although everything was written. It also proves nothing if it passes
on the disk before the workload, from which all acknowledged data is missing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from textwrap import shorten
from typing import cast

from emmclab import _core
from emmclab.core_types import ExploredState
from emmclab.crash.explore import Options, judge_of
from emmclab.crash.generated_programs import CHECK
from emmclab.crash.guest.machine import GuestMounts, guest_of
from emmclab.crash.json_types import ControlFields
from emmclab.crash.judging import EVERYTHING, Judge, check_error, lines_of, workload_begin
from emmclab.crash.promises import Lost
from emmclab.crash.recording import WRITTEN_BACK
from emmclab.crash.verdict_inputs import command_of
from emmclab.errors import ConfigError

#: Maximum number of prefixes of the workload's acknowledged lines that are tested on the empty disk. The check must
#: report a loss for one of them. All lines together are not enough, because a workload may remove all of its files at
#: its end.
_MOST_BEGINNINGS = 8
#: Maximum length of a check's output in the line about the controls (tests of the check itself), characters.
_LONGEST = 120


@dataclass(frozen=True)
class Control:
    """The outcome of a control, that is, of a check whose right result is known.

    Attributes:
        held: whether the control had the required outcome; `None` if it could not be tried.
        detail: what the check printed, or the reason why it could not be tried.
    """

    held: bool | None
    detail: str = ""


@dataclass(frozen=True)
class Controls:
    """Evidence that the check of an exploration can pass and can fail.

    Attributes:
        lines: number of lines that the workload printed.
        understood: number of these lines that the check understands; `None` if the check is a command.
        foreign: first line that the check does not understand.
        whole: control in which the check must pass, on the disk with everything written.
        before: control in which the check must fail, on the disk before the workload.
    """

    lines: int
    understood: int | None
    foreign: str
    whole: Control
    before: Control

    def doubts(self) -> list[str]:
        """Return reasons why the check proves nothing or not everything; empty if the check could have failed."""
        doubts = []
        if not self.lines:
            doubts.append("the workload acknowledged nothing: it printed no complete line")
        elif self.understood is not None and self.understood < self.lines:
            doubts.append(
                f"the check understands only {self.understood:,} of {self.lines:,} lines of the workload; "
                f"the first other one is `{self.foreign}`"
            )
        if self.whole.held is False:
            doubts.append(f"the check fails on the disk at the end, with everything written: {self.whole.detail}")
        elif self.whole.held is None:
            doubts.append(self.whole.detail)
        if self.lines and self.before.held is False:
            doubts.append(
                f"the check passes on the disk from before the workload, with all {self.lines:,} lines "
                "acknowledged: it would not notice if all were lost"
            )
        elif self.before.held is None:
            doubts.append(self.before.detail)
        return doubts

    def sentence(self) -> str:
        """Return a sentence with the results of the controls, which test whether the check is able to fail."""
        whole = {True: "passes", False: "fails", None: "was not tried"}[self.whole.held]
        before = {True: "fails", False: "passes", None: "was not tried"}[self.before.held]
        detail = self.before.detail if self.before.held else ""
        reason = f" ({shorten(detail, _LONGEST, placeholder=' ...')})" if detail else ""
        counted = "" if self.understood is None else f"understands {self.understood:,} of {self.lines:,} lines, "
        return (
            f"controls: the check {counted}{whole} on the disk with everything written, "
            f"{before} on the disk from before the workload{reason}"
        )

    def as_json(self) -> ControlFields:
        """Return the controls as a dictionary of JSON values."""
        return cast("ControlFields", {"text": self.sentence(), **asdict(self)})


def judge_controls(run: _core.CrashRun, options: Options, *, is_included: bool) -> Controls | None:
    """Check the disk from before the workload, and test the check itself (controls); `None` if there is no check.

    `is_included` states that the workload comes with emmclab or is not known. Its acknowledgements are then assumed to
    be right.

    Raises:
        ConfigError: the disk is damaged before the workload; the check cannot run, understands no line of the workload,
            or fails although everything is written.
    """
    begin = workload_begin(run)
    end = run.facts()["moments"] - 1
    single = replace(options, states="boundary", share=(0, 1), prune=False, recovery_cuts=0)
    with guest_of(options.guest, _core.Explorer(run, single.core()).host_bytes()) as guest:
        with _at(begin, run, replace(single, check=None), guest) as base:
            has_files = _has_files(base, begin)
        if options.check is None:
            return None
        lines, understood, foreign = _understood(run, options.check)
        with _at(end, run, single, guest) as final_state:
            may_blame = not is_included or command_of(options.check) is not None
            whole = _whole(final_state, may_blame=may_blame, is_written_back=run.after_mark(WRITTEN_BACK) > 0)
        if not has_files:
            reason = "the log begins before its file system is made: the check was not tried without the data"
            return Controls(lines, understood, foreign, whole, Control(None, reason))
        with _at(begin, run, single, guest) as initial_state:
            before = _before(initial_state, len(run.acknowledgements()))
    return Controls(lines, understood, foreign, whole, before)


@dataclass(frozen=True)
class _State:
    """The crash state that contains all data sent to the device before a power cut."""

    judge: Judge
    state: ExploredState

    def lost(self, lines: int | None = None) -> Lost | None:
        """Check the state against all lines that the workload printed before the cut, or only the first `lines`."""
        return self.judge.judged(self.state if lines is None else ExploredState({**self.state, "acknowledged": lines}))


@contextmanager
def _at(cut: int, run: _core.CrashRun, options: Options, guest: GuestMounts | None) -> Iterator[_State]:
    explorer = _core.Explorer(run, replace(options, only=(cut, EVERYTHING)).core())
    state = ExploredState(explorer.next_state() or {})
    with judge_of(explorer, run, options, guest) as judge:
        yield _State(judge, state)


def _has_files(base: _State, begin: int) -> bool:
    """Return whether the disk before the workload has a file system."""
    lost = base.lost()
    if lost is None or lost.level != "filesystem":
        return True
    if not base.judge.file_system():
        return False
    raise ConfigError(
        f"the disk is damaged before the workload begins: {lost.detail}",
        field="base",
        hint="give an image with an intact file system (`e2fsck -fy IMAGE` repairs an ext4)"
        if begin == 0
        else "use other options of mkfs or mount, or another --recovery",
    )


def _not_recovered(disk: str, lost: Lost) -> Control:
    return Control(None, f"the disk {disk} is not recovered: {lost.level}: {lost.detail}")


def _whole(final_state: _State, *, may_blame: bool, is_written_back: bool) -> Control:
    lost = final_state.lost()
    if lost is None:
        return Control(held=True)
    if not lost.by_check:
        return _not_recovered("with everything written", lost)
    if not is_written_back:
        return Control(False, f"{lost.detail} (the log may end before everything was written back)")
    if may_blame:
        raise check_error(
            f"the check fails on the disk that the workload left, without a power cut: {lost.detail}",
            "correct the check, or the workload if it acknowledges what it has not written; the check "
            "runs in the folder of the disk, and EMMCLAB_ACKNOWLEDGED is the path of the file with the lines",
        )
    return Control(held=False, detail=lost.detail)


def _before(initial_state: _State, lines: int) -> Control:
    lost = initial_state.lost(0)
    if lost is not None and not lost.by_check:
        return _not_recovered("before the workload", lost)
    if lost is not None:
        raise check_error(
            f"the check fails on the disk from before the workload, with nothing acknowledged: {lost.detail}",
            'make it pass as long as nothing is acknowledged: `[ -s "$EMMCLAB_ACKNOWLEDGED" ] || exit 0`',
        )
    beginnings = [lines * part // _MOST_BEGINNINGS for part in range(_MOST_BEGINNINGS, 0, -1)]
    for count in dict.fromkeys(beginnings):
        lost = initial_state.lost(count)
        if lost is not None and lost.by_check:
            return Control(held=True, detail=lost.detail)
    return Control(held=False)


def _understood(run: _core.CrashRun, check: str) -> tuple[int, int | None, str]:
    """Return how many lines the workload printed, how many of them the check reads, and the first unknown line."""
    workload = lines_of(run, check)
    lines, understood = workload.printed, len(workload.lines)
    if command_of(check) is not None:
        return lines, None, ""
    # Each line of a generated program depends on the lines before it. After an unknown line, the following lines would
    # be misread.
    if understood < lines and (not understood or check == CHECK):
        count = f"only {understood:,}" if understood else "none"
        raise check_error(
            f"the check `{check}` understands {count} of the {lines:,} lines that the workload printed; the "
            f"first {'other one' if understood else 'one'} is `{workload.foreign}`",
            f"it reads {workload.form}; let the workload print these lines, or give a shell command as the check",
        )
    return lines, understood, workload.foreign
