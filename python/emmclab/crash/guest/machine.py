"""Starts a guest in QEMU with the kernel of a distribution, and sends it requests, such as to mount crash states."""

from __future__ import annotations

import contextlib
import functools
import json
import lzma
import os
import platform
import py_compile
import re
import select
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from emmclab.crash.guest import wire
from emmclab.crash.mounted_files import Node, UnreadableError
from emmclab.crash.mounting import NotMountedError, kind_of
from emmclab.crash.scratch_folders import in_memory, scratch
from emmclab.crash.tools import TOOLS_PATH, run_tool
from emmclab.errors import ConfigError, EmmclabError, InputError, UnsupportedError

#: Header of an x86 kernel (Documentation/arch/x86/boot.rst): magic word, and pointer to the version, with offsets.
_MAGIC_AT, _MAGIC, _VERSION_AT, _SETUP = 0x202, b"HdrS", 0x20E, 0x200
#: Kernel modules that every guest needs for its disk and for the channels to the host.
_ALWAYS = ("virtio_pci", "virtio_blk", "virtio_console")
#: Kernel modules of file systems that need more than one; those that are requested by name at run time come first.
_OF_FILE_SYSTEM = {"vfat": ("nls_cp437", "nls_ascii", "nls_iso8859_1", "nls_utf8", "vfat")}
#: Folders of modules that file systems request by the name of an algorithm.
_ALGORITHMS = ("kernel/crypto", "kernel/lib")
#: How to get a kernel without installing it.
_GET = (
    "for example: apt-get download linux-image-VERSION-amd64; dpkg-deb -x linux-image-*.deb kernel; "
    "then --guest kernel/boot/vmlinuz-VERSION-amd64"
)


@dataclass(frozen=True)
class Kernel:
    """A kernel file and the folder with its modules."""

    file: Path
    version: str
    modules: Path

    @classmethod
    def of(cls, path: str) -> Kernel:
        """Find the modules of a kernel image: in the folder of its package, else in `/lib/modules`."""
        file = Path(path)
        version = _version(file)
        top = file.absolute().parent.parent
        folders = [top / "lib/modules" / version, top / "usr/lib/modules" / version]
        folders.append(Path("/lib/modules") / version)
        modules = next((folder for folder in folders if (folder / "kernel").is_dir()), None)
        if modules is None:
            raise _wrong(
                f"{path}: the modules of this kernel ({version}) are in none of these folders: "
                f"{', '.join(map(str, dict.fromkeys(folders)))}",
                f"keep kernel and modules in the folders of their package, {_GET}",
            )
        return cls(file, version, modules)

    def files_of(self, file_system: str) -> list[Path]:
        """Return the modules that a guest with this file system loads, each after its dependencies."""
        by_name = {_plain(path.name): path for path in sorted(self.modules.rglob("*.ko*"))}
        built_in = {_plain(Path(line).name) for line in self._lines("modules.builtin")}
        files: dict[Path, None] = {}
        for name in (*_ALWAYS, *_OF_FILE_SYSTEM.get(file_system, (file_system,))):
            if name not in by_name and name not in built_in and name in (*_ALWAYS, file_system):
                raise _wrong(
                    f"{self.file}: this kernel ({self.version}) has no module {name}",
                    "use a kernel that has it, such as Debian's linux-image-amd64; the cloud kernels lack some",
                )
            files |= dict.fromkeys(self._with_dependencies(name, by_name))
        return list(files)

    def _with_dependencies(self, name: str, by_name: dict[str, Path]) -> Iterator[Path]:
        path = by_name.get(name)
        if path is None:
            return
        info = _module_info(contents(path))
        for softdep in info.get("softdep", ()):
            for module in softdep.partition("pre:")[2].partition("post:")[0].split():
                plain = module.replace("-", "_")
                dependency = plain if plain in by_name else self._algorithm(module)
                yield from self._with_dependencies(dependency, by_name)
        for needed in ",".join(info.get("depends", ())).split(","):
            yield from self._with_dependencies(needed.replace("-", "_"), by_name)
        yield path

    def _algorithm(self, name: str) -> str:
        """Return the name of a kernel module that provides a crypto or checksum algorithm; `""` if there is none."""
        for folder in _ALGORITHMS:
            for path in sorted((self.modules / folder).rglob("*.ko*")):
                if {name, f"crypto-{name}"} & {*_module_info(contents(path)).get("alias", ())}:
                    return _plain(path.name)
        return ""

    def _lines(self, name: str) -> list[str]:
        path = self.modules / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def contents(path: Path) -> bytes:
    """Return the decompressed contents of a kernel module."""
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".zst":
        if shutil.which("zstd") is None:
            raise _wrong(f"{path}: there is no program that unpacks it", "install the Debian package zstd")
        return subprocess.run(["zstd", "-dcq"], input=data, capture_output=True, check=True).stdout
    return data


