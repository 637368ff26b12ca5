"""Builds the initial RAM disk of a guest: this machine's Python with the agent's imports, and modules."""

import functools
import json
import os
import py_compile
import re
import stat
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from emmclab.crash.guest import wire
from emmclab.crash.guest.kernel import Kernel, contents
from emmclab.crash.tools import run_tool
from emmclab.errors import UnsupportedError

_AGENT = "emmclab.crash.guest.agent"
#: Imports the agent as in the guest, and prints the files that were loaded.
_ASK = f"""import encodings.ascii, encodings.latin_1, encodings.utf_8, encodings.idna, {_AGENT}
for name, module in sorted(sys.modules.items()):
    if getattr(module, "__file__", None):
        print(module.__file__)
"""
#: Packages of emmclab that are empty in the guest, so that they import no other module.
_STUBS = """import sys, types, os
for name in ("emmclab", "emmclab.crash", "emmclab.crash.guest"):
    package = types.ModuleType(name)
    package.__path__ = [os.path.join(sys.argv[1], *name.split("."))]
    sys.modules[name] = package
"""
#: The init program: starts Python without user settings, with the agent.
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
    """Return path, contents and mode of all files that Python needs to run the agent.

    Raises:
        UnsupportedError: this Python cannot be copied into a guest.
    """
    interpreter = os.path.realpath(sys.executable)
    ours = Path(wire.__file__).parents[2]
    done = run_tool([interpreter, "-IS", "-c", _STUBS + _ASK, str(ours.parent)], _PATIENCE_S)
    if done.returncode != 0:
        raise UnsupportedError(
            f"the Python of this machine ({interpreter}) cannot run in a guest: {_last(done.stderr)}",
            hint="use a Python with its standard library, as Debian's python3",
        )
    files = [Path(line) for line in done.stdout.splitlines()]
    found = [(interpreter, Path(interpreter).read_bytes(), 0o755)]
    objects = [Path(interpreter)]
    for file in files:
        name = str(file)
        if file.is_relative_to(ours):
            name = f"{_PACKAGE}/emmclab/{file.relative_to(ours)}"
        if file.suffix == ".py":
            found.append((f"{name}c", _compiled(file), 0o644))
        else:
            found.append((name, file.read_bytes(), 0o755))
            objects.append(file)
    for library in _libraries(objects):
        found.append((library, Path(library).read_bytes(), 0o755))
    return tuple(found)


def _compiled(file: Path) -> bytes:
    """Return the compiled form of a module, which works without its source."""
    with tempfile.NamedTemporaryFile(suffix=".pyc") as made:
        py_compile.compile(
            str(file),
            made.name,
            doraise=True,
            optimize=0,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        return Path(made.name).read_bytes()


def _libraries(objects: Iterable[Path]) -> list[str]:
    """Return the paths of the shared libraries that these files need, including the loader."""
    done = run_tool(["ldd", *map(str, objects)], _PATIENCE_S)
    return sorted(set(_LIBRARY.findall(done.stdout)))


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it ended"


def write(kernel: Kernel, file_system: str, path: Path) -> None:
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
    """Pack files with their folders (cpio, format newc; Linux, driver-api/early-userspace/buffer-format)."""
    packed, folders = bytearray(), {""}
    for name, data, mode in dict.fromkeys(files):
        inside = name.strip("/").split("/")
        for depth in range(1, len(inside)):
            folder = "/".join(inside[:depth])
            if folder not in folders:
                folders.add(folder)
                packed += _entry(folder, b"", stat.S_IFDIR | 0o755)
        packed += _entry("/".join(inside), data, stat.S_IFREG | mode)
    # The kernel opens the console for the init program before devices are created.
    for folder in sorted({"dev", "tmp", "proc", "sys", "mnt"} - folders):
        packed += _entry(folder, b"", stat.S_IFDIR | 0o755)
    packed += _entry("dev/console", b"", stat.S_IFCHR | 0o600, device=(5, 1))
    packed += _entry("TRAILER!!!", b"", 0)
    return bytes(packed)


def _entry(name: str, data: bytes, mode: int, device: tuple[int, int] = (0, 0)) -> bytes:
    numbers = [0, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0]
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + name.encode() + b"\0"
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)
