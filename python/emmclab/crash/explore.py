"""Recovers and checks the crash states of a crash log, or a share of them, and tests the check itself by controls.

The controls are states whose right result is known: the check must pass on the complete disk, and fail where all data
is missing. A check proves nothing about power cuts if it fails although everything was written. It also proves nothing
if it passes on the disk before the workload, from which all acknowledged data is missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from textwrap import shorten
from typing import Annotated, NotRequired, TypedDict, cast

from emmclab import _core
from emmclab.core_types import CrashLogFacts, ExploredState
from emmclab.crash import generated_programs
from emmclab.crash.file_states import MODELS, FileExplorer, FileRun, model_of
from emmclab.crash.guest.machine import GuestMounts, guest_of
from emmclab.crash.json_types import ControlFields, Covered
from emmclab.crash.judging import EVERYTHING, RECOVERIES, Judge, check_error, lines_of, require, workload_begin
from emmclab.crash.programs import SYNCS
from emmclab.crash.promises import CHECK, COMMANDS, LEVELS, CutTally, Finding, Kind, Lost
from emmclab.crash.recording import MOUNTED, RUN_PANEL, WRITTEN_BACK
from emmclab.crash.verdict_inputs import command_of
from emmclab.errors import ConfigError, EmmclabError, UnsupportedError
from emmclab.runtime.document import parse_duration
from emmclab.runtime.lists import Names, several
from emmclab.runtime.option import Option, attributes, declarations


class CutLines(TypedDict):
    """Output lines of a workload, by their index.

    The power cuts directly before and after each line in `first` are chosen before all other cuts; its groups are in
    order of importance. Power cuts between a line in `idle` and the next line are left out.
    """

    first: list[list[int]]
    idle: list[int]


def cut_lines(lines: Sequence[str]) -> CutLines:
    """Return the output lines after which power cuts are tried first, and the idle lines, which need no cuts.

    Power cuts are tried first after syncs; the last sync of each program comes first. Idle lines are those between
    programs.

    >>> cut_lines(["mount ext4 rw", "begin 0 a", "does sync", "did", "does fsync .", "did", "end 0"])
    {'first': [[5], [3]], 'idle': [0, 6]}
    """
    last: list[int] = []
    others: list[int] = []
    idle: list[int] = []
    syncs: list[int] = []
    for index, line in enumerate(lines):
        word = line.partition(" ")[0]
        if word in ("begin", "end", "mount"):
            last += syncs[-1:]
            others += syncs[:-1]
            syncs = []
            if word != "begin":
                idle.append(index)
        elif word == "did" and lines[index - 1].removeprefix("does ").partition(" ")[0] in SYNCS:
            syncs.append(index)
    return {"first": [last + syncs[-1:], others + syncs[:-1]], "idle": idle}


#: Interval of progress reports, seconds.
_REPORT_S = 0.5
#: What a power cut may leave of a write: only whole 4 KiB blocks (`none`), only whole sectors (`sector`), or also
#: garbled sectors (`inside`).
TEARS = ("none", "sector", "inside")
#: Name of the panel with these options in the help of `crash`.
STATES_PANEL = "Cuts and states"
_states = partial(Option, ..., panel=STATES_PANEL)


class CoreOptions(TypedDict):
    """The options of an exploration in the form that the Rust core accepts."""

    cuts: int
    states: str
    seed: int
    tear: str
    #: Mark in the log after which power may be cut; None to cut from the beginning of the log.
    from_mark: str | None
    only: tuple[int, int | None] | None
    share: tuple[int, int]
    #: Output lines of the workload at which power is cut first. Without this entry, up to half of the cuts directly
    #: follow an output line.
    lines: NotRequired[CutLines]
    #: Model of a file system, for a recording of file operations.
    model: NotRequired[str]
    #: Number of states with a flipped bit.
    flips: NotRequired[int]
    #: Whether each pass over the log tries twice as many power cuts as the one before, the most important ones first.
    in_passes: NotRequired[bool]


def _time(text: str | None) -> float | None:
    return None if text is None else parse_duration(text, "for")


def _share(text: str) -> tuple[int, int]:
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise ConfigError(f"`{text}` is not a shard", field="shard", hint="write the shard as --shard 3/16")
    return int(number) - 1, int(of)


@dataclass(frozen=True)
class Options:
    """Options of an exploration of crash states."""

    cuts: Annotated[int, _states("Maximum number of times at which power is cut.", least=1)] = 1000
    states: Annotated[
        str,
        _states(
            "Methods that select the states of a cut, each with an optional maximum, as omit1:64: device, "
            "boundary, omit1, only1, pairs, random.",
            metavar="LIST",
            shown_default="all methods",
            advanced=True,
        ),
    ] = "device,boundary,omit1,only1,pairs,random"
    seed: Annotated[int, _states("Seed of the cuts and states to try.", least=0, advanced=True)] = 1
    tear: Annotated[
        str,
        _states(
            "none: 4 KiB are written as a whole or not at all; sector: 512 bytes; inside: as sector, and "
            "any 512 bytes of a write in flight that is not reliable may hold garbage.",
            words=TEARS,
            advanced=True,
        ),
    ] = "none"
    recovery: Annotated[
        str,
        _states(
            "How the file system recovers: process (in emmclab, fast), e2fsck, or mount (by the kernel). For "
            "a check by a command, the kernel mounts the recovered disk.",
            command_default=None,
            words=RECOVERIES,
            shown_default="process; mount with --guest, or if the check is a command",
            advanced=True,
        ),
    ] = "process"
    check: Annotated[
        str | None,
        Option(
            ...,
            "Check of the recovered files: sqlite, files, append-log, or a shell command that fails if data "
            "is lost. The command runs in the mounted folder, and finds the path of a file with all "
            "acknowledged lines in the variable EMMCLAB_ACKNOWLEDGED.",
            panel=RUN_PANEL,
            metavar="NAME|CMD",
            completes=("sqlite", "files", "append-log"),
        ),
    ] = None
    documented: Annotated[
        Names,
        Option(
            ...,
            "A loss that the manual of your software permits: failures of the check's command whose text contains "
            "TEXT are listed as documented, with the SOURCE if given, and are no findings. May be repeated.",
            panel=RUN_PANEL,
            metavar="TEXT[=SOURCE]",
            advanced=True,
        ),
    ] = ()
    recovery_cuts: Annotated[
        int,
        _states(
            "Number of cuts during the recovery of layers, for each state.", command_default=2, least=0, advanced=True
        ),
    ] = 0
    share: Annotated[
        tuple[int, int],
        _states(
            "Only this part of the states, for example 3/16; parts are counted from 1.",
            option="--shard",
            command_default="1/1",
            metavar="I/N",
            parse=_share,
            advanced=True,
        ),
    ] = (0, 1)
    time_s: Annotated[
        float | None,
        Option(
            ...,
            "Stop after this time, for example 90s or 5min, and say what was covered.",
            panel=RUN_PANEL,
            option="--for",
            metavar="TIME",
            parse=_time,
        ),
    ] = None
    only: Annotated[
        tuple[int, int | None] | None, Option(..., "Explore one power cut, or one of its crash states.", option=None)
    ] = None
    prune: Annotated[
        bool,
        _states(
            "With --recovery mount: mount every state, even if its outcome follows from that of an earlier one.",
            option="--no-prune",
            advanced=True,
        ),
    ] = True
    guest: Annotated[
        str | None,
        Option(
            ...,
            "Kernel of a virtual machine in which the run is recorded and recovered: its file vmlinuz, with "
            "the modules in the folders of its package. Needs QEMU.",
            panel=RUN_PANEL,
            metavar="KERNEL",
            advanced=True,
        ),
    ] = None

    model: Annotated[
        str | None,
        Option(
            ...,
            "File-system model, without device and root. It is ext4, ext4-ordered (data before a size), posix or "
            "lying-device; it makes the states from the system calls of the workload, which strace records.",
            panel=RUN_PANEL,
            metavar="MODEL",
            completes=(*MODELS,),
        ),
    ] = None

    flips: Annotated[
        int,
        _states(
            "With --model: number of states of the complete files in which one bit is flipped; the output says how "
            "many of them the check does not notice, which is no finding.",
            metavar="N",
            least=0,
            advanced=True,
        ),
    ] = 0

    def require(self) -> None:
        """Raise an error before anything runs if the options do not permit an exploration.

        Raises:
            ConfigError: states, tear, check or recovery are wrong, or not possible for this user and machine.
        """
        self.core()
        _core.crash_ways(self.states)
        if self.model is not None:
            model_of(self.model)
        require(self.check, self.recovery, self.guest, is_mounted=self.model is None)

    def core(self) -> CoreOptions:
        """Return the options in the form that the Rust core accepts."""
        if self.tear not in TEARS:
            raise ConfigError(
                f"`{self.tear}` is not a way to tear writes at a power cut",
                field="tear",
                hint=f"use one of {', '.join(TEARS)}",
            )
        core_options: CoreOptions = {
            "cuts": self.cuts,
            "states": self.states,
            "seed": self.seed,
            "tear": self.tear,
            "from_mark": MOUNTED,
            "only": self.only,
            "share": self.share,
        }
        if self.time_s is not None:
            core_options["in_passes"] = True
        if self.model is not None:
            core_options["model"], core_options["flips"] = self.model, self.flips
        return core_options


Options.__doc__ = f"{Options.__doc__}\n\n{attributes(declarations(Options))}"


@dataclass
class Exploration:
    """Result of an exploration of crash states: of one share of them, or of all."""

    states: int = 0
    #: Number of the last crash state that was judged; -1 if none was.
    last: int = -1
    took_s: float = 0.0
    covered: Covered = field(default_factory=lambda: Covered())
    #: Findings by their kind, and by whether commands rather than a crash state break the promise.
    kinds: dict[tuple[Kind, bool], Finding] = field(default_factory=dict)
    #: Counts of crash states, by the number of the power cut. A cut has no entry if all of its states equal states of
    #: earlier cuts.
    verdicts: dict[int, CutTally] = field(default_factory=dict)
    finished: bool = False
    #: Number of crash states whose verdict was reused from an earlier run.
    reused: int = 0
    #: Number of crash states that were not mounted, because their outcome followed from that of an earlier state.
    pruned: int = 0
    #: Evidence that the check can fail. None if no controls were run, or if only a share of the crash states was
    #: explored.
    controls: Controls | None = None

    def add(self, finding: Finding) -> None:
        """Count a finding; for each kind of finding, store only the first crash state."""
        key = (finding.kind, finding.way == COMMANDS)
        earlier = self.kinds.get(key)
        if earlier is None:
            self.kinds[key] = finding
        elif finding.index < earlier.index:
            self.kinds[key] = replace(finding, count=earlier.count + finding.count)
        else:
            earlier.count += finding.count

    def merge(self, other: Exploration) -> None:
        """Add the result of another share of the crash states."""
        self.states += other.states
        self.reused += other.reused
        self.pruned += other.pruned
        self.took_s = max(self.took_s, other.took_s)
        # The crash states are divided into shares, but each share tries all cuts. The share with the fewest finished
        # cuts therefore determines the progress.
        reports = [covered for covered in (self.covered, other.covered) if covered]
        self.covered = min(reports, key=lambda covered: covered["cuts"], default=Covered())
        self.finished &= other.finished
        for finding in other.kinds.values():
            self.add(replace(finding))
        for cut, tally in other.verdicts.items():
            self.verdicts.setdefault(cut, CutTally(tally.at_ns)).add(tally)

    def findings(self, *, documented: bool = False) -> list[Finding]:
        """Return the findings, lowest level first; or the documented losses if `documented` is set."""
        chosen = [finding for finding in self.kinds.values() if (finding.documented is not None) == documented]
        return sorted(chosen, key=lambda finding: (LEVELS.index(finding.level), finding.index))


#: A recording of the commands of a device, or of the operations on files; and the crash states of either.
Run = _core.CrashRun | FileRun
Explorer = _core.Explorer | FileExplorer


def open_run(log: str, *, base: str | None = None) -> tuple[Run, CrashLogFacts]:
    """Open a crash log of emmclab or dm-log-writes; `base` has the initial disk contents for the latter."""
    run: Run = FileRun.read(log) or _core.CrashRun(log, base=base)
    return run, CrashLogFacts(run.facts())


def new_explorer(run: Run, options: CoreOptions) -> Explorer:
    """Return an explorer of the crash states of a recording.

    Raises:
        ConfigError: the recording is one of a device, but a model was chosen, or the reverse.
    """
    if isinstance(run, FileRun) != ("model" in options):
        hint = "leave out --model" if "model" in options else f"choose one of --model {', '.join(MODELS)}"
        subject = "a device" if "model" in options else "file operations"
        raise ConfigError(f"the log is a recording of {subject}", field="model", hint=hint)
    return FileExplorer(run, options) if isinstance(run, FileRun) else _core.Explorer(run, options)


def require_recoverable(run: Run, options: Options) -> None:
    """Reject a crash log if the chosen recovery does not support its file system."""
    if options.recovery == "mount" or isinstance(run, FileRun):
        new_explorer(run, options.core())
        return
    facts = CrashLogFacts(run.facts())
    end = max(facts.moments - 1, 0)
    final_options = replace(options, states="boundary", only=(end, None), share=(0, 1), tear="none")
    explorer = new_explorer(run, final_options.core())
    while explorer.next_state() is not None:
        try:
            problem, *_ = explorer.recover([])
        except UnsupportedError as error:
            if options.recovery == "process":
                raise not_in_process(error) from error
            return
        # The file system is not ext4 if even the crash state without missing writes lacks the magic number of ext4.
        if problem is None or "is not 0xef53" not in problem["detail"]:
            return
    short = "; the log is truncated" if facts.truncated else ""
    raise no_ext4(options.recovery, f"the disk of the log holds no ext4{short}")


def no_ext4(recovery: str, problem: str) -> ConfigError:
    """Return the error for a recovery method that supports only ext4, applied to another file system."""
    return ConfigError(
        f"{problem}, and recovery by {'emmclab' if recovery == 'process' else recovery} supports only ext4",
        field="recovery",
        hint="use --recovery mount: this machine's kernel then recovers the file system; if /proc/filesystems does "
        "not list the file system, add --guest KERNEL to use another kernel",
    )


def not_in_process(error: EmmclabError) -> UnsupportedError:
    """Add a hint to the error that emmclab's own recovery does not support a file-system feature."""
    return UnsupportedError(
        str(error),
        kind=error.kind,
        hint="let the kernel recover the file system: --recovery mount; or use --recovery e2fsck",
    )


