"""Compares the block requests by role of the host model with those of Linux, for applications and small programs.

Each application of journal_workloads.py runs once more under strace. Its file operations go to the
host model, and the counts of requests and sectors, by role, are compared with those of the bundled recording
of the same application on ext4. The programs of this file are recorded on a served device as they run.
Needs strace; the programs need root, FUSE and loop devices.

    python benches/host_against_linux.py [NAME...]
"""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyarrow import parquet

import emmclab

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts/data"))

from journal_workloads import WORKLOADS  # noqa: E402
from record_journal import _DEVICE, _DIRTY_BYTES, _MOUNT, _SIZE_GB, _join_commits, mkfs_command  # noqa: E402

_LARGE = [f"write 0 0 {8 << 20}"]


def _each(count: int, *operations: str) -> list[str]:
    """Repeat operations for each `{n}`; offsets: pages in order (`{b}`), random pages (`{r}`), small steps (`{s}`)."""
    places = [{"n": n, "b": 4096 * n, "r": 4096 * (n * 7919 % 2048), "s": 256 * n} for n in range(count)]
    return [operation.format(**place) for place in places for operation in operations]


#: Programs that are recorded as they run: initial content of the device, and operations.
_PROGRAMS = {
    "append-fdatasync": (["write 0 0 0"], _each(200, "write 0 {s} 256", "fdatasync 0")),
    "overwrite-fsync": (_LARGE, _each(200, "write 0 {r} 4096", "wait 10", "fsync 0")),
    "overwrite-buffered": (_LARGE, [*_each(1_000, "write 0 {r} 4096"), "fsync 0"]),
    "copy-buffered": ([], [*_each(8, "create {n}", f"write {{n}} 0 {4 << 20}", "close {n}"), "sync"]),
    "read-in-order": (_LARGE, _each(2_048, "read 0 {b} 4096")),
    "read-at-random": (_LARGE, _each(300, "read 0 {r} 4096")),
    "replace-by-rename": ([], _each(100, "create 0", "write 0 0 6000", "fsync 0", "close 0", "rename 0 1", "folder 0")),
    "create-unlink-sync": (
        [],
        [*_each(60, "create {n}", "write {n} 0 20000", "close {n}"), "sync", *_each(60, "unlink {n}"), "sync"],
    ),
}

_CALLS = (
    "openat,creat,read,pread64,write,pwrite64,fsync,fdatasync,ftruncate,unlink,unlinkat,rename,renameat,"
    "renameat2,close,lseek,syncfs,fallocate,dup,mkdir"
)
_LINE = re.compile(r"^(\d+) +(\w+)\((.*)\) += (-?\d+)")