def _module_info(module: bytes) -> dict[str, list[str]]:
    """Return the metadata of a kernel module (section .modinfo): lists of values by key."""
    info: dict[str, list[str]] = {}
    for key in ("depends", "softdep", "alias"):
        for value in _values(module, b"\0" + key.encode() + b"="):
            info.setdefault(key, []).append(value)
    return info


def _values(data: bytes, begin: bytes) -> Iterable[str]:
    position = data.find(begin)
    while position >= 0:
        end = data.index(b"\0", position + len(begin))
        yield data[position + len(begin) : end].decode(errors="replace")
        position = data.find(begin, end)


def _plain(name: str) -> str:
    return name.partition(".ko")[0].replace("-", "_")


def _version(file: Path) -> str:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError.of(error, file, hint=f"give the file of a kernel, {_GET}") from error
    position = int.from_bytes(data[_VERSION_AT : _VERSION_AT + 2], "little") + _SETUP
    words = data[position : position + 256].partition(b"\0")[0].decode(errors="replace").split()
    if data[_MAGIC_AT : _MAGIC_AT + 4] != _MAGIC or not words:
        raise _wrong(f"{file}: not a kernel for x86-64 (bzImage)", f"give a file vmlinuz, {_GET}")
    return words[0]


def _wrong(problem: str, hint: str) -> ConfigError:
    return ConfigError(problem, field="guest", hint=hint)


_AGENT = "emmclab.crash.guest.agent"
#: Python code that imports the agent as the guest does, and prints the files of all loaded modules.
_ASK = f"""import encodings.ascii, encodings.latin_1, encodings.utf_8, encodings.idna, {_AGENT}
for name, module in sorted(sys.modules.items()):
    if getattr(module, "__file__", None):
        print(module.__file__)
"""
#: Python code that replaces emmclab's packages by empty ones, as in the guest, so that they import no other module.
_STUBS = """import sys, types, os
for name in ("emmclab", "emmclab.crash", "emmclab.crash.guest"):
    package = types.ModuleType(name)
    package.__path__ = [os.path.join(sys.argv[1], *name.split("."))]
    sys.modules[name] = package
"""
#: Init program of the guest: starts Python without user settings and runs the agent.
_INIT = """#!{python} -IS
import sys
sys.path.insert(0, "/lib/guest")
from {agent} import main
main()
"""
#: Folder of emmclab's modules in the guest.
_PACKAGE = "/lib/guest"
_TOOL_S = 60.0
_LIBRARY = re.compile(r"(/\S+) \(0x")