def explorer_of(run: Run, options: Options) -> Explorer:
    """Return the explorer of a run; for generated programs, it first tries the power cuts around their syncs."""
    core_options = options.core()
    if options.check == generated_programs.CHECK:
        core_options["lines"] = cut_lines(run.acknowledgements())
    return new_explorer(run, core_options)


def judge_of(explorer: Explorer, run: Run, options: Options, guest: GuestMounts | None) -> Judge:
    """Return the judge that checks a run's crash states with these options; `guest` is from `guest_of`."""
    lies = run.facts()["lies"]
    tear = "sector" if options.tear == "none" and lies == "tear" else options.tear
    return Judge(
        explorer,
        run,
        options.check,
        options.recovery,
        options.recovery_cuts,
        tear=tear,
        prune=options.prune,
        guest=guest,
        documented=several(options.documented),
    )


def explore(
    run: Run,
    options: Options,
    *,
    on_results: Callable[[Exploration], None] = lambda _result: None,
    before: Exploration | None = None,
    until: float | None = None,
) -> Exploration:
    """Explore a share of the crash states of a run.

    Args:
        run: a crash log, from `open_run`.
        options: options of the exploration.
        on_results: called every half second with the results so far.
        before: results of an interrupted exploration with the same options.
        until: time of `time.monotonic` at which the exploration stops, after one state at least; by default, when the
            time of the options has passed.
    """
    if until is None and options.time_s is not None:
        until = time.monotonic() + options.time_s
    explorer = explorer_of(run, options)
    result, begin = before or Exploration(), time.monotonic() - (before.took_s if before else 0.0)
    last, pruned = result.last, result.pruned
    # The commands of the log are judged anew below.
    result.kinds = {key: finding for key, finding in result.kinds.items() if finding.way != COMMANDS}
    result.finished = True
    reported = begin
    with guest_of(options.guest, explorer.host_bytes()) as guest, judge_of(explorer, run, options, guest) as judge:
        while (fields := explorer.next_state()) is not None:
            state = ExploredState(fields)
            if state.index <= last:
                continue
            result.states += 1
            result.last = state.index
            lost = judge.verdict(state)
            result.pruned = pruned + judge.pruned
            tally = result.verdicts.setdefault(state.cut, CutTally(state.at_ns))
            tally.states += 1
            if lost is not None:
                tally.broken += lost.documented is None
                tally.documented += lost.documented is not None
                result.add(_finding(state, lost))
            now = time.monotonic()
            if until is not None and now >= until:
                result.finished = False
                break
            if now - reported > _REPORT_S:
                reported = now
                result.took_s = now - begin
                result.covered = _covered(explorer)
                on_results(result)
        for finding in judge.rules_broken() if options.share[0] == 0 and options.only is None else ():
            result.add(finding)
    result.took_s, result.covered = time.monotonic() - begin, _covered(explorer)
    return result