class Recording:
    """Converts the system calls of a process to file operations of the model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, int] = {}
        self.folders: dict[str, int] = {"": 0}
        self.open: dict[int, tuple[str, int]] = {}
        self.lines: list[str] = []
        self.exists: set[str] = set()

    def inside(self, path: str) -> str | None:
        """Return the path below the folder; None if it is elsewhere."""
        full = Path(path)
        return str(full.relative_to(self.folder)) if full.is_relative_to(self.folder) else None

    def file(self, name: str) -> int:
        """Return the number of a file, which is declared if it is new."""
        if name not in self.files:
            parent = str(Path(name).parent) if "/" in name else ""
            self.folders.setdefault(parent, len(self.folders))
            self.files[name] = len(self.files)
            self.lines.insert(0, f"file {self.files[name]} {self.folders[parent]}")
        return self.files[name]

    def call(self, name: str, text: str, result: int) -> None:
        """Add the operations of a system call."""
        arguments = [argument.strip() for argument in text.split(",")]
        strings = re.findall(r'"((?:[^"\\]|\\.)*)"', text)
        if result < 0:
            return
        if name in {"openat", "creat"}:
            path = self.inside(strings[0])
            if path is None:
                self.open.pop(result, None)
                return
            if "O_DIRECTORY" in text or (self.folder / path).is_dir() or path in self.folders:
                self.open[result] = ("/" + path, 0)
                self.folders.setdefault(path, len(self.folders))
                return
            number = self.file(path)
            self.lines.append(f"{'create' if 'O_CREAT' in text else 'open'} {number}")
            if "O_TRUNC" in text and path in self.exists:
                self.lines.append(f"truncate {number} 0")
            self.exists.add(path)
            self.open[result] = (path, 0)
        elif name in {"unlink", "unlinkat"}:
            path = self.inside(strings[0])
            if path is not None:
                self.lines.append(f"unlink {self.file(path)}")
                self.exists.discard(path)
        elif name.startswith("rename"):
            old, new = self.inside(strings[0]), self.inside(strings[1])
            if old is not None and new is not None and old in self.files:
                self.lines.append(f"rename {self.file(old)} {self.file(new)}")
                self.exists.discard(old)
                self.exists.add(new)
        else:
            self.on_open_file(name, arguments, result)

    def on_open_file(self, name: str, arguments: list[str], result: int) -> None:
        """Add the operations of a system call on an open file."""
        descriptor = int(arguments[0]) if arguments[0].isdigit() else -1
        if name == "syncfs":
            self.lines.append("sync")
        if descriptor not in self.open:
            return
        path, offset = self.open[descriptor]
        if path.startswith("/"):
            if name in {"fsync", "fdatasync"}:
                self.lines.append(f"folder {self.folders[path[1:]]}")
            if name == "close":
                del self.open[descriptor]
            return
        number = self.files[path]
        if name in {"read", "write"}:
            if result:
                self.lines.append(f"{name} {number} {offset} {result}")
            self.open[descriptor] = (path, offset + result)
        elif name in {"pread64", "pwrite64"}:
            if result:
                self.lines.append(f"{name.rstrip('64')[1:]} {number} {arguments[-1]} {result}")
        elif name == "lseek":
            self.open[descriptor] = (path, result)
        elif name in {"fsync", "fdatasync"}:
            self.lines.append(f"{name} {number}")
        elif name == "ftruncate":
            self.lines.append(f"truncate {number} {arguments[1]}")
        elif name == "close":
            self.lines.append(f"close {number}")
            del self.open[descriptor]


def operations(name: str, work: Path) -> list[str]:
    """Return the file operations of an application; preparation comes before the mark."""
    folder = work / "files"
    folder.mkdir()
    recording = Recording(folder)
    for step in ("prepare", "run"):
        log = work / f"{step}.strace"
        program = [sys.executable, str(ROOT / "scripts/data/journal_workloads.py"), step, name, str(folder)]
        subprocess.run(["strace", "-f", "-s", "200", "-o", log, "-e", f"trace={_CALLS}", *program], check=True)
        calls = [_LINE.match(line) for line in log.read_text(errors="replace").splitlines()]
        process = next(call[1] for call in calls if call)
        for call in calls:
            # File descriptors belong to the application; only the syncs of its children are used.
            if call and (call[1] == process or call[2] == "syncfs"):
                recording.call(call[2], call[3], int(call[4]))
        if step == "prepare":
            recording.lines += ["sync", "wait 60000", "mark"]
    return recording.lines


def perform(lines: list[str], folder: Path) -> None:
    """Execute the operations of a program on a file system."""
    opened: dict[int, int] = {}
    for line in lines:
        word, *numbers = line.split()
        first, *rest = [int(number) for number in numbers] or [0]
        path = folder / f"file-{first:04}"
        if word == "create":
            opened[first] = os.open(path, os.O_RDWR | os.O_CREAT)
        elif word == "write":
            os.pwrite(opened[first], bytes([rest[0] // 4096 % 251]) * rest[1], rest[0])
        elif word == "read":
            os.pread(opened[first], rest[1], rest[0])
        elif word in {"fsync", "fdatasync"}:
            getattr(os, word)(opened[first])
        elif word == "close":
            os.close(opened.pop(first))
        elif word == "unlink":
            path.unlink()
        elif word == "rename":
            path.rename(folder / f"file-{rest[0]:04}")
        elif word == "wait":
            time.sleep(first / 1000)
        elif word == "sync":
            subprocess.run(["sync", "--file-system", folder], check=True)
        elif word == "folder":
            descriptor = os.open(folder, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
    for descriptor in opened.values():
        os.close(descriptor)


def live(name: str) -> dict[str, tuple[int, int]]:
    """Return requests and sectors by role that Linux sends for a program, on a file system of its own."""
    before, after = _PROGRAMS[name]
    created = ["create 0"] if before else []
    with TemporaryDirectory() as work:
        record, mount = Path(work) / "all.parquet", Path(work) / "mount"
        options = {"clock": "free", "record": record, "dirty_bytes": _DIRTY_BYTES}
        with emmclab.serve(_DEVICE, loop=True, **options) as disk:
            disk.run(["sh", "-c", mkfs_command()])
            disk.mount(mount, options=_MOUNT)
            perform([*created, *before], mount)
            disk.unmount()
            disk.mount(mount, options=_MOUNT)
            start = disk.result().requests.total
            perform([*created, *after, "sync"], mount)
            end = disk.result().requests.total
            disk.unmount()
        # A loop device has no FUA: flush, commit block and flush replace one write with preflush and FUA.
        requested, _ = _join_commits(parquet.read_table(record).to_pylist()[start:end])
        return counts(requested)


def _readahead_kb() -> int:
    """Return the read-ahead window of a loop device on this kernel, in KB."""
    return int(next(Path("/sys/block").glob("loop*/queue/read_ahead_kb")).read_text())


def modelled(lines: list[str], *options: str) -> dict[str, tuple[int, int]]:
    """Return requests and sectors by role that the model sends."""
    command = ["cargo", "run", "--release", "-q", "-p", "emmclab-host", "--example", "host_files", "--"]
    command += [str(_SIZE_GB << 21), *options]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    rows = (line.split() for line in done.stdout.splitlines())
    return {role: (int(requests), int(sectors)) for role, requests, sectors in rows}


def recorded(name: str) -> dict[str, tuple[int, int]]:
    """Return requests and sectors by role in a recording, from the first data write to the last commit."""
    rows = parquet.read_table(ROOT / f"python/emmclab/data/annotated/{name}.parquet").to_pylist()
    first = next(at for at, row in enumerate(rows) if row["role"] and "data" in row["role"])
    last = max(at for at, row in enumerate(rows) if row["role"] and "commit" in row["role"])
    return counts(rows[first : last + 1])


def counts(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """Count requests and sectors by role."""
    requests: Counter[str] = Counter()
    sectors: Counter[str] = Counter()
    for row in rows:
        roles = row["role"] or [row["op"]]
        lengths = row["role_sectors"] if row["role"] else [row["sectors"]]
        for role in set(roles):
            requests[role] += 1
        for role, length in zip(roles, lengths, strict=True):
            sectors[role] += length
        if row["op"] == "write":
            requests["writes"] += 1
            sectors["writes"] += row["sectors"]
    return {role: (requests[role], sectors[role]) for role in requests}


def compared(name: str) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]]:
    """Return requests and sectors by role, of Linux and of the model."""
    if name not in _PROGRAMS:
        with TemporaryDirectory() as work:
            return recorded(name), modelled(operations(name, Path(work)))
    before, after = _PROGRAMS[name]
    lines = [f"file {number} 0" for number in range(100)]
    # Data written before is on the device, and not in memory.
    lines += [f"preload {line.split()[1]} {line.split()[3]}" for line in before]
    lines += ["mark", *(["create 0"] if before else []), *after, "sync"]
    return live(name), modelled(lines, str(_readahead_kb()))


def main() -> None:
    """Print the table."""
    print(f"{'program':18} {'role':20} {'requests':>9} {'model':>7} {'KB':>8} {'model':>8}  deviation %")
    for name in sys.argv[1:] or [*WORKLOADS, *_PROGRAMS]:
        theirs, ours = compared(name)
        for role in sorted(ours | theirs):
            (a, b), (c, d) = theirs.get(role, (0, 0)), ours.get(role, (0, 0))
            off = f"{100 * (c / a - 1):+.1f} {100 * (d / b - 1) if b else 0:+.1f}" if a else "none recorded"
            print(f"{name:18} {role:20} {a:9} {c:7} {b / 2:8.0f} {d / 2:8.0f}  {off}")


if __name__ == "__main__":
    main()
