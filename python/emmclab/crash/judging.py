"""Recovers a crash state and checks it bottom-up: device, layers, journal, file system, application."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import cast

from emmclab import _core
from emmclab.core_types import ExploredState
from emmclab.crash.checks import Check, check_for
from emmclab.crash.file_states import FileExplorer, FileRun
from emmclab.crash.guest import machine
from emmclab.crash.guest.machine import GuestMounts
from emmclab.crash.kernel_log import BlockReads
from emmclab.crash.mounted_files import Mounted, UnreadableError
from emmclab.crash.mounting import KIND_BLOCKS, NotMountedError, kind_of, mounted
from emmclab.crash.promises import CHECK, COMMANDS, Files, Finding, Image, Lost, MountedFiles, ReadFiles
from emmclab.crash.recording import MARKS, MOUNTED
from emmclab.crash.scratch_folders import in_memory, scratch
from emmclab.crash.tools import TOOLS_PATH, full_path_hint, run_tool
from emmclab.crash.verdict_inputs import command_of
from emmclab.errors import ConfigError, EmmclabError, UnsupportedError

#: Timeout of a mount, and for a program that checks or recovers, seconds.
_PATIENCE_S = 120.0
#: Maximum total size of the files from mounted states that are kept in memory, bytes.
_MOST_KEPT = 256 << 20
#: Outcome of a mounted crash state: its files to compare, a broken promise, or None if its check passed.
Outcome = ReadFiles | Lost | None


class ByMount:
    """Recovers the crash states of an explorer by mounting them; a context manager that removes its files.

    The outcome depends only on the blocks that the kernel reads. If a state equals an earlier one in every block that
    was read while the earlier one was mounted and examined, both have the same outcome. Such a state is not mounted,
    but counted as pruned.
    """

    def __init__(self, explorer: _core.Explorer, *, prune: bool, guest: GuestMounts | None = None) -> None:
        """Set the explorer, and the virtual machine that mounts its crash states (None: this machine mounts them).

        If `prune` is set, a crash state is not mounted if its outcome follows from that of an earlier state.
        """
        self._explorer, self._prune, self._guest = explorer, prune, guest
        self._outcomes: list[Outcome] = []
        self._bytes = 0
        #: Number of crash states whose outcome followed from that of an earlier state, so that they were not mounted.
        self.pruned = 0
        self._end = ExitStack()

    def __enter__(self) -> "ByMount":
        self._folder = self._end.enter_context(scratch(in_memory(self._explorer.host_bytes())))
        self._mount = self._folder / "mount"
        self._mount.mkdir()
        self._reads = BlockReads(self._folder)
        if self._guest is None and self._prune:
            self._end.enter_context(self._reads)
        return self

    def __exit__(self, *_ended: object) -> None:
        self._end.close()

    @property
    def image(self) -> Path:
        """Path of the image of the current crash state."""
        return self._folder / "state.img" if self._guest is None else self._guest.disk

    def outcome(self, key: str, look: Callable[[MountedFiles], Outcome]) -> Outcome:
        """Mount the current crash state and return the result of `look`.

        Args:
            key: identifies everything that `look` depends on besides the files: equal keys mean equal outcomes.
            look: called with the files, which are accessible only during the call.
        """
        index = self._explorer.known_outcome(key) if self._reports_reads() else None
        if index is not None:
            self.pruned += 1
            return self._outcomes[index]
        problem = self._explorer.write_image(str(self.image))
        if problem is not None:
            return Lost(**problem)
        read: set[int] = set()
        outcome = self.of_image(look, read)
        if read and self._reports_reads():
            self._remember(key, read, outcome)
        return outcome

    def of_image(self, look: Callable[[MountedFiles], Outcome], read: set[int] | None = None) -> Outcome:
        """Mount the image, call `look` with its files, and return the result.

        Add the numbers of the blocks that were read to the set `read`.
        """
        try:
            with self._mounted(set() if read is None else read) as files:
                return look(files)
        except NotMountedError as error:
            return Lost("mountable", "filesystem", str(error))
        except UnreadableError as error:
            return Lost("readable", "filesystem", str(error))

    @contextmanager
    def _mounted(self, read: set[int]) -> Iterator[MountedFiles]:
        """Mount the image, in the guest if there is one, otherwise on this machine."""
        if self._guest is not None:
            with self._guest.mounted(read) as files:
                yield files
            return
        with self._reads.watching(read) as attached, mounted(self.image, self._mount, _PATIENCE_S, attached):
            yield Mounted(self._mount)

    def _reports_reads(self) -> bool:
        """Return whether the blocks that a mount reads can be recorded; pruning requires this."""
        return self._prune if self._guest is not None else self._reads.works

    def _remember(self, key: str, read: set[int], outcome: Outcome) -> None:
        size = outcome.size if isinstance(outcome, ReadFiles) else 0
        if self._bytes + size > _MOST_KEPT:
            self._explorer.forget_reads()
            self._outcomes, self._bytes = [], 0
        # The blocks `KIND_BLOCKS` are read before the mount, so the outcome depends on them, too.
        self._explorer.learn_reads(key, [*read, *KIND_BLOCKS], len(self._outcomes))
        self._outcomes.append(outcome)
        self._bytes += size


#: Methods of recovering a file system after a power cut.
RECOVERIES = ("process", "e2fsck", "mount")
#: A plain program name: no path and no shell syntax.
_PLAIN = re.compile(r"[\w.+-]+")
#: A path without shell syntax.
_PATH = re.compile(r"[\w.+/-]+")
#: Exit statuses of the shell for a command that cannot be executed, or is not found.
_NOT_RUN = (126, 127)
#: Number that the shell adds to a signal number to form the exit status of a command that the signal killed.
_BY_SIGNAL = 128
#: Index of the crash state with all writes that were sent before the cut.
EVERYTHING = 1
#: Bits of e2fsck's exit status: errors were corrected (1; 2 = reboot needed), or left uncorrected (4).
_MENDED, _UNMENDED = 1 | 2, 4


#: Structures of ext4 that a torn or garbled block makes unreadable. Each text explains why this breaks no durability
#: promise.
_TORN = {
    "superblock": "the superblock of ext4 spans two sectors with one checksum: a device that tears 4 KiB may "
    "leave it unreadable, e2fsck takes a copy (-b)",
    "journal superblock": "ext4 has one journal superblock with one checksum, which a device that garbles "
    "writes in flight may leave unreadable; e2fsck recreates the journal",
    "group descriptor": "ext4 reads the descriptors of its block groups before it replays the journal, which "
    "a device that garbles writes in flight may leave unreadable; e2fsck takes a copy",
    "journal inode": "ext4 reads the inode of the journal before it replays the journal, and a device that "
    "garbles writes in flight may leave its block unreadable; e2fsck recreates the journal",
    "commit block": "the kernel refuses a commit block with a wrong checksum; only async_commit treats a "
    "torn one as the end of the log",
}
#: Violation of a journal rule by a command: moment in the log, rule, transaction and detail.
RuleBreak = tuple[int, str, int, str]


def require(check: str | None, recovery: str, guest: str | None = None, *, is_mounted: bool = True) -> None:
    """Reject impossible options for checking crash states, before any work is done.

    `is_mounted` is false for states of a model, which are files in a folder.
    """
    if recovery not in RECOVERIES:
        raise ConfigError(
            f"`{recovery}` is not a way of recovery", field="recovery", hint=f"use one of {', '.join(RECOVERIES)}"
        )
    command = command_of(check)
    if command is not None:
        _require_program(command)
    if recovery == "e2fsck" and shutil.which("e2fsck", path=TOOLS_PATH["PATH"]) is None:
        raise ConfigError("e2fsck is not installed", field="recovery", hint="install the Debian package e2fsprogs")
    if guest is not None:
        _require_guest(command, recovery, guest)
    elif is_mounted and (recovery == "mount" or command is not None) and os.geteuid() != 0:
        raise ConfigError(
            "only root can mount the disk that remains after a power cut",
            field="recovery" if command is None else "check",
            hint="run as root, or recover in emmclab: --recovery process"
            if command is None
            else "run as root, or use a check that reads the files in emmclab: sqlite, files or append-log",
        )


def check_error(problem: str, hint: str) -> ConfigError:
    """Return the error for a check that cannot be applied to this workload or this disk."""
    return ConfigError(problem, field="check", hint=hint)


def _require_guest(command: str | None, recovery: str, guest: str) -> None:
    if command is not None:
        raise check_error(
            f"`{command}` runs on this machine, but only the guest mounts the disk",
            "use sqlite, files, append-log or programs; or leave out --guest",
        )
    if recovery != "mount":
        raise ConfigError(
            f"a guest recovers the disk by its kernel, not by {recovery}",
            field="recovery",
            hint="leave out either --recovery or --guest",
        )
    machine.require(guest)


def _require_program(command: str) -> None:
    """Reject a command whose first word is the name or the path of a program that cannot be executed.

    A relative path may name a file that the workload writes to the disk.
    """
    word = next(iter(command.split()), "")
    hint, path = full_path_hint(word), Path(word)
    if _PLAIN.fullmatch(word) or not word:
        is_there = run_tool(["/bin/sh", "-c", 'command -v "$0"', word], _PATIENCE_S).returncode == 0
        hint = hint or "use sqlite, files, append-log, programs or a shell command"
    elif _PATH.fullmatch(word) and path.is_absolute():
        is_there = path.is_file() and os.access(path, os.X_OK)
        hint = f"make it executable: chmod +x {word}" if path.is_file() else "check the path"
    else:
        is_there = not hint
    if not is_there:
        raise check_error(f"`{command}` is neither a check nor a program that can be executed", hint)


class Judge:
    """Recovers and checks the crash states of an explorer; a context manager that removes its files."""

    def __init__(
        self,
        explorer: _core.Explorer | FileExplorer,
        run: _core.CrashRun | FileRun,
        check: str | None,
        recovery: str,
        recovery_cuts: int,
        *,
        tear: str = "none",
        prune: bool = True,
        guest: GuestMounts | None = None,
        documented: Sequence[str] = (),
    ) -> None:
        """Set the explorer, the check, and how crash states are recovered.

        `explorer` must explore the crash states of `run`; `tear`, `prune` and `documented` are as in `Options`. If a
        `guest` is given, it mounts the states instead of this machine.

        Raises:
            ConfigError: as in `require`.
        """
        require(
            check, recovery, None if guest is None else guest.kernel, is_mounted=not isinstance(explorer, FileExplorer)
        )
        self._explorer, self._recovery, self._recovery_cuts = explorer, recovery, recovery_cuts
        self._tears = tear != "none"
        self._permitted = dict(entry.partition("=")[::2] for entry in documented)
        self._command: list[str] | None = None
        self._check: Check | None = None
        command = command_of(check)
        if command is not None:
            self._command = ["/bin/sh", "-c", command]
        elif check is not None:
            self._check = check_for(check, garbles=tear == "inside")
        self._run, self._workload_lines = run, lines_of(run, check)
        self._acknowledged: Sequence[str] = ()
        # No state of a model is mounted: only the folder is used.
        self._mounts = ByMount(cast("_core.Explorer", explorer), prune=prune and recovery == "mount", guest=guest)
        self._end = ExitStack()

    def __enter__(self) -> "Judge":
        self._end.enter_context(self._mounts)
        return self

    @property
    def pruned(self) -> int:
        """Number of crash states that were not mounted, because their outcome follows from an earlier state."""
        return self._mounts.pruned

    def __exit__(self, *_: object) -> None:
        self._check = None
        self._end.close()

    def verdict(self, state: ExploredState) -> Lost | None:
        """Return the promise that a crash state breaks, on the lowest level with a broken promise; `None` if none.

        Raises:
            ConfigError: the check cannot run.
        """
        lost = self.judged(state)
        if isinstance(self._explorer, FileExplorer):
            return self._explorer.attributed(lost)
        if lost is not None and self._tears and not lost.by_check:
            torn = self._torn(lost)
            lost = lost if torn is None else replace(lost, documented=torn)
        if lost is None or lost.documented or lost.level not in ("filesystem", "application"):
            return lost
        broken = next((rule_break for rule_break in rules_of(self._run) if rule_break[0] <= state.cut), None)
        if broken is None:
            return lost
        _, rule, transaction, detail = broken
        detail = f"transaction {transaction}: {detail}; with it, {lost.detail}"
        return Lost(rule, "journal", detail, differs=lost.differs)

    def judged(self, state: ExploredState) -> Lost | None:
        """Return the promise that a crash state breaks, without a search for its cause (journal rule or torn block)."""
        if state.problem is not None:
            return Lost(**state.problem)
        # The list of acknowledged output lines may be very long. It is therefore built once for each cut, not for each
        # crash state.
        count = self._workload_lines.understood[state.acknowledged]
        if len(self._acknowledged) != count:
            self._acknowledged = self._workload_lines.lines[:count]
        lines = self._acknowledged
        lost = self._in_process(lines) if self._recovery == "process" else None
        if lost is None and (self._recovery != "process" or self._command is not None):
            lost = self._by_program(lines)
        return lost

    def file_system(self) -> str:
        """Return the name of the file system in the current crash state; empty if it is not recognised."""
        problem = self._explorer.write_image(str(self._mounts.image))
        return "" if problem is not None else kind_of(self._mounts.image)

    def _torn(self, lost: Lost) -> str | None:
        """Return the documented weakness of ext4 that explains why a disk is not recovered; `None` if none does."""
        if self._recovery == "process" or lost.level != "filesystem" or not is_ext4(self._run):
            return _TORN.get(lost.promise)
        try:
            problem, *_ = self._explorer.recover([])
        except UnsupportedError:
            return None
        return None if problem is None else _TORN.get(problem["promise"])

    def rules_broken(self) -> list[Finding]:
        """Return the first violation of each journal rule by the recorded commands, independent of crash states."""
        first: dict[str, Finding] = {}
        for moment, rule, transaction, detail in rules_of(self._run):
            earlier = first.get(rule)
            if earlier is not None:
                earlier.count += 1
                continue
            detail = f"transaction {transaction}: {detail}"
            first[rule] = Finding(rule, "journal", moment, 0, 1 << 62, detail, COMMANDS, 0, acknowledged=0)
        return list(first.values())

    def _in_process(self, lines: Sequence[str]) -> Lost | None:
        names = [] if self._check is None else self._check.file_names(lines)
        folder = None if self._check is None else self._check.folder(lines)
        problem, files, tree, writes = self._explorer.recover(names, tree=folder)
        if problem is not None:
            return Lost(**problem)
        lost = self._checked(ReadFiles.in_process(names, files, tree), lines)
        if lost is not None or not writes:
            return lost
        # Cut the power a second time while the layers recover from the first cut.
        step = max(1, writes // max(1, self._recovery_cuts))
        for cut_after in range(0, writes, step) if self._recovery_cuts else ():
            problem, files, tree, _ = self._explorer.recover(names, tree=folder, cut_after=cut_after)
            if problem is not None:
                return Lost(**problem)
            lost = self._checked(ReadFiles.in_process(names, files, tree), lines)
            if lost is not None:
                detail = f"{lost.detail} (cut again after {cut_after} writes of recovery)"
                return replace(lost, detail=detail, documented=None)
        return None

    def _checked(self, files: Files, lines: Sequence[str]) -> Lost | None:
        lost = None if self._check is None else self._check(files, lines)
        return None if lost is None else replace(lost, by_check=True)

    def _by_program(self, lines: Sequence[str]) -> Lost | None:
        """Recover a copy of the disk, mount it if necessary, and check it.

        If emmclab has recovered the file system itself, the copy is already recovered, so that the kernel only mounts
        it.
        """
        if isinstance(self._explorer, FileExplorer):
            folder = self._mounts.image.with_name("state")
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            self._explorer.write_folder(folder)
            return self._by_command(folder, lines)
        if self._recovery == "mount":
            outcome = self._mounts.outcome(self._key(lines), lambda files: self._look(files, lines))
            return self._checked(outcome, lines) if isinstance(outcome, ReadFiles) else outcome
        lost = self._of_image(lines, replayed=self._recovery == "process")
        if lost is None or self._recovery != "e2fsck":
            return lost
        try:
            is_whole = self._of_image(lines, replayed=True) is None
        except UnsupportedError:
            is_whole = False
        return replace(lost, documented=_fault_of_e2fsck()) if is_whole else lost

    def _of_image(self, lines: Sequence[str], *, replayed: bool) -> Lost | None:
        """Check the image of the crash state; if `replayed` is set, emmclab replays its journal first."""
        image = self._mounts.image
        problem = self._explorer.write_image(str(image), replayed=replayed)
        if problem is not None:
            return Lost(**problem)
        if self._recovery == "e2fsck":
            lost = _fsck(image)
            if lost is not None:
                return lost
            if self._command is None:
                return self._checked(Image(image), lines)
        outcome = self._mounts.of_image(lambda files: self._look(files, lines))
        return outcome if isinstance(outcome, Lost) else None

    def _key(self, lines: Sequence[str]) -> str:
        """Return a key for everything except the files that determines the result of `_look`.

        For a command of the user, this is the number of acknowledged lines. For an included check, these are the names
        of the files that it reads.
        """
        if self._command is not None:
            return str(len(lines))
        return "" if self._check is None else json.dumps([self._check.file_names(lines), self._check.folder(lines)])

    def _look(self, files: MountedFiles, lines: Sequence[str]) -> ReadFiles | Lost | None:
        """Run the user's check in the folder where a crash state is mounted, or read the files of an included check."""
        if self._command is not None and isinstance(files, Mounted):
            return self._by_command(files.folder, lines)
        if self._check is None:
            return None
        return ReadFiles.of(files, self._check.file_names(lines), self._check.folder(lines))

    def _by_command(self, folder: Path, lines: Sequence[str]) -> Lost | None:
        """Run the user's check in the mounted folder; `EMMCLAB_ACKNOWLEDGED` is a file of the acknowledged lines."""
        acknowledged = self._mounts.image.with_name("acknowledged")
        acknowledged.write_text("".join(f"{line}\n" for line in lines))
        try:
            process = run_tool(
                self._command or [], _PATIENCE_S, cwd=folder, environment={"EMMCLAB_ACKNOWLEDGED": str(acknowledged)}
            )
        except subprocess.TimeoutExpired:
            detail = f"the check did not end within {_PATIENCE_S:g} s"
            return self._failed(detail)
        if process.returncode == 0:
            return None
        _require_run(self._command[-1] if self._command else "", process)
        detail = _last_line(process.stdout) or _last_line(process.stderr) or f"exit status {process.returncode}"
        return self._failed(detail)

    def _failed(self, detail: str) -> Lost:
        """Return the failure of the user's check; documented if it contains a text that the user permits."""
        sources = (source or "--documented" for text, source in self._permitted.items() if text in detail)
        return Lost(CHECK, "application", detail, next(sources, None), by_check=True)