def _covered(explorer: Explorer) -> Covered:
    return cast("Covered", dict(zip(Covered.__annotations__, explorer.covered(), strict=True)))


def _finding(state: ExploredState, lost: Lost) -> Finding:
    return Finding(
        promise=lost.promise,
        level=lost.level,
        cut=state.cut,
        state=state.number,
        index=state.index,
        detail=lost.detail,
        way=state.way,
        at_ns=state.at_ns,
        acknowledged=state.acknowledged,
        documented=lost.documented,
        differs=[list(row) for row in lost.differs],
    )


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
        if self.lines and self.before.held is False and self.before.detail:
            doubts.append(f"--documented permits that everything is lost: {self.before.detail}")
        elif self.lines and self.before.held is False:
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
        if self.before.held is False and self.before.detail:
            before = "finds only what --documented permits"
        reason = f" ({shorten(detail, _LONGEST, placeholder=' ...')})" if detail else ""
        counted = "" if self.understood is None else f"understands {self.understood:,} of {self.lines:,} lines, "
        return (
            f"controls: the check {counted}{whole} on the disk with everything written, "
            f"{before} on the disk from before the workload{reason}"
        )

    def as_json(self) -> ControlFields:
        """Return the controls as a dictionary of JSON values."""
        return cast("ControlFields", {"text": self.sentence(), **asdict(self)})


