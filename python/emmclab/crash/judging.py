"""Recovers a state and judges it bottom-up: device, layers, journal, file system, application."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import TracebackType

from emmclab import _core
from emmclab.crash.by_mount import ByMount
from emmclab.crash.checks import Check, check_for
from emmclab.crash.finding import COMMANDS, Finding
from emmclab.crash.found import Files, Image, Lost, Taken
from emmclab.crash.grounds import command_of
from emmclab.crash.guest import machine
from emmclab.crash.guest.states import GuestMounts
from emmclab.crash.json_types import State
from emmclab.crash.mounted_files import Mounted
from emmclab.crash.recording import MOUNTED
from emmclab.crash.tools import TOOLS_PATH, run_tool, whole_path
from emmclab.errors import ConfigError, EmmclabError

#: Ways to recover a file system.
RECOVERIES = ("process", "e2fsck", "mount")
#: Timeout of a check or a recovery by a program, seconds.
_PATIENCE_S = 120.0
#: A plain program name: no path and no shell syntax.
_PLAIN = re.compile(r"[\w.+-]+")


#: Structures of ext4 that are unreadable if a block is torn or garbled, and why that breaks no promise.
_TORN = {
    "superblock": "the superblock of ext4 spans two sectors with one checksum: a device that tears 4 KiB may "
    "leave it unreadable, e2fsck takes a copy (-b)",
    "journal superblock": "ext4 has one journal superblock with one checksum, which a device that garbles "
    "writes in flight may leave unreadable; e2fsck recreates the journal",
    "commit block": "the kernel refuses a commit block with a wrong checksum; only async_commit treats a "
    "torn one as the end of the log",
}
#: A violation of a rule of the journal by a command: moment, rule, transaction, detail.
RuleBreak = tuple[int, str, int, str]


def require(check: str | None, recovery: str, guest: str | None = None) -> None:
    """Reject impossible options of judging before any work is done.

    Raises:
        ConfigError: the recovery is not known, or this user or machine cannot do it; or the check is not a
            program.
    """
    if recovery not in RECOVERIES:
        raise ConfigError(
            f"`{recovery}` is not a way of recovery",
            kind="config",
            field="recovery",
            hint=f"use {', '.join(RECOVERIES)}",
        )
    command = command_of(check)
    if command is not None and not _is_runnable(command):
        raise ConfigError(
            f"`{command}` is neither a check nor a program",
            kind="config",
            field="check",
            hint=whole_path(command) or "use sqlite, files, append-log, programs or a shell command",
        )
    if recovery == "e2fsck" and shutil.which("e2fsck", path=TOOLS_PATH["PATH"]) is None:
        raise ConfigError(
            "e2fsck is not installed",
            kind="config",
            field="recovery",
            hint="install the Debian package e2fsprogs",
        )
    if guest is not None:
        _require_guest(command, recovery, guest)
    elif (recovery == "mount" or command is not None) and os.geteuid() != 0:
        raise ConfigError(
            "only root can mount the disk that a cut left",
            kind="config",
            field="recovery" if command is None else "check",
            hint="run as root, or recover in emmclab: --recovery process"
            if command is None
            else "run as root, or use a check that reads the files in emmclab: sqlite, files or append-log",
        )


def _require_guest(command: str | None, recovery: str, guest: str) -> None:
    if command is not None:
        raise ConfigError(
            f"`{command}` runs on this machine, but only the guest mounts the disk",
            kind="config",
            field="check",
            hint="use sqlite, files, append-log or programs; or leave out --guest",
        )
    if recovery != "mount":
        raise ConfigError(
            f"a guest recovers the disk by its kernel, not by {recovery}",
            kind="config",
            field="recovery",
            hint="leave out --recovery, or --guest",
        )
    machine.require(guest)


def _is_runnable(command: str) -> bool:
    """Return whether the shell finds the first word of a command; only a plain program name is checked."""
    word = command.split(maxsplit=1)[0] if command.split() else ""
    if word and not _PLAIN.fullmatch(word):
        return True
    return run_tool(["/bin/sh", "-c", 'command -v "$0"', word], _PATIENCE_S).returncode == 0


class Judge:
    """Judges the states of an explorer; a context manager that removes its files."""

    def __init__(
        self,
        explorer: _core.Explorer,
        run: _core.CrashRun,
        check: str | None,
        recovery: str,
        recovery_cuts: int,
        *,
        tear: str = "none",
        prune: bool = True,
        guest: GuestMounts | None = None,
    ) -> None:
        """Set the explorer, the check and the way of recovery.

        The explorer is one of the run; `tear` and `prune` are as in `Options`, and `guest` mounts instead of
        this machine.

        Raises:
            ConfigError: as `require`.
        """
        require(check, recovery, None if guest is None else guest.kernel)
        self._explorer, self._recovery, self._recovery_cuts = explorer, recovery, recovery_cuts
        self._tears = tear != "none"
        self._command: list[str] | None = None
        self._check: Check | None = None
        command = command_of(check)
        if command is not None:
            self._command = ["/bin/sh", "-c", command]
        elif check is not None:
            self._check = check_for(check, garbles=tear == "inside")
        self._run, self._lines = run, _lines_of(run)
        self._acknowledged: list[str] = []
        self._mounts = ByMount(explorer, prune=prune and recovery == "mount", guest=guest)
        self._end = ExitStack()

    def __enter__(self) -> Judge:
        self._end.enter_context(self._mounts)
        return self

    @property
    def pruned(self) -> int:
        """Number of states that were not mounted, since their outcome follows from an earlier one."""
        return self._mounts.pruned

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._check = None
        self._end.close()

    def verdict(self, state: State) -> Lost | None:
        """Return the promise of the lowest level that a state breaks; `None` if it breaks none."""
        if state["problem"] is not None:
            return Lost(**state["problem"])
        # The states of a cut share these lines, because a recording may have hundreds of thousands.
        if len(self._acknowledged) != state["acknowledged"]:
            self._acknowledged = self._lines[: state["acknowledged"]]
        lines = self._acknowledged
        lost = self._in_process(lines) if self._recovery == "process" else None
        if lost is None and (self._recovery != "process" or self._command is not None):
            lost = self._by_program(lines)
        if lost is not None and self._tears and lost.promise in _TORN:
            return replace(lost, documented=_TORN[lost.promise])
        if lost is None or lost.documented or lost.level not in ("filesystem", "application"):
            return lost
        broken = next((one for one in rules_of(self._run) if one[0] <= state["cut"]), None)
        if broken is None:
            return lost
        _, rule, transaction, detail = broken
        return Lost(rule, "journal", f"transaction {transaction}: {detail}; with it, {lost.detail}")

    def rules_broken(self) -> list[Finding]:
        """Return the first violation of each rule of the journal, independent of the states."""
        first: dict[str, Finding] = {}
        for moment, rule, transaction, detail in rules_of(self._run):
            known = first.get(rule)
            if known is not None:
                known.count += 1
                continue
            detail = f"transaction {transaction}: {detail}"
            first[rule] = Finding(rule, "journal", moment, 0, 1 << 62, detail, COMMANDS, 0, acknowledged=0)
        return list(first.values())

    def _in_process(self, lines: Sequence[str]) -> Lost | None:
        wanted = [] if self._check is None else self._check.wanted(lines)
        folder = None if self._check is None else self._check.folder(lines)
        problem, files, tree, writes = self._explorer.recover(wanted, tree=folder)
        if problem is not None:
            return Lost(**json.loads(problem))
        lost = self._checked(Taken.in_process(wanted, files, tree), lines)
        if lost is not None or not writes:
            return lost
        # Cut the power again while the layers recover.
        step = max(1, writes // max(1, self._recovery_cuts))
        for cut_after in range(0, writes, step) if self._recovery_cuts else ():
            problem, files, tree, _ = self._explorer.recover(wanted, tree=folder, cut_after=cut_after)
            if problem is not None:
                return Lost(**json.loads(problem))
            lost = self._checked(Taken.in_process(wanted, files, tree), lines)
            if lost is not None:
                return Lost(
                    lost.promise,
                    lost.level,
                    f"{lost.detail} (cut again after {cut_after} writes of recovery)",
                )
        return None

    def _checked(self, files: Files, lines: Sequence[str]) -> Lost | None:
        return None if self._check is None else self._check(files, lines)

    def _by_program(self, lines: Sequence[str]) -> Lost | None:
        """Recover a copy of the disk; the kernel mounts it if the recovery or the check needs a mount.

        The result of a recovery in process is written to the copy, so that the kernel finds nothing to
        recover.
        """
        if self._recovery == "mount":
            found = self._mounts.outcome(self._asked(lines), lambda files: self._look(files, lines))
            return self._checked(found, lines) if isinstance(found, Taken) else found
        image = self._mounts.image
        problem = self._explorer.write_image(str(image), replayed=self._recovery == "process")
        if problem is not None:
            return Lost(**json.loads(problem))
        if self._recovery == "e2fsck":
            lost = _fsck(image)
            if lost is not None:
                return lost
            if self._command is None:
                return self._checked(Image(image), lines)
        found = self._mounts.of_image(lambda files: self._look(files, lines))
        return found if isinstance(found, Lost) else None

    def _asked(self, lines: Sequence[str]) -> str:
        """Return what `_look` also depends on: the lines for a command, or the files of a check."""
        if self._command is not None:
            return str(len(lines))
        return (
            "" if self._check is None else json.dumps([self._check.wanted(lines), self._check.folder(lines)])
        )

    def _look(self, files: Files, lines: Sequence[str]) -> Taken | Lost | None:
        """Run the command in the folder where a state is mounted, or read the files of the check."""
        if self._command is not None and isinstance(files, Mounted):
            return self._by_command(files.folder, lines)
        if self._check is None:
            return None
        return Taken.of(files, self._check.wanted(lines), self._check.folder(lines))

    def _by_command(self, folder: Path, lines: Sequence[str]) -> Lost | None:
        """Run the user's check in the mounted folder; `EMMCLAB_ACKNOWLEDGED` has the acknowledged lines."""
        told = self._mounts.image.with_name("acknowledged")
        told.write_text("".join(f"{line}\n" for line in lines))
        try:
            done = run_tool(
                self._command or [], _PATIENCE_S, cwd=folder, more={"EMMCLAB_ACKNOWLEDGED": str(told)}
            )
        except subprocess.TimeoutExpired:
            return Lost("check", "application", f"the check did not end within {_PATIENCE_S:g} s")
        if done.returncode == 0:
            return None
        said = _last_line(done.stdout) or _last_line(done.stderr)
        return Lost("check", "application", said or f"exit status {done.returncode}")


