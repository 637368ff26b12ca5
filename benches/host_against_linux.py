"""The host model against Linux: block requests of the recorded applications, by role.

Each application of scripts/journal_workloads.py runs once more under strace; its file operations go to the host model, and the counts
of requests and sectors, by role, are compared with those of the bundled recording of the same application on ext4.

    python benches/host_against_linux.py [NAME...]
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from pyarrow import parquet

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from journal_workloads import WORKLOADS  # noqa: E402

_CALLS = (
    "openat,creat,read,pread64,write,pwrite64,fsync,fdatasync,ftruncate,unlink,unlinkat,rename,renameat,"
    "renameat2,close,lseek,syncfs,fallocate,dup,mkdir"
)
_SECTORS = 16 << 21
_LINE = re.compile(r"^(\d+) +(\w+)\((.*)\) += (-?\d+)")


class Recording:
    """File operations of the model, from the system calls of a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, int] = {}
        self.folders: dict[str, int] = {"": 0}
        self.open: dict[int, tuple[str, int]] = {}
        self.lines: list[str] = []
        self.exists: set[str] = set()

    def inside(self, path: str) -> str | None:
        """The path below the folder, or none."""
        full = Path(path)
        return str(full.relative_to(self.folder)) if full.is_relative_to(self.folder) else None

    def file(self, name: str) -> int:
        """The number of a file, declared where it is new."""
        if name not in self.files:
            parent = str(Path(name).parent) if "/" in name else ""
            self.folders.setdefault(parent, len(self.folders))
            self.files[name] = len(self.files)
            self.lines.insert(0, f"file {self.files[name]} {self.folders[parent]}")
        return self.files[name]

    def call(self, name: str, text: str, result: int) -> None:
        """Add what a system call asks for."""
        arguments = [one.strip() for one in text.split(",")]
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
            if old in self.files:
                self.lines.append(f"rename {self.file(old)} {self.file(new)}")
                self.exists.discard(old)
                self.exists.add(new)
        else:
            self.on_open_file(name, arguments, result)

    def on_open_file(self, name: str, arguments: list[str], result: int) -> None:
        """Add what a system call on an open file asks for."""
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
    """The file operations of an application; what it finds comes before the mark."""
    folder = work / "files"
    folder.mkdir()
    recording = Recording(folder)
    for step in ("prepare", "run"):
        log = work / f"{step}.strace"
        program = [sys.executable, str(ROOT / "scripts/journal_workloads.py"), step, name, str(folder)]
        subprocess.run(["strace", "-f", "-s", "200", "-o", log, "-e", f"trace={_CALLS}", *program], check=True)
        calls = [_LINE.match(line) for line in log.read_text(errors="replace").splitlines()]
        process = next(call[1] for call in calls if call)
        for call in calls:
            # Descriptors are those of the application; of its children only a sync counts.
            if call and (call[1] == process or call[2] == "syncfs"):
                recording.call(call[2], call[3], int(call[4]))
        if step == "prepare":
            recording.lines += ["sync", "wait 60000", "mark"]
    return recording.lines


def modelled(lines: list[str]) -> dict[str, tuple[int, int]]:
    """Requests and sectors by role that the model sends."""
    command = ["cargo", "run", "--release", "-q", "-p", "emmclab-host", "--example", "host_files", "--"]
    command += ["play", "linux-6", "ext4", str(_SECTORS)]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    rows = (line.split() for line in done.stdout.splitlines())
    return {role: (int(requests), int(sectors)) for role, requests, sectors in rows}


def recorded(name: str) -> dict[str, tuple[int, int]]:
    """Requests and sectors by role in the recording, from the first write of data to the last commit."""
    rows = parquet.read_table(ROOT / f"python/emmclab/data/annotated/{name}.parquet").to_pylist()
    first = next(at for at, row in enumerate(rows) if row["role"] and "data" in row["role"])
    last = max(at for at, row in enumerate(rows) if row["role"] and "commit" in row["role"])
    requests: Counter[str] = Counter()
    sectors: Counter[str] = Counter()
    for row in rows[first : last + 1]:
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


def main() -> None:
    """Print the table."""
    print(f"{'application':16} {'role':20} {'requests':>10} {'model':>8} {'KB':>10} {'model':>10}   deviation %")
    for name in sys.argv[1:] or WORKLOADS:
        with TemporaryDirectory() as work:
            lines = operations(name, Path(work))
        Path(f"/tmp/{name}.ops").write_text("\n".join(lines))
        ours, theirs = modelled(lines), recorded(name)
        for role in sorted(ours | theirs):
            (a, b), (c, d) = theirs.get(role, (0, 0)), ours.get(role, (0, 0))
            off = f"{100 * (c / a - 1):+.1f} {100 * (d / b - 1) if b else 0:+.1f}" if a else "none recorded"
            print(f"{name:16} {role:20} {a:10} {c:8} {b / 2:10.0f} {d / 2:10.0f}   {off}")


if __name__ == "__main__":
    main()