@functools.cache
def _python() -> tuple[tuple[str, bytes, int], ...]:
    """Return path, contents and mode of all files that Python needs to run the agent."""
    interpreter = os.path.realpath(sys.executable)
    package = Path(wire.__file__).parents[2]
    process = run_tool([interpreter, "-IS", "-c", _STUBS + _ASK, str(package.parent)], _TOOL_S)
    if process.returncode != 0:
        raise UnsupportedError(
            f"the Python of this machine ({interpreter}) cannot run in a guest machine: {_last_line(process.stderr)}",
            hint="use a Python with its standard library, such as Debian's python3",
        )
    files = [Path(line) for line in process.stdout.splitlines()]
    contents_of_files = [(interpreter, Path(interpreter).read_bytes(), 0o755)]
    objects = [Path(interpreter)]
    for file in files:
        name = str(file)
        if file.is_relative_to(package):
            name = f"{_PACKAGE}/emmclab/{file.relative_to(package)}"
        if file.suffix == ".py":
            contents_of_files.append((f"{name}c", _compiled(file), 0o644))
        else:
            contents_of_files.append((name, file.read_bytes(), 0o755))
            objects.append(file)
    for library in _libraries(objects):
        contents_of_files.append((library, Path(library).read_bytes(), 0o755))
    return tuple(contents_of_files)


def _compiled(file: Path) -> bytes:
    """Return the bytecode of a Python module, which works without its source."""
    with tempfile.NamedTemporaryFile(suffix=".pyc") as compiled:
        py_compile.compile(
            str(file),
            compiled.name,
            doraise=True,
            optimize=0,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        return Path(compiled.name).read_bytes()


def _libraries(objects: Iterable[Path]) -> list[str]:
    """Return the paths of the shared libraries that these files need, including the loader."""
    process = run_tool(["ldd", *map(str, objects)], _TOOL_S)
    return sorted(set(_LIBRARY.findall(process.stdout)))


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it ended"


def write_initramfs(kernel: Kernel, file_system: str, path: Path) -> None:
    """Write the initial RAM disk for a guest with this kernel and file system.

    Raises:
        ConfigError: the kernel does not have the file system.
        UnsupportedError: this Python cannot be copied into a guest.
    """
    files = list(_python())
    names = []
    for module in kernel.files_of(file_system):
        name = f"/modules/{module.name.partition('.ko')[0]}.ko"
        names.append(name)
        files.append((name, contents(module), 0o644))
    init = _INIT.format(python=os.path.realpath(sys.executable), agent=_AGENT)
    files.append(("/init", init.encode(), 0o755))
    files.append((wire.ORDERS, json.dumps({"modules": names}).encode(), 0o644))
    for package in ("emmclab", "emmclab/crash", "emmclab/crash/guest"):
        files.append((f"{_PACKAGE}/{package}/__init__.py", b"", 0o644))
    path.write_bytes(_archive(files))


def _archive(files: Iterable[tuple[str, bytes, int]]) -> bytes:
    """Pack files and their folders into a cpio archive (newc; Linux, driver-api/early-userspace/buffer-format)."""
    packed, folders = bytearray(), {""}
    for name, data, mode in dict.fromkeys(files):
        inside = name.strip("/").split("/")
        for depth in range(1, len(inside)):
            folder = "/".join(inside[:depth])
            if folder not in folders:
                folders.add(folder)
                packed += _entry(folder, b"", stat.S_IFDIR | 0o755)
        packed += _entry("/".join(inside), data, stat.S_IFREG | mode)
    # The kernel opens /dev/console for the init program before it creates devices, so the archive contains this device.
    for folder in sorted({"dev", "tmp", "proc", "sys", "mnt"} - folders):
        packed += _entry(folder, b"", stat.S_IFDIR | 0o755)
    packed += _entry("dev/console", b"", stat.S_IFCHR | 0o600, device=(5, 1))
    packed += _entry("TRAILER!!!", b"", 0)
    return bytes(packed)


def _entry(name: str, data: bytes, mode: int, device: tuple[int, int] = (0, 0)) -> bytes:
    numbers = [0, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0]
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + name.encode() + b"\0"
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


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

    def __enter__(self) -> Guest:
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
    def mounted(self, read: set[int]) -> Iterator[GuestFiles]:
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

    def usable(self, folder: str) -> str:
        """Return why files cannot be made, written and removed below a folder, or it be removed; empty if they can."""
        return self._ask("use", folder=folder)["unusable"]

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