def judge_controls(run: Run, options: Options, *, is_included: bool) -> Controls | None:
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
    with guest_of(options.guest, new_explorer(run, single.core()).host_bytes()) as guest:
        with _at(begin, run, replace(single, check=None), guest) as base:
            has_files = _has_files(base, begin)
        if options.check is None:
            return None
        lines, understood, foreign = _understood(run, options.check)
        with _at(end, run, single, guest) as final_state:
            is_whole = not isinstance(run, FileRun) or not run.doubts
            may_blame = is_whole and (not is_included or command_of(options.check) is not None)
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
def _at(cut: int, run: Run, options: Options, guest: GuestMounts | None) -> Iterator[_State]:
    explorer = new_explorer(run, replace(options, only=(cut, EVERYTHING)).core())
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
    permitted = ""
    beginnings = [lines * part // _MOST_BEGINNINGS for part in range(_MOST_BEGINNINGS, 0, -1)]
    for count in dict.fromkeys(beginnings):
        lost = initial_state.lost(count)
        if lost is not None and lost.by_check:
            # A loss that an included check calls documented has its own rule, which other losses do not meet.
            if lost.promise != CHECK or lost.documented is None:
                return Control(held=True, detail=lost.detail)
            permitted = lost.detail
    return Control(held=False, detail=permitted)


def _understood(run: Run, check: str) -> tuple[int, int | None, str]:
    """Return how many lines the workload printed, how many of them the check reads, and the first unknown line."""
    workload = lines_of(run, check)
    lines, understood = workload.printed, len(workload.lines)
    if command_of(check) is not None:
        return lines, None, ""
    # Each line of a generated program depends on the lines before it. After an unknown line, the following lines would
    # be misread.
    if understood < lines and (not understood or check == generated_programs.CHECK):
        count = f"only {understood:,}" if understood else "none"
        raise check_error(
            f"the check `{check}` understands {count} of the {lines:,} lines that the workload printed; the "
            f"first {'other one' if understood else 'one'} is `{workload.foreign}`",
            f"it reads {workload.form}; let the workload print these lines, or give a shell command as the check",
        )
    return lines, understood, workload.foreign
