"""Programs of a live study: shell scripts that run on a file system of a served device, timed by its clock."""

import functools
import hashlib
import itertools
import json
import platform
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from emmclab.errors import InputError
from emmclab.live.device import LiveDevice
from emmclab.live.serve import MORE_PATH, require_loop, require_tools, serve
from emmclab.runtime.toml_table import TomlTable
from emmclab.simulation.device import Device
from emmclab.simulation.layers import Setting
from emmclab.studies.stored_types import FileSystemFields, ImageOptions, LiveSoftware

#: Tools that every live study needs on this machine in addition to those of its programs, with their Debian packages.
_TOOLS = {"sh": "dash", "setsid": "util-linux", "setpriv": "util-linux", "sync": "coreutils"}
#: Number of lines of a failed program's output that the error message quotes.
_SAID_LINES = 3


@dataclass(frozen=True)
class FileSystem:
    """The file system on a loop device: a script that creates it, mount options, and a limit of its dirty data."""

    format: str
    mount_options: str = ""
    #: Maximum dirty data of the file system in the page cache, MB; 0 = the default of the host.
    dirty_mb: int = 0


@dataclass(frozen=True)
class Program:
    """A script that is measured, and one that prepares it; both read the program's numbers as shell variables."""

    name: str
    about: str
    run: str
    prepare: str
    #: Tools that the scripts call, each with its Debian package.
    needs: Mapping[str, str]
    numbers: Mapping[str, int | str]
    file_system: FileSystem

    @property
    def digest(self) -> str:
        """The start (16 digits) of the SHA-256 of what determines the requests: scripts, numbers, kernel and tools."""
        decisive = {**asdict(self), "host": host_of(self)}
        del decisive["about"]
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """Return the program as JSON, which `Program.of` reads."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def of(text: str) -> "Program":
        """Create a program from JSON that `to_json` has returned."""
        fields = json.loads(text)
        return Program(**{**fields, "file_system": FileSystem(**fields["file_system"])})


class ServedOptions(ImageOptions, total=False):
    """The options of `emmclab.serve` that study cells use."""

    precondition: str
    layers: list[str]
    layer_settings: dict[str, Setting]
    second: str | None
    seed: int


def expanded(program: Program, axes: Mapping[str, tuple[int | str, ...]]) -> list[Program]:
    """Return a program for every combination of axis values, with the values in its name."""
    programs = []
    for values in itertools.product(*axes.values()):
        numbers = {**program.numbers, **dict(zip(axes, values, strict=True))}
        name = " ".join([program.name, *map(str, values)])
        programs.append(Program(**{**program.__dict__, "name": name, "numbers": numbers}))
    return programs


def read_programs(read: TomlTable) -> tuple[Program, ...]:
    """Read the programs of a live study, with the file system and the numbers that all of them use."""
    parts = read.tables("program")
    if not parts:
        return ()
    shared = read.inner("live")
    scale = shared.value("scale", (int, float), 1.0)
    if not 0 < scale <= 1:
        raise shared.fault("scale", f"{scale} is not a share of the numbers", "give a number above 0, at most 1")
    # Multiply the numbers of the programs, such as counts of operations, by `scale` to make the study smaller.
    numbers = {key: max(1, round(value * scale)) for key, value in shared.table("numbers", int).items()}
    file_system = FileSystem(
        format=shared.text("format"),
        mount_options=shared.text("mount_options", ""),
        dirty_mb=shared.value("dirty_mb", int, 0),
    )
    shared.reject_unknown()
    programs = []
    for part in parts:
        program = Program(
            name=part.text("name"),
            about=part.text("about", ""),
            run=part.text("run"),
            prepare=part.text("prepare", ""),
            needs=part.table("needs", str),
            numbers=numbers,
            file_system=file_system,
        )
        axes = {key: tuple(values) for key, values in part.table("each", list).items()}
        for key in (*numbers, *axes):
            if not key.isidentifier():
                raise part.fault("each", f"`{key}` is not a valid name of a variable", "use letters, digits and _")
        for values in axes.values():
            for value in values:
                if not (isinstance(value, int) or (isinstance(value, str) and value.isalnum())):
                    raise part.fault("each", f"`{value}` is not a number or a word", "use letters and digits")
        programs += expanded(program, axes)
        part.reject_unknown()
    names = [program.name for program in programs]
    for name in names:
        if names.count(name) > 1:
            raise read.fault("program", f"there are two programs `{name}`", "give them different names")
    return tuple(programs)


@functools.cache
def package_version(package: str) -> str:
    """Return the version of a Debian package; empty if it is not known."""
    words = ["dpkg-query", "--show", "--showformat=${Version}", package]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def host_of(program: Program) -> dict[str, str]:
    """Return the versions of the kernel and of the tools, which affect the requests of a program."""
    versions = {package: package_version(package) for package in program.needs.values()}
    return {"kernel": platform.release()} | versions


def require(programs: Iterable[Program]) -> None:
    """Reject a live study that this machine cannot run, before it starts.

    Raises:
        UnsupportedError: no root, FUSE or loop devices, or a tool is missing.
    """
    require_loop()
    needs = dict(_TOOLS)
    for program in programs:
        needs |= program.needs
    require_tools(needs)


def run_program(program: Program, device: Device, options: ServedOptions) -> dict[str, Any]:
    """Run a program on a served device with a free-running clock; return the result of its measured part.

    Before this part, the layers have written back their buffered data. After it, all data in the page cache is written
    back, and then the layers write back their buffered data again, which takes `run.drain_s`. `options` are those of
    `emmclab.serve`.

    Raises:
        InputError: a script failed.
    """
    with TemporaryDirectory(prefix="emmclab-") as folder:
        mount, log = Path(folder, "mount"), Path(folder, "log")
        limit = program.file_system.dirty_mb << 20 or None
        with serve(device, loop=True, clock="free", dirty_bytes=limit, **options) as disk:
            _script(disk, program, "format", program.file_system.format, log)
            disk.mount(mount, options=program.file_system.mount_options or None)
            _script(disk, program, "prepare", f"{program.prepare}\nsync", log)
            disk.drain()
            disk.clear_counters()
            _script(disk, program, "run", f"{program.run}\nsync --file-system {mount}", log)
            # Take the result before unmounting, because unmounting writes to the device, too.
            result = disk.drain().deterministic()
    software = LiveSoftware(host=host_of(program), file_system=cast("FileSystemFields", asdict(program.file_system)))
    return {**result, "live": software}


def _script(disk: LiveDevice, program: Program, part: str, text: str, log: Path) -> None:
    """Run a script in its own session; all of its processes end with it and with this process."""
    numbers = "".join(f"{name}={value}\n" for name, value in program.numbers.items())
    command = (
        f"exec >{log} 2>&1\nPATH=$PATH{MORE_PATH}\n"
        "trap 'trap \"\" TERM; kill 0' TERM\n"
        f"(\nset -eu\n{numbers}{text}\n) &\nwait $!\n"
    )
    status = disk.run(["setpriv", "--pdeathsig", "TERM", "setsid", "sh", "-c", command])
    if status == 0:
        return
    output = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    raise InputError(
        f"{program.name}: the script `{part}` ended with status {status}: {'; '.join(output[-_SAID_LINES:])}",
        kind="failed",
        hint="read the output of the script in this message; perhaps the file system is too small for the script",
    )