def _require_run(command: str, process: subprocess.CompletedProcess[str]) -> None:
    """Reject the user's check if it could not be started or was killed."""
    number = -process.returncode if process.returncode < 0 else process.returncode - _BY_SIGNAL
    if process.returncode in _NOT_RUN:
        reason = _last_line(process.stderr) or f"exit status {process.returncode}"
        raise check_error(
            f"the check `{command}` cannot run: {reason}",
            full_path_hint(next(iter(command.split()), ""))
            or "it runs in the folder of the disk: give the absolute path of each program, and make it executable",
        )
    if number in {*signal.Signals}:
        raise check_error(
            f"the check `{command}` was killed by {signal.Signals(number).name}",
            "a check reports a loss by its exit status; if damaged data kills one of its programs, write "
            f"--check {shlex.quote(f'({command}) || exit 1')}",
        )


@dataclass(frozen=True)
class WorkloadLines:
    """The output lines of a workload that a check understands; if the check is a command, all lines.

    Attributes:
        lines: lines that the check understands.
        printed: number of lines that the workload printed, without emmclab's own marks in the log.
        understood: for each N, the number of understood lines among the first N lines of the workload.
        foreign: first line that the check does not understand; empty if there is none.
        form: description of the lines that the check understands, for messages.
    """

    lines: Sequence[str]
    printed: int
    understood: Sequence[int]
    foreign: str = ""
    form: str = ""


