"""Starts a guest in QEMU and sends it requests, for example to run a workload or to mount crash states."""

import contextlib
import json
import os
import platform
import re
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from emmclab.crash.guest import wire
from emmclab.crash.guest.kernel import Kernel, write_initramfs
from emmclab.crash.mounted_files import Node, UnreadableError
from emmclab.crash.mounting import NotMountedError, kind_of
from emmclab.crash.scratch_folders import in_memory, scratch
from emmclab.crash.tools import TOOLS_PATH
from emmclab.errors import EmmclabError, UnsupportedError

QEMU, _MEMORY_MB = "qemu-system-x86_64", 512
#: Timeout for a boot (on a busy machine without hardware virtualisation), and for a request to the guest, seconds.
_BOOT_S, _PATIENCE_S = 180.0, 120.0
#: Maximum number of attempts to boot.
_BOOTS = 3
#: Kernel parameters: end the guest at once if its kernel crashes, and keep its console short.
_COMMAND_LINE = (
    "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic nokaslr mitigations=off audit=0 selinux=0 "
    "apparmor=0 random.trust_cpu=on rcupdate.rcu_expedited=1"
)
#: Console lines with the reason of a kernel crash.
_CRASH = re.compile(r"(BUG: .*|kernel BUG at .*|Oops: .*|Kernel panic - .*)")
#: Processor flags for hardware virtualisation (KVM).
_VIRTUALISING = {"vmx", "svm"}


class GuestEndedError(Exception):
    """Raised if a guest ended or did not answer; the text is the reason."""


def require(kernel: str, file_system: str | None = None) -> None:
    """Reject a guest that cannot be started on this machine, before any work is done."""
    if platform.machine() != "x86_64":
        raise UnsupportedError(f"guest machines run only on x86-64, and this machine is {platform.machine()}")
    for tool, package in ((QEMU, "qemu-system-x86"), ("setpriv", "util-linux"), ("ldd", "libc-bin")):
        if shutil.which(tool, path=TOOLS_PATH["PATH"]) is None:
            raise UnsupportedError(f"a guest needs {tool}, which is not installed", hint=f"apt-get install {package}")
    kernel_files = Kernel.of(kernel)
    if file_system is not None:
        kernel_files.files_of(file_system)


def accelerator() -> str:
    """Return the QEMU accelerator: `kvm` if this machine supports it, else `tcg`, which is about ten times slower."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "tcg"
    flags = next((line for line in lines if line.startswith("flags")), "").split()
    return "kvm" if _VIRTUALISING & {*flags} and os.access("/dev/kvm", os.R_OK | os.W_OK) else "tcg"


def image(path: Path) -> dict[str, Any]:
    """Return QEMU's options for a disk in a file; flushes are ignored, because the file is temporary."""
    return {
        "driver": "raw",
        "file": {"driver": "file", "filename": str(path), "locking": "off"},
        "cache": {"no-flush": True},
        "discard": "ignore",
    }


def nbd(socket_path: str) -> dict[str, Any]:
    """Return QEMU's options for a disk that is served by NBD."""
    server = {"type": "unix", "path": socket_path}
    return {"driver": "raw", "file": {"driver": "nbd", "server": server}, "discard": "unmap"}


