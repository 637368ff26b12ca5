"""Runs a workload on a served device and writes the log that is explored."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path

from emmclab.crash import generated, programs, workloads
from emmclab.crash.scratch import scratch
from emmclab.crash.thinking import Thinking
from emmclab.devices.device import Device, lie_of
from emmclab.devices.layers import Setting
from emmclab.errors import ConfigError
from emmclab.live.device import LiveDevice
from emmclab.live.serve import serve

#: The mark in a log after which power may go: the file system is made and mounted.
MOUNTED = "mounted"
#: The mark in a log of an ext4 whose data is durable before the transaction that makes it readable.
_ORDERED = "data=ordered"
#: The beginning of the line of an operation that failed.
_FAILED = "failed "
#: Longest line that is taken as one, bytes; most lines.
_MOST_LINE, _MOST_LINES = 4096, 1_000_000
#: Options of mkfs: blocks of 4 KiB, a small journal that wraps, and nothing left for later.
_MKFS = {"ext4": ("-b", "4096", "-J", "size=4", "-N", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0")}

#: Lies that a file system on a loop device cannot find out, and why.
_WITHOUT_EFFECT = {
    "fua": "a loop device turns FUA into flushes; a layer may send it, as `--layer journal:ordered_fua` does",
    "barrier": "Linux sends no barriers to a loop device, so that there is none to ignore",
    "trim": "a discard promises nothing, and Linux sends no secure erase to a loop device",
    "tear": "ext4 finds commits that are torn at sectors by their checksums; `--tear inside` garbles sectors",
}


@dataclass(frozen=True)
class Workload:
    """What runs on the file system.

    Attributes:
        name: a workload that comes with emmclab, or `""` where there is a command.
        command: a command of the user's, run in the mounted folder.
        operations: how many operations a workload of emmclab does.
        seed: of its choices.
        timeout_s: after this time it is ended; what was logged counts.
        thinks: seed of its think times, at which it pauses until all is written back; 0 = it never pauses.
    """

    name: str = ""
    command: tuple[str, ...] = ()
    operations: int = 200
    seed: int = 1
    timeout_s: float = 300.0
    thinks: int = 0

    def require(self) -> None:
        """Refuse a workload that is not known before there is anything for it to run on.

        Raises:
            ConfigError: there is no such workload, or its file holds no programs.
        """
        if self.command:
            return
        if self.name.endswith(generated.ENDING):
            generated.load(self.name, self.seed)
        elif not (generated.is_known(self.name) or workloads.is_known(self.name)):
            known = ", ".join([*workloads.ABOUT, *generated.ABOUT])
            raise ConfigError(
                f"there is no workload `{self.name}`" if self.name else "no workload is given",
                kind="config",
                field="workload",
                hint=f"these come with emmclab: {known}; or give a command after --",
            )

    def arguments(self, folder: Path) -> list[str]:
        """Return the command line; a file that it needs is written to a folder.

        Raises:
            ConfigError: as `require`.

        >>> from emmclab.crash import Workload
        >>> Workload(command=("sync",)).arguments(Path("."))
        ['sync']
        """
        self.require()
        if self.command:
            return list(self.command)
        if generated.is_programs(self.name):
            written = folder / "workload.prog"
            text = "\n".join(map(str, generated.load(self.name, self.seed)))
            written.write_text(f"{text}\n", encoding="utf-8")
            return [sys.executable, "-I", str(Path(programs.__file__)), str(written)]
        program = str(Path(workloads.__file__))
        return [sys.executable, "-I", program, self.name, str(self.operations), str(self.seed)]


@dataclass(frozen=True)
class Recorded:
    """How a run ended."""

    status: int | None
    lines: int
    notes: tuple[str, ...] = field(default=())
    #: How often the workload paused to think.
    pauses: int = 0


def record_run(
    device: Device | str,
    workload: Workload,
    log: str | PathLike[str],
    *,
    layers: Sequence[str] = (),
    layer_settings: Mapping[str, Setting] | None = None,
    second: Device | str | None = None,
    file_system: str = "ext4",
    mkfs_options: Sequence[str] = (),
    mount_options: str | None = None,
    said: Callable[[str], None] = lambda _line: None,
    ready: Callable[[str], None] = lambda _path: None,
) -> Recorded:
    """Run a workload on a file system on a served device, in free time, and log every command with its data.

    Each line that the workload prints stands for something that it was told is safe, behind the last
    completion that was sent before the line was read.

    Args:
        device: the device, or the name of a preset or TOML file.
        workload: what runs.
        log: the crash log to write.
        layers: names of layers above the device.
        layer_settings: their settings.
        second: a device beside it, which has no cache, for layers that use one.
        file_system: as `emmclab serve --mkfs` knows it.
        mkfs_options: more options of mkfs.
        mount_options: as `mount -o` takes them.
        said: is told what goes on.
        ready: is given the path of the disk once its file system is made and mounted, before the workload
            runs, and may refuse it by an exception.

    Raises:
        ConfigError: device, layers, file system or workload are impossible, or this user may not mount.

    >>> from emmclab.crash import Workload, record_run
    >>> record_run("small-1gb", Workload("no-such"), "run.log")
    Traceback (most recent call last):
    ...
    emmclab.errors.ConfigError: there is no workload `no-such`
    """
    with scratch() as folder:
        arguments = workload.arguments(folder)
        mount = folder / "mount"
        mount.mkdir()
        said(f"making {file_system}")
        with serve(
            device,
            layers=layers,
            layer_settings=layer_settings,
            second=second,
            loop=True,
            mkfs=file_system,
            mkfs_options=[*_MKFS.get(file_system, ()), *mkfs_options],
            overwrite=True,
            mount=mount,
            mount_options=mount_options,
            clock="free",
            log=log,
        ) as disk:
            if _is_ordered(file_system, mount_options):
                disk.mark(_ORDERED)
            ready(disk.path)
            disk.mark(MOUNTED)
            said(f"running {' '.join(workload.command) or workload.name}")
            recorded = _run(disk, arguments, mount, workload)
            disk.end_log()
            notes = [*recorded.notes, *lies_without_effect(lie_of(disk.device), layers)]
    return replace(recorded, notes=tuple(notes))


def lies_without_effect(lie: str, layers: Sequence[str]) -> list[str]:
    """Say why a lie of the device cannot be found by a file system on it, without layers between the two.

    >>> lies_without_effect("flush", []), lies_without_effect("fua", ["journal:ordered_fua"])
    ([], [])
    >>> len(lies_without_effect("trim", []))
    1
    """
    if layers or lie not in _WITHOUT_EFFECT:
        return []
    return [f"cache.lies = {lie} is no control here, and nothing lost is no proof: {_WITHOUT_EFFECT[lie]}"]


def _is_ordered(file_system: str, mount_options: str | None) -> bool:
    modes = [one for one in (mount_options or "").split(",") if one.startswith("data=")]
    return file_system == "ext4" and modes in ([], [_ORDERED])


def _run(disk: LiveDevice, arguments: Sequence[str], folder: Path, workload: Workload) -> Recorded:
    """Run the workload; every line of its output is an acknowledgement."""
    timeout_s, answered = workload.timeout_s, not workload.command
    # Programs write whole lines at once to a terminal, and blocks to a pipe.
    ours, theirs = pty.openpty()
    settings = termios.tcgetattr(theirs)
    settings[1] &= ~termios.OPOST
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, settings)
    try:
        process = subprocess.Popen(
            arguments,
            cwd=folder,
            stdin=subprocess.PIPE if answered else subprocess.DEVNULL,
            stdout=theirs,
            start_new_session=True,
        )
    except OSError as error:
        os.close(ours)
        raise ConfigError(
            f"`{arguments[0]}` cannot be run: {error.strerror}",
            kind="config",
            field="command",
            hint="check the command after `--`",
        ) from None
    finally:
        os.close(theirs)
    thinking = Thinking(process.pid, folder, workload.thinks)
    failed: Counter[str] = Counter()
    try:
        with thinking:
            lines, late = _acknowledge(disk, ours, process, timeout_s, failed)
    finally:
        os.close(ours)
        if process.stdin is not None:
            process.stdin.close()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
    notes = []
    if late:
        notes.append(f"the workload was ended after {timeout_s:g} s; what it did until then counts")
    elif status != 0:
        how = f"exit status {status}" if status > 0 else f"signal {-status}"
        notes.append(f"the workload failed ({how}); what it did until then counts")
    if failed and generated.is_programs(workload.name):
        said = ", ".join(f"{count:,} with {why}" for why, count in failed.most_common())
        notes.append(f"{failed.total():,} operations failed ({said}): they are judged as not done")
    if lines == 0:
        notes.append("the workload printed no line: only device, layers and file system are judged")
    return Recorded(None if late else status, lines, tuple(notes), thinking.pauses)


def _acknowledge(
    disk: LiveDevice, ours: int, process: subprocess.Popen[bytes], timeout_s: float, failed: Counter[str]
) -> tuple[int, bool]:
    """Pass lines on to the log as they come; give their number, and whether time ran out.

    `failed` counts the operations of programs that failed, by their reason.
    """
    pending, lines = b"", 0
    end = time.monotonic() + timeout_s
    while True:
        left = end - time.monotonic()
        if left <= 0:
            return lines, True
        over = process.poll() is not None
        ready, _, _ = select.select([ours], [], [], 0.0 if over else min(left, 0.1))
        if not ready:
            if over:
                return lines, False
            continue
        try:
            data = os.read(ours, 1 << 16)
        except OSError:  # The other end of the terminal is closed.
            data = b""
        if not data:
            if over:
                return lines, False
            time.sleep(0.01)
            continue
        pending += data
        *whole, pending = pending.split(b"\n")
        if len(pending) > _MOST_LINE:
            pending = b""
        for line in whole:
            if line.strip() and lines < _MOST_LINES:
                lines += 1
                text = line[:_MOST_LINE].decode(errors="replace").strip()
                disk.acknowledge(text)
                if text.startswith(_FAILED):
                    failed[text.removeprefix(_FAILED)] += 1
            if process.stdin is not None:
                with contextlib.suppress(OSError):  # The workload is gone.
                    os.write(process.stdin.fileno(), b".")