@lru_cache(maxsize=2)
def lines_of(run: _core.CrashRun | FileRun, check: str | None) -> WorkloadLines:
    """Return the output lines of a run that a check understands; the result is cached for further calls."""
    printed_lines = run.acknowledgements()
    printed = sum(line not in MARKS for line in printed_lines)
    if check is None or command_of(check) is not None:
        return WorkloadLines(printed_lines, printed, range(len(printed_lines) + 1))
    checker = check_for(check)
    understands = checker.reader()
    is_read = [understands(line) for line in printed_lines]
    lines = [line for line, read in zip(printed_lines, is_read, strict=True) if read]
    foreign = (line for line, read in zip(printed_lines, is_read, strict=True) if not read and line not in MARKS)
    return WorkloadLines(lines, printed, [0, *accumulate(is_read)], next(foreign, ""), checker.form)


def workload_begin(run: _core.CrashRun | FileRun) -> int:
    """Return the log position directly before the workload, when the file system is already mounted."""
    return max(0, run.after_mark(MOUNTED) - 1)


@lru_cache(maxsize=1)
def is_ext4(run: _core.CrashRun | FileRun) -> bool:
    """Return whether the disk contains an ext4 file system before the workload."""
    if isinstance(run, FileRun):
        return False
    options = {"cuts": 1, "states": "boundary", "seed": 1, "tear": "none", "from_mark": None}
    explorer = _core.Explorer(run, {**options, "only": (workload_begin(run), EVERYTHING), "share": (0, 1)})
    if explorer.next_state() is None:
        return False
    try:
        return explorer.recover([])[0] is None
    except UnsupportedError:
        return True


