"""Runs a workload on a served device, on this machine or in a guest, and writes the crash log to explore."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Annotated, TypedDict, Unpack, cast

from emmclab.crash import generated_programs, programs, workloads
from emmclab.crash.file_states import write_log
from emmclab.crash.guest.machine import Guest, GuestEndedError, mounted_in_guest
from emmclab.crash.json_types import RecordedWorkload
from emmclab.crash.promises import least_mb
from emmclab.crash.scratch_folders import scratch
from emmclab.crash.system_calls import Injected, RecordedFiles, Translator, traced
from emmclab.crash.tools import full_path_hint
from emmclab.crash.workloads import Thinking, sync_file_system
from emmclab.errors import ConfigError, EmmclabError
from emmclab.live.device import LiveDevice
from emmclab.live.serve import serve
from emmclab.runtime.lists import Names, several
from emmclab.runtime.option import Option, attributes, complete, declarations
from emmclab.simulation.device import Device, lie_of
from emmclab.simulation.layers import Setting
from emmclab.simulation.run_options import RUN_OPTIONS

#: Device capacity that is tried first, MB; small devices are explored faster.
LEAST_MB = 256


def scaled_down(device: Device, file_system: str = "ext4") -> Device:
    """Scale a device to 256 MB, doubled until the device and the file system support the size.

    Some mapping schemes need log blocks independent of the capacity. A device that cannot be made smaller is returned
    unchanged.

    >>> scaled_down(Device.preset("nexus5")).name, scaled_down(Device.preset("nexus5"), "xfs").name
    ('nexus5-256MB', 'nexus5-512MB')
    """
    megabytes = LEAST_MB
    while megabytes < least_mb(file_system):
        megabytes *= 2
    while megabytes << 20 < device.capacity_bytes:
        unit = f"{megabytes}MB" if megabytes < 1024 else f"{megabytes >> 10}GB"
        try:
            return device.with_capacity(unit)
        except ConfigError as error:
            if error.field != "capacity":
                raise
        megabytes *= 2
    return device


#: Prefixes of the output lines about a failed operation, and about a program that begins.
_FAILED, _BEGUN = "failed ", "begin "


@dataclass(frozen=True)
class Recorded:
    """How the recorded run of a workload ended."""

    status: int | None
    lines: int
    notes: tuple[str, ...] = field(default=())
    #: Number of pauses (think time) that were inserted into the workload.
    pauses: int = 0
    #: Whether all dirty data was written back after the workload.
    is_written_back: bool = True


def run_here(disk: LiveDevice, arguments: Sequence[str], folder: Path, workload: Workload) -> Recorded:
    """Run the workload on this machine; every line of its output is an acknowledgement."""
    lines_fd, _, process = _begun(arguments, folder)
    thinking = Thinking(process.pid, folder, workload.thinks)
    failed: Counter[str] = Counter()
    try:
        with thinking:
            lines, late = _acknowledge(
                disk, lines_fd, None, lambda: process.poll() is not None, workload.timeout_s, failed
            )
    finally:
        os.close(lines_fd)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
    sync_file_system(folder)
    return _recorded_end(None if late else status, lines, failed, thinking.pauses, workload)


def _begun(arguments: Sequence[str], folder: Path) -> tuple[int, str, subprocess.Popen[bytes]]:
    """Begin a program whose output is a pseudo-terminal, because programs write to a pipe in blocks, not in lines.

    Return the descriptor of its output, the name of the terminal, and the process.
    """
    lines_fd, terminal = pty.openpty()
    settings = termios.tcgetattr(terminal)
    settings[1] &= ~termios.OPOST
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, settings)
    name = os.ttyname(terminal)
    try:
        process = subprocess.Popen(
            arguments, cwd=folder, stdin=subprocess.DEVNULL, stdout=terminal, start_new_session=True
        )
    except OSError as error:
        os.close(lines_fd)
        raise ConfigError(
            f"`{arguments[0]}` cannot be run: {error.strerror}",
            field="command",
            hint=full_path_hint(arguments[0]) or "check the command after `--`",
        ) from None
    finally:
        os.close(terminal)
    return lines_fd, name, process


def record_files(
    workload: Workload, log: Path, *, fault: Injected | None = None, remade: Sequence[str] = ()
) -> tuple[Recorded, RecordedFiles]:
    """Run a workload in an empty folder below strace, and write its file operations to `log`.

    Args:
        workload: the workload; what it prints is acknowledged in the order of its system calls.
        log: the log to write.
        fault: error that one of the calls gets.
        remade: patterns of names of files that the program makes anew after a power cut.

    Raises:
        ConfigError: strace is not installed or may not trace, or the workload cannot be run.
    """
    with scratch() as outer:
        arguments = workload.arguments(outer)
        if workload.command and shutil.which(arguments[0]) is None:
            hint = full_path_hint(arguments[0]) or "check the command after `--`"
            raise ConfigError(f"`{arguments[0]}` cannot be run: it is not found", field="command", hint=hint)
        folder, calls = outer.resolve() / "files", outer / "calls"
        folder.mkdir()
        command = traced(arguments, calls, fault)
        lines_fd, terminal, process = _begun(command, folder)
        end = time.monotonic() + workload.timeout_s
        try:
            while process.poll() is None and time.monotonic() < end:
                _read_ready(lines_fd)
            status = process.poll()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(lines_fd)
        if not calls.exists() or calls.stat().st_size == 0:
            raise ConfigError("strace recorded nothing", field="model", hint="allow ptrace (--cap-add SYS_PTRACE)")
        translator = Translator(folder, terminal, remade)
        translator.translate(calls)
        write_log(log, translator.events, [*translator.doubts], translator.paths)
    count = sum(event.kind == "line" for event in translator.events)
    ended = _recorded_end(status, count, Counter(), 0, workload)
    recorded = ended if fault is None else replace(ended, notes=())
    return recorded, RecordedFiles([*translator.calls], translator.failures, translator.largest)


def _read_ready(lines_fd: int) -> None:
    """Read the output that arrives within 10 ms, so that the workload can go on; strace has recorded it."""
    ready, _, _ = select.select([lines_fd], [], [], 0.01)
    if ready:
        try:
            os.read(lines_fd, 1 << 16)
        except OSError:  # No process has the terminal open.
            time.sleep(0.01)


def run_in_guest(guest: Guest, disk: LiveDevice, workload: Workload) -> Recorded:
    """Run a workload that comes with emmclab in a guest that has mounted the disk."""
    arguments = [workload.operations, workload.seed]
    text = None
    if generated_programs.is_programs(workload.name):
        text = "".join(f"{program}\n" for program in generated_programs.load(workload.name, workload.seed))
    guest.tell("run", name=workload.name, arguments=arguments, text=text, thinks=workload.thinks)
    lines_fd, failed = guest.lines.fileno(), Counter[str]()
    lines, late = _acknowledge(disk, lines_fd, lines_fd, guest.is_answered, workload.timeout_s, failed)
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


def _recorded_end(status: int | None, lines: int, failed: Counter[str], pauses: int, workload: Workload) -> Recorded:
    """Return how the run of a workload ended; `status` is `None` if it exceeded the time limit."""
    notes = []
    begun = failed.pop(_BEGUN, 0)
    if status is None:
        place = ""
        if generated_programs.is_programs(workload.name):
            programs_in_all = len(generated_programs.load(workload.name, workload.seed))
            place = f", in program {begun:,} of {programs_in_all:,}"
        notes.append(
            f"the workload was ended after {workload.timeout_s:g} s{place}; its operations until then are judged"
        )
    elif status != 0:
        notes.append(f"the workload failed ({failure_text(status)}); its operations until then are judged")
    if failed and generated_programs.is_programs(workload.name):
        reasons = ", ".join(f"{count:,} with {why}" for why, count in failed.most_common())
        notes.append(f"{failed.total():,} operations failed ({reasons}): they are judged as not done")
    if lines == 0:
        notes.append("the workload printed no line: only device, layers and file system are judged")
    return Recorded(status, lines, tuple(notes), pauses)


def _acknowledge(
    disk: LiveDevice,
    lines_fd: int,
    answers: int | None,
    is_over: Callable[[], bool],
    timeout_s: float,
    failed: Counter[str],
) -> tuple[int, bool]:
    """Log output lines until the workload ends; return their number, and whether the time limit was reached.

    The device itself reads new lines before each request. This function reads the lines that arrive while there are no
    requests.

    Args:
        disk: disk whose log is written.
        lines_fd: file descriptor from which lines are read.
        answers: file descriptor to which a byte is written after each line, or `None`.
        is_over: returns whether the workload has ended.
        timeout_s: time limit of the workload.
        failed: counts the failed operations of programs, by their reason, and as `begin ` the programs.
    """
    lines, end = 0, time.monotonic() + timeout_s
    disk.follow(lines_fd, answers)
    while True:
        over = is_over()
        new = disk.new_lines()
        lines += len(new)
        failed.update(line.removeprefix(_FAILED) for line in new if line.startswith(_FAILED))
        failed.update(_BEGUN for line in new if line.startswith(_BEGUN))
        remaining = end - time.monotonic()
        if over or remaining <= 0:
            return lines, not over
        ready, _, _ = select.select([lines_fd], [], [], min(remaining, 0.1))
        if ready and not new:  # The other end of the terminal is closed.
            time.sleep(0.01)


#: Name of the mark in a log at which the file system has been created and mounted. Power may be cut from here on.
MOUNTED = "mounted"
#: Name of the mark in a log at which all data of the workload is written back.
WRITTEN_BACK = "written back"
#: Name of the mark which states that the file system is an ext4 in ordered mode (data is written before its
#: transaction).
ORDERED = "data=ordered"
#: Names of all marks; needed because marks in a log of dm-log-writes look like lines of the workload.
MARKS = frozenset({MOUNTED, WRITTEN_BACK, ORDERED})
#: Options of mkfs: blocks of 4 KiB, a small journal that wraps, and no lazy initialisation.
MKFS = {"ext4": ("-b", "4096", "-J", "size=4", "-N", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0")}

#: False promises of the simulated device (`cache.lies`) that have no effect on a file system on a loop device, with the
#: reason.
_WITHOUT_EFFECT = {
    "fua": "a loop device turns FUA into flushes; a layer may send it, as `--layer journal:ordered_fua` does",
    "barrier": "Linux sends no barriers to a loop device, so that there is none to ignore",
    "trim": "a discard promises nothing, and Linux sends no secure erase to a loop device",
    "tear": "ext4 finds commits that are torn at sectors by their checksums; `--tear inside` garbles sectors",
}


#: Name of the panel with the recording options in the help of `crash`.
RUN_PANEL = "The run"
_run = partial(Option, panel=RUN_PANEL)


@dataclass(frozen=True)
class Workload:
    """The workload that runs on the file system.

    Attributes:
        command: a program of the user with its arguments, run in the mounted folder; a text is a program without
            arguments.
        seed: seed of the workload's random choices.
        thinks: seed of its think times, in which the workload pauses until all data is written back; 0 = no pauses.
    """

    name: Annotated[
        str,
        _run(
            ...,
            "An included workload: files, append-log, sqlite-MODE[-LEVEL], ace:LENGTH[:PROGRAMS], "
            "random:OPERATIONS, known[:BUG], or a file that ends in .prog or .jlang. With -unsynced after the name of "
            "one of the first three, syncs return at once; the others are programs of operations on files, "
            "and those of known show published bugs of file systems.",
            option="--workload",
            metavar="NAME",
            completes="crash_workload_names",
        ),
    ] = ""
    command: tuple[str, ...] = ()
    operations: Annotated[int, _run(..., "Number of operations of an included workload.", least=1, advanced=True)] = 200
    seed: int = 1
    timeout_s: Annotated[
        float,
        _run(
            ..., "Seconds after which the workload is ended.", option="--timeout", metavar="S", least=0.1, advanced=True
        ),
    ] = 300.0
    thinks: int = 0

    def __post_init__(self) -> None:
        """Convert a command that is given as a text to a program without arguments."""
        object.__setattr__(self, "command", tuple(several(self.command)))

    def as_json(self) -> RecordedWorkload:
        """Return the workload as a dictionary of JSON values."""
        return cast("RecordedWorkload", {**asdict(self), "command": list(self.command)})

    def require(self) -> None:
        """Reject an unknown workload before a device is served.

        Raises:
            ConfigError: there is no such workload, or its file contains no programs.
        """
        if self.command:
            return
        if generated_programs.is_file(self.name):
            generated_programs.load(self.name, self.seed)
        elif not (generated_programs.is_known(self.name) or workloads.is_known(self.name)):
            names = [*workloads.ABOUT, *generated_programs.ABOUT]
            if self.name.startswith(generated_programs.KNOWN):
                names = generated_programs.known_bug_names()
            raise ConfigError(
                f"there is no workload `{self.name}`" if self.name else "no workload is given",
                field="workload",
                hint=f"these workloads come with emmclab: {', '.join(names)}; or give a command after --",
            )

    def arguments(self, folder: Path) -> list[str]:
        """Return the command line of the workload; a file that it needs is written to `folder`.

        Raises:
            ConfigError: as in `require`.

        >>> from emmclab.crash import Workload
        >>> Workload(command=("sync",)).arguments(Path("."))
        ['sync']
        """
        self.require()
        if self.command:
            return list(self.command)
        if generated_programs.is_programs(self.name):
            path = folder / "workload.prog"
            text = "\n".join(map(str, generated_programs.load(self.name, self.seed)))
            path.write_text(f"{text}\n", encoding="utf-8")
            return [sys.executable, "-I", str(Path(programs.__file__)), str(path)]
        program = str(Path(workloads.__file__))
        return [sys.executable, "-I", program, self.name, str(self.operations), str(self.seed)]


class RecordingOptions(TypedDict, total=False):
    """The options of a recording; omitted options have their defaults."""

    layers: Annotated[Names, RUN_OPTIONS["layers"]]
    layer_settings: Annotated[Mapping[str, Setting] | None, RUN_OPTIONS["layer_settings"]]
    second: Annotated[
        Device | str | None,
        _run(
            None,
            "Second device, for layers that use one; it must have no volatile cache.",
            option="--device2",
            metavar="PRESET|FILE",
            completes="device_names",
            advanced=True,
        ),
    ]
    file_system: Annotated[
        str,
        _run(
            "ext4",
            "File system: ext4, or with --recovery mount or --guest xfs, btrfs, f2fs, vfat.",
            option="--fs",
            metavar="NAME",
            completes="filesystem_names",
            advanced=True,
        ),
    ]
    mkfs_options: Annotated[
        Names, _run((), "Option for mkfs; may be repeated.", option="--mkfs-option", metavar="OPTION", advanced=True)
    ]
    mount_options: Annotated[
        str | None, _run(None, "Mount options, in the form of `mount -o`.", metavar="LIST", advanced=True)
    ]
    guest: Annotated[
        str | None,
        Option(
            None,
            "Kernel file of the guest that mounts the disk and runs the workload; None: this machine does both.",
            option=None,
        ),
    ]


#: Declarations of the recording options, by name.
RECORDING_OPTIONS = declarations(RecordingOptions)
RecordingOptions.__doc__ = f"{RecordingOptions.__doc__}\n\n{attributes(RECORDING_OPTIONS)}"


def record_run(
    device: Device | str,
    workload: Workload,
    log: str | PathLike[str],
    *,
    on_message: Callable[[str], None] = lambda _line: None,
    ready: Callable[[str], None] = lambda _path: None,
    **options: Unpack[RecordingOptions],
) -> Recorded:
    """Run a workload on a file system of a served device with a free-running clock, and log every command.

    The log includes the data. Each line that the workload prints is an acknowledgement, logged after the last
    completion that was sent before the line was read. After the workload everything is written back, so that
    the log ends with the complete disk.

    Args:
        device: the device, or the name of a preset or TOML file.
        workload: the workload.
        log: the crash log to write.
        on_message: called with progress messages.
        ready: called with the path of the disk after its file system is created and mounted, before the workload
            runs; may reject the disk by an exception.
        options: see `RecordingOptions`.

    Raises:
        ConfigError: device, layers, file system or workload are impossible, or this user may not mount.
        InputError: the log exists.

    >>> from emmclab.crash import Workload, record_run
    >>> record_run("small-1gb", Workload("no-such"), "run.log")
    Traceback (most recent call last):
    ...
    emmclab.errors.ConfigError: there is no workload `no-such`
    """
    values = complete(RECORDING_OPTIONS, options, "a recording")
    layers, guest = values["layers"], values["guest"]
    file_system, mount_options = values["file_system"], values["mount_options"]
    with scratch() as folder:
        arguments = workload.arguments(folder)
        mount = folder / "mount"
        mount.mkdir()
        on_message(f"making {file_system}")
        with serve(
            device,
            layers=layers,
            layer_settings=values["layer_settings"],
            second=values["second"],
            loop=True,
            mkfs=file_system,
            mkfs_options=[*MKFS.get(file_system, ()), *values["mkfs_options"]],
            overwrite=True,
            mount=None if guest is not None else mount,
            mount_options=mount_options,
            nbd=None if guest is None else "auto",
            clock="free",
            log=log,
        ) as disk:
            if _is_ordered(file_system, mount_options):
                disk.mark(ORDERED)
            ready(disk.path)
            # The last path of the disk is that of its NBD server.
            in_guest = (disk.paths[-1], file_system, mount_options, folder)
            with mounted_in_guest(guest, *in_guest) if guest is not None else nullcontext() as running:
                disk.mark(MOUNTED)
                on_message(f"running {' '.join(workload.command) or workload.name}")
                if running is None:
                    recorded = run_here(disk, arguments, mount, workload)
                else:
                    recorded = run_in_guest(running, disk, workload)
                if recorded.is_written_back:
                    disk.mark(WRITTEN_BACK)
                disk.end_log()
            notes = [*recorded.notes, *lies_without_effect(lie_of(disk.device), layers)]
    return replace(recorded, notes=tuple(notes))


def lies_without_effect(lie: str, layers: Sequence[str]) -> list[str]:
    """Return why a false promise of the device (`cache.lies`) has no effect in this setup; empty if it has one.

    >>> lies_without_effect("flush", []), lies_without_effect("fua", ["journal:ordered_fua"])
    ([], [])
    >>> len(lies_without_effect("trim", []))
    1
    """
    if layers or lie not in _WITHOUT_EFFECT:
        return []
    return [f"cache.lies = {lie} has no effect here; a run without losses proves nothing: {_WITHOUT_EFFECT[lie]}"]


def _is_ordered(file_system: str, mount_options: str | None) -> bool:
    modes = [option for option in (mount_options or "").split(",") if option.startswith("data=")]
    return file_system == "ext4" and modes in ([], [ORDERED])