class Guest:
    """A running guest with one disk; a context manager that ends it. QEMU is killed when this process ends."""

    def __init__(self, kernel: Kernel, file_system: str, disk: Mapping[str, Any], folder: Path) -> None:
        """Set kernel, file system and disk of the guest, and a private folder for its files."""
        self._kernel, self.file_system, self._disk, self._folder = kernel, file_system, disk, folder
        self._end = ExitStack()
        self._pending = b""

    def __enter__(self) -> "Guest":
        # A failed boot is repeated, because the only reason may be a busy machine.
        for _ in range(_BOOTS):
            with ExitStack() as cleanup:
                problem = self._start(cleanup)
                if problem is None:
                    self._end = cleanup.pop_all()
                    return self
        raise EmmclabError(
            f"{self._kernel.file}: the guest did not start: {problem}", kind="failed", hint="try another kernel"
        )

    def __exit__(self, *_ended: object) -> None:
        self._end.close()

    def _start(self, cleanup: ExitStack) -> GuestEndedError | None:
        """Start the guest; `cleanup` will end it. Return the error if it did not start."""
        initial = self._folder / "initrd"
        write_initramfs(self._kernel, self.file_system, initial)
        pairs = {name: socket.socketpair() for name in (wire.CONTROL, wire.LINES)}
        for host_end, guest_end in pairs.values():
            cleanup.enter_context(host_end)
            cleanup.callback(guest_end.close)
        passed = {name: guest_end.fileno() for name, (_, guest_end) in pairs.items()}
        with (self._folder / "qemu").open("wb") as output:
            process = subprocess.Popen(
                self._command(initial, passed),
                env=os.environ | TOOLS_PATH,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=tuple(passed.values()),
                start_new_session=True,
            )
        cleanup.callback(_kill, process)
        for _, guest_end in pairs.values():
            guest_end.close()
        self._control, self.lines = pairs[wire.CONTROL][0], pairs[wire.LINES][0]
        self._pending = b""
        try:
            self._answer(_BOOT_S)
        except GuestEndedError as error:
            return error
        return None

    def _command(self, initial: Path, passed: Mapping[str, int]) -> list[str]:
        accel = accelerator()
        command = ["setpriv", "--pdeathsig", "KILL", QEMU, "-accel", accel, "-nodefaults", "-no-reboot"]
        command += ["-cpu", "host" if accel == "kvm" else "max", "-m", str(_MEMORY_MB), "-display", "none"]
        command += ["-kernel", str(self._kernel.file), "-initrd", str(initial), "-append", _COMMAND_LINE]
        command += ["-serial", f"file:{self._folder / 'console'}", "-device", "virtio-serial-pci"]
        for name, number in passed.items():
            command += ["-chardev", f"socket,id={name},fd={number}"]
            command += ["-device", f"virtserialport,chardev={name},name={name}"]
        command += ["-blockdev", json.dumps({"node-name": "disk", **self._disk})]
        return [*command, "-device", "virtio-blk-pci,drive=disk"]

    def ask(self, request: str, patience_s: float = _PATIENCE_S, **arguments: Any) -> wire.Answer:
        """Send a request and return the answer.

        Raises:
            GuestEndedError: the guest ended, or does not answer.
        """
        self.tell(request, **arguments)
        return self._answer(patience_s)

    def tell(self, request: str, **arguments: Any) -> None:
        """Send a request; `answered` returns the answer."""
        with contextlib.suppress(BrokenPipeError):  # The next read fails with the reason.
            wire.send(self._control.send, {request: arguments})

    def is_answered(self) -> bool:
        """Return whether an answer has arrived, or the guest has ended."""
        return bool(select.select([self._control], [], [], 0)[0])

    def answered(self) -> wire.Answer:
        """Return the guest's answer to the last request.

        Raises:
            GuestEndedError: the guest ended, or does not answer.
        """
        return self._answer(_PATIENCE_S)

    def _answer(self, patience_s: float) -> wire.Answer:
        end = time.monotonic() + patience_s
        while b"\n" not in self._pending:
            remaining = end - time.monotonic()
            if remaining <= 0 or not select.select([self._control], [], [], remaining)[0]:
                raise GuestEndedError(f"the guest did not answer within {patience_s:g} s")
            data = b""
            with contextlib.suppress(ConnectionResetError):
                data = self._control.recv(1 << 20)
            if not data:
                raise GuestEndedError(self._end_reason())
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        answer: wire.Answer = json.loads(line)
        return answer

    def _end_reason(self) -> str:
        """Return the reason why the guest ended, from the output of its console and of QEMU."""
        texts = []
        for name in ("console", "qemu"):
            with contextlib.suppress(OSError):
                texts.append((self._folder / name).read_text(encoding="utf-8", errors="replace"))
        crash = _CRASH.search("".join(texts))
        last_lines = [line for text in texts for line in text.strip().splitlines()[-1:]]
        return crash[0] if crash is not None else "; ".join(last_lines) or "it ended"

    def mount(self, options: str, read: set[int]) -> None:
        """Mount the disk until the guest ends; if this fails, add the 4 KiB blocks that the guest read to `read`."""
        answer = self.ask("mount", kind=self.file_system, options=options)
        if "refused" in answer:
            read |= {*answer["blocks"]}
            raise NotMountedError(answer["refused"])

    @contextmanager
    def mounted(self, read: set[int]) -> "Iterator[GuestFiles]":
        """Mount the disk for this context; add the numbers of the 4 KiB blocks that the guest read to `read`.

        Raises:
            NotMountedError: the guest's kernel refuses the mount; the text is its reason.
            GuestEndedError: the guest ended.
        """
        self.mount("", read)
        try:
            yield GuestFiles(self)
        finally:
            read |= {*self.ask("unmount")["blocks"]}