@lru_cache(maxsize=1)
def rules_of(run: _core.CrashRun | FileRun) -> list[RuleBreak]:
    """Return the violations of the rules of ext4's journal; empty for other file systems. The result is cached."""
    try:
        return run.journal_rules(MOUNTED)
    except EmmclabError:
        return []


def _fsck(image: Path) -> Lost | None:
    """Recover and repair an image with `e2fsck -p`, as at boot; an error that remains is a broken promise."""
    process = run_tool(["e2fsck", "-fp", str(image)], _PATIENCE_S, environment={"LC_ALL": "C"})
    if process.returncode & ~_MENDED == 0:
        return None
    promise = "consistent" if process.returncode & _UNMENDED else "mountable"
    fault = fault_of(process.stdout + process.stderr).replace(str(image), "the disk").removeprefix("e2fsck: ")
    return Lost(promise, "filesystem", f"e2fsck: {fault}")


def fault_of(output: str) -> str:
    r"""Return the error because of which `e2fsck -p` gave up.

    >>> fault_of("a.img: recovering journal\na.img: Inode 12 is bad.\n\na.img: UNEXPECTED INCONSISTENCY; RUN")
    'a.img: Inode 12 is bad.'
    """
    lines = [line.strip() for line in output.partition("UNEXPECTED INCONSISTENCY")[0].splitlines()]
    return next((line for line in reversed(lines) if line and not line.endswith(":")), _last_line(output))


@cache
def _fault_of_e2fsck() -> str:
    """Return a text that attributes a loss to this version of e2fsck, not to the file system."""
    process = run_tool(["e2fsck", "-V"], _PATIENCE_S)
    version = " ".join((process.stdout + process.stderr).split()[:2])
    return (
        f"{version} recovers the journal of this state wrongly, the file system is not at fault: with the "
        "journal replayed by emmclab, as by Linux, e2fsck and the check find nothing"
    )


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