@lru_cache(maxsize=1)
def _lines_of(run: _core.CrashRun) -> list[str]:
    """Return the lines that a run acknowledged; all judges of a run share them."""
    return run.acknowledgements()


@lru_cache(maxsize=1)
def rules_of(run: _core.CrashRun) -> list[RuleBreak]:
    """Return the violations of the journal's rules; empty without ext4. The result is cached."""
    try:
        return run.journal_rules(MOUNTED)
    except EmmclabError:
        return []


def _fsck(image: Path) -> Lost | None:
    """Replay the journal, then check everything with e2fsck."""
    replayed = run_tool(["e2fsck", "-E", "journal_only", "-y", str(image)], _PATIENCE_S)
    if replayed.returncode > 2:
        said = _last_line(replayed.stdout or replayed.stderr).replace(str(image), "the disk")
        return Lost("mountable", "filesystem", f"e2fsck: {said}")
    checked = run_tool(["e2fsck", "-fn", str(image)], _PATIENCE_S)
    if checked.returncode == 0:
        return None
    return Lost("consistent", "filesystem", f"e2fsck: {fault_of(checked.stdout)}")


def fault_of(said: str) -> str:
    r"""Return the first error that e2fsck reports; its question may be on a separate line.

    >>> fault_of("Pass 5\nFree blocks count wrong (7, counted=9).\nFix? no\n")
    'Free blocks count wrong (7, counted=9).'
    >>> fault_of("Inode 12 has a bad block. Clear? no")
    'Inode 12 has a bad block. Clear? no'
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for before, line in zip(["", *lines], lines, strict=False):
        if re.fullmatch(r"\w+\? no", line) and before:
            return before
        if "?" in line or "WARNING" in line:
            return line
    return _last_line(said)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