class GuestFiles:
    """Reads files of a disk that a guest has mounted."""

    def __init__(self, guest: Guest) -> None:
        """Set the guest in which the disk is mounted."""
        self._guest = guest

    def read(self, path: str) -> bytes | None:
        """Return the contents of a file; `None` if it does not exist.

        Raises:
            UnreadableError: the kernel cannot read it.
        """
        data = self._ask("read", path=path)["data"]
        return None if data is None else wire.unpacked(data)

    def tree(self, folder: str) -> dict[str, Node] | None:
        """Return all files and folders below a folder; `None` if it does not exist.

        Raises:
            UnreadableError: the kernel cannot read some of them.
        """
        nodes = self._ask("tree", folder=folder)["nodes"]
        return None if nodes is None else wire.nodes_unpacked(nodes)

    def _ask(self, request: str, **arguments: Any) -> wire.Answer:
        answer = self._guest.ask(request, **arguments)
        if "unreadable" in answer:
            raise UnreadableError(answer["unreadable"])
        return answer


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@contextmanager
def mounted_in_guest(kernel: str, uri: str, file_system: str, options: str | None, folder: Path) -> Iterator[Guest]:
    """Boot a guest with a disk from an NBD server, and mount the disk; at the end the guest is powered off.

    Args:
        kernel: the kernel file.
        uri: URI of the NBD server, `nbd+unix:///?socket=PATH`.
        file_system: file system of the disk.
        options: mount options.
        folder: private folder for files of the guest.
    """
    [socket] = parse_qs(urlsplit(uri).query)["socket"]
    with Guest(Kernel.of(kernel), file_system, nbd(socket), folder) as guest:
        try:
            guest.mount(options or "", set())
        except (NotMountedError, GuestEndedError) as error:
            raise EmmclabError(
                f"the guest does not mount {file_system}: {error}",
                kind="failed",
                hint="check --mount-options, or use another kernel for the guest",
            ) from None
        yield guest


class GuestMounts:
    """Mounts a disk image in a guest; the image may change between mounts. A context manager that ends the guest."""

    def __init__(self, kernel: str, disk: Path) -> None:
        """Set the paths of the kernel and the image; files of the guest are stored in the image's folder."""
        self.kernel, self.disk = kernel, disk
        self._guest: Guest | None = None
        self._end = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_ended: object) -> None:
        self._end.close()

    @contextmanager
    def mounted(self, read: set[int]) -> Iterator[GuestFiles]:
        """Mount the image; add the numbers of the blocks that were read to `read`."""
        kind = kind_of(self.disk)
        if not kind:
            raise NotMountedError("the guest finds no known file system on the disk")
        try:
            with self._running(kind).mounted(read) as files:
                yield files
        except GuestEndedError as error:
            self._stop()
            read.clear()
            raise NotMountedError(f"the kernel crashed: {error}") from error

    def _running(self, kind: str) -> Guest:
        if self._guest is not None and self._guest.file_system != kind:
            self._stop()
        if self._guest is None:
            guest = Guest(Kernel.of(self.kernel), kind, image(self.disk), self.disk.parent)
            self._guest = self._end.enter_context(guest)
        return self._guest

    def _stop(self) -> None:
        self._guest = None
        self._end.close()


@contextmanager
def guest_of(kernel: str | None, size: int) -> Iterator[GuestMounts | None]:
    """Provide a guest for disk images of `size` bytes, which boots on first use; `None` if no kernel is given."""
    if kernel is None:
        yield None
        return
    with scratch(in_memory(size)) as folder, GuestMounts(kernel, folder / "state.img") as guest:
        yield guest
