"""The only process of a guest: mounts its disk, reads files, and runs workloads, as the host requests.

Runs as `/init` of an initial RAM disk, with the modules of this package that need only the standard library. Each
request is a line of JSON with one key, the kind of request; each answer is a line of JSON. The guest ends when the
host's process ends.
"""

import ctypes
import json
import os
import platform
import signal
import time
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from emmclab.crash import programs, workloads
from emmclab.crash.guest import wire
from emmclab.crash.kernel_log import BlockReads, KernelLog
from emmclab.crash.mounted_files import Mounted, UnreadableError
from emmclab.crash.programs import LIBC, checked
from emmclab.crash.workloads import Thinking, sync_file_system

#: Disk device in the guest, and its mount point.
_DISK, _FOLDER = "/dev/vda", Path("/mnt")
#: Number of the system call that loads a module (x86-64), and reboot() command for a restart, which ends QEMU.
_FINIT_MODULE, _RESTART = 313, 0x01234567
#: Mount options that the kernel expects as flags (linux/mount.h); all others are passed to the file system.
_FLAGS = {
    **{"ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8, "sync": 16, "dirsync": 128, "noatime": 1024},
    **{"nodiratime": 2048, "relatime": 1 << 21, "strictatime": 1 << 24, "lazytime": 1 << 25},
}
#: Mount options that are defaults, and need no flag.
_ANYWAY = ("rw", "defaults")
#: Flag of umount2(): lazy unmount, even if files are open.
_DETACH = 2


def _mount(source: str, target: Path, kind: str, options: str = "") -> None:
    words = [word for word in options.split(",") if word and word not in _ANYWAY]
    flags = sum(_FLAGS.get(word, 0) for word in words)
    data = ",".join(word for word in words if word not in _FLAGS)
    target.mkdir(exist_ok=True)
    arguments = source.encode(), str(target).encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()
    checked(LIBC.mount(*arguments))


def _load(module: str) -> None:
    """Load a kernel module; ignore it if it is already loaded or this processor does not support it."""
    file = os.open(module, os.O_RDONLY)
    try:
        LIBC.syscall(_FINIT_MODULE, file, b"", 0)
    finally:
        os.close(file)


def _channels() -> dict[str, int]:
    """Open the virtio ports to the host; return their file descriptors by name."""
    channels: dict[str, int] = {}
    while len(channels) < len((wire.CONTROL, wire.LINES)):
        for port in Path("/sys/class/virtio-ports").glob("*"):
            name = (port / "name").read_text().strip() if (port / "name").exists() else ""
            if name and name not in channels and Path("/dev", port.name).exists():
                channels[name] = os.open(f"/dev/{port.name}", os.O_RDWR)
        time.sleep(0.01)
    return channels


class Agent:
    """Handles the requests of the host."""

    def __init__(self, control: int, lines: int) -> None:
        """Set the file descriptors of the channels to the host: requests and answers, and lines of the workload."""
        self._control, self._lines = control, lines
        self._files = Mounted(_FOLDER)
        self._reads = BlockReads(Path("/tmp"))  # noqa: S108 - the guest has no other users.
        self._watch = ExitStack()
        self._read: set[int] = set()

    def serve(self) -> None:
        """Handle requests until the host closes the channel."""
        with self._reads:
            wire.send(self._write, {"kernel": platform.release()})
            pending = b""
            while data := os.read(self._control, 1 << 16):
                *lines, pending = (pending + data).split(b"\n")
                for line in lines:
                    [(kind, arguments)] = json.loads(line).items()
                    wire.send(self._write, getattr(self, f"_do_{kind}")(**arguments))

    def _write(self, data: bytes) -> int:
        return os.write(self._control, data)

    def _do_mount(self, kind: str, options: str) -> wire.Answer:
        complaints = KernelLog()
        self._read = set()
        self._watch.enter_context(self._reads.watching(self._read))(_DISK)
        try:
            _mount(_DISK, _FOLDER, kind, options)
        except OSError as error:
            self._watch.close()
            return {
                "refused": complaints.about(Path(_DISK).name) or error.strerror or str(error),
                "blocks": sorted(self._read),
            }
        return {}

    def _do_unmount(self) -> wire.Answer:
        if LIBC.umount2(str(_FOLDER).encode(), 0) != 0:
            LIBC.umount2(str(_FOLDER).encode(), _DETACH)
        self._watch.close()
        return {"blocks": sorted(self._read)}

    def _do_read(self, path: str) -> wire.Answer:
        try:
            data = self._files.read(path)
        except UnreadableError as error:
            return {"unreadable": str(error)}
        return {"data": None if data is None else wire.packed(data)}

    def _do_tree(self, folder: str) -> wire.Answer:
        try:
            nodes = self._files.tree(folder)
        except UnreadableError as error:
            return {"unreadable": str(error)}
        return {"nodes": None if nodes is None else wire.nodes_packed(nodes)}

    def _do_use(self, folder: str) -> wire.Answer:
        return {"unusable": self._files.usable(folder)}

    def _do_run(self, name: str, arguments: list[Any], text: str | None, thinks: int) -> wire.Answer:
        """Run a workload in the mounted folder; its output lines are sent to the host on a separate channel."""
        process = os.fork()
        if process == 0:
            self._work(name, arguments, text)
        thinking = Thinking(process, _FOLDER, thinks)
        with thinking:
            _, status = os.waitpid(process, 0)
        sync_file_system(_FOLDER)
        return {"status": os.waitstatus_to_exitcode(status), "pauses": thinking.pauses}

    def _work(self, name: str, arguments: list[Any], text: str | None) -> None:
        status = 1
        try:
            os.setsid()
            os.dup2(self._lines, 0)
            os.dup2(self._lines, 1)
            if text is not None:
                Path("/workload.prog").write_text(text, encoding="utf-8")
            os.chdir(_FOLDER)
            if text is None:
                workloads.main(name, *arguments)
            else:
                programs.main("/workload.prog")
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)


def main() -> None:
    """Prepare the guest and handle requests; does not return."""
    try:
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        for kind, folder in (("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")):
            _mount(kind, Path(folder), kind)
        _FOLDER.mkdir(exist_ok=True)
        for module in json.loads(Path(wire.ORDERS).read_text())["modules"]:
            _load(module)
        # If the guest's kernel lacks tracing, the guest does not report which blocks were read.
        if Path("/sys/kernel/tracing").is_dir():
            _mount("tracefs", Path("/sys/kernel/tracing"), "tracefs")
        channels = _channels()
        Agent(channels[wire.CONTROL], channels[wire.LINES]).serve()
    except BaseException:
        traceback.print_exc()
    finally:
        LIBC.reboot(_RESTART)
