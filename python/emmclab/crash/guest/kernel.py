"""Finds the kernel and modules of a Linux distribution, and builds the RAM disk that starts a guest's agent."""

from __future__ import annotations

import functools
import json
import lzma
import os
import py_compile
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from emmclab.crash.guest import wire
from emmclab.crash.tools import run_tool
from emmclab.errors import ConfigError, InputError, UnsupportedError

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
_PATIENCE_S = 60.0
_LIBRARY = re.compile(r"(/\S+) \(0x")


@functools.cache
def _python() -> tuple[tuple[str, bytes, int], ...]:
    """Return path, contents and mode of all files that Python needs to run the agent."""
    interpreter = os.path.realpath(sys.executable)
    package = Path(wire.__file__).parents[2]
    process = run_tool([interpreter, "-IS", "-c", _STUBS + _ASK, str(package.parent)], _PATIENCE_S)
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
    process = run_tool(["ldd", *map(str, objects)], _PATIENCE_S)
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
