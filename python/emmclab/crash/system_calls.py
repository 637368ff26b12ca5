"""Records what a program does to the files below its folder, by the system calls that strace sees.

strace (ptrace) needs no root, and sees static programs and those of Go, which a preloaded library does not. It does not
see writes through a shared mapping, io_uring and a few rare calls: they become doubts, so that there is no verdict.
"""

from __future__ import annotations

import fnmatch
import os
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from emmclab import _core
from emmclab.crash.file_states import ROOT, FileEvent
from emmclab.errors import ConfigError

#: Files that programs make anew after a power cut, so that writes to a mapping of them need not be seen, with sources.
REMADE = {
    "*-shm": "SQLite makes the index of its WAL anew (sqlite.org/walformat.html, 2.0)",
    "lock.mdb": "LMDB makes its table of readers anew (lmdb.h, MDB_NOLOCK)",
}
#: Longest string of a call that strace writes, bytes; calls that write more are a doubt.
_LONGEST = 64 << 20
#: System calls that are recorded.
_CALLS = (
    *("open", "openat", "openat2", "creat", "close", "dup", "dup2", "dup3", "fcntl", "lseek", "read", "readv"),
    *("write", "writev", "pwrite64", "pwritev", "pwritev2", "sendfile", "copy_file_range", "splice", "ioctl"),
    *("truncate", "ftruncate", "fallocate", "fsync", "fdatasync", "sync", "syncfs", "msync", "mmap", "mprotect"),
    *("rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir"),
    *("symlink", "symlinkat", "chmod", "fchmod", "fchmodat", "chdir", "fchdir", "clone", "clone3", "fork", "vfork"),
    *("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr"),
    *("io_uring_setup", "io_submit", "mknod", "mknodat"),
)
#: Calls whose failure is injected for a fault, by its name: the calls and the error.
FAULTS: dict[str, tuple[tuple[str, ...], str]] = {
    "eio": (("fsync", "fdatasync", "write", "pwrite64", "writev", "pwritev"), "EIO"),
    "enospc": (("write", "pwrite64", "writev", "pwritev", "fallocate", "ftruncate"), "ENOSPC"),
}
_WRITES = ("write", "writev", "pwrite64", "pwritev", "pwritev2")
Argument = bytes | str | tuple[int, bytes, bool]


def strace_path() -> str:
    """Return the path of strace.

    Raises:
        ConfigError: it is not installed, or may not trace on this machine.
    """
    path = shutil.which("strace")
    if path is None:
        raise ConfigError("strace is not installed", field="model", hint="install the package strace")
    return path


@dataclass(frozen=True)
class Injected:
    """An error that calls get from strace instead of being executed, or a limit of the size of files.

    Attributes:
        error: name of the error number; empty for a limit.
        call: name of the system call.
        number: the call of this name in the process that gets the error, counted from 1; or the limit in bytes.
    """

    error: str
    call: str
    number: int

    def __str__(self) -> str:
        """Return the fault in words."""
        if not self.error:
            return f"short writes at {self.number:,} bytes of a file, as if the disk were full"
        return f"{self.error} from {self.call} number {self.number}"


#: Program that runs a command whose files may not exceed a size; writes beyond it fail, and no signal is sent.
_LIMITED = (
    "import os, resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2); os.execvp(sys.argv[2], sys.argv[2:])"
)


def traced(arguments: Sequence[str], output: Path, fault: Injected | None = None) -> list[str]:
    """Return the command line that runs a program below strace, with its calls written to `output`."""
    inject: list[str] = []
    if fault is not None and fault.error:
        inject = ["-e", f"inject={fault.call}:error={fault.error}:when={fault.number}"]
    elif fault is not None:
        arguments = [sys.executable, "-I", "-S", "-c", _LIMITED, str(fault.number), *arguments]
    calls = ",".join(f"?{name}" for name in _CALLS)
    options = ["-f", "-y", "-ttt", "-s", str(_LONGEST), "-e", "signal=none", "-e", f"trace={calls}"]
    return [strace_path(), *options, *inject, "-o", str(output), "--", *arguments]


@dataclass(slots=True)
class _Open:
    """An open file: its inode (0 outside the folder), position and flags, shared by duplicated descriptors."""

    inode: int
    position: int | None = 0
    appends: bool = False
    sync: str = ""


@dataclass(slots=True)
class _Process:
    """Open files and working folder of a process; its threads share it."""

    files: dict[int, _Open] = field(default_factory=dict)
    folder: str = ""


def _number(word: Argument) -> int:
    text = word if isinstance(word, str) else ""
    digits = text.strip("[]").split(" ")[0]
    try:
        return int(digits, 0) if not (digits.startswith("0") and digits.isdigit()) else int(digits, 8)
    except ValueError:
        return 0


def _text(argument: Argument) -> str:
    return os.fsdecode(argument) if isinstance(argument, bytes) else ""


class Translator:
    """Translates the system calls of a recording to operations on the files below a folder."""

    def __init__(self, folder: Path, terminal: str, remade: Sequence[str] = ()) -> None:
        """Set the folder, the terminal whose lines are acknowledgements, and patterns of files that are made anew."""
        self._top, self._terminal = str(folder), os.fsencode(terminal)
        self._remade = (*REMADE, *remade)
        self.events: list[FileEvent] = []
        self.doubts: dict[str, None] = {}
        #: Calls on files of the folder: name, and number among the calls of this name of their thread, from 1.
        self.calls: dict[tuple[str, int], None] = {}
        #: Number of calls of each name on files of the folder that failed, and of short writes (`short`).
        self.failures = Counter[str]()
        self._numbers = Counter[tuple[int, str]]()
        self._number = 0
        #: Size of the largest file, bytes.
        self.largest = 0
        self._entries: dict[int, dict[str, int]] = {ROOT: {}}
        self._links: dict[int, str] = {}
        self._data: dict[int, bytearray] = {}
        self._mapped: dict[tuple[int, int], int] = {}
        self._paths: dict[int, str] = {ROOT: "."}
        self._next = ROOT + 1
        self._text = b""
        self._ended = [0]
        self._at = 0

    @property
    def paths(self) -> dict[int, str]:
        """The last path of each inode."""
        return self._paths

    def translate(self, recording: Path) -> None:
        """Add the events of a recording of `traced`."""
        calls = _core.read_strace_calls(str(recording))
        first = calls[0][1] if calls else 0
        parents: dict[int, tuple[int, bool]] = {}
        for thread, _, _, name, arguments, result in calls:
            if name in ("clone", "clone3", "fork", "vfork") and result > 0:
                shares = any("CLONE_FILES" in word for word in arguments if isinstance(word, str))
                parents[result] = (thread, shares)
        processes: dict[int, _Process] = {}
        for thread, at, after, name, arguments, result in calls:
            process = processes.get(thread)
            if process is None:
                parent, shares = parents.get(thread, (0, False))
                known = processes.get(parent, _Process(folder=self._top))
                process = known if shares else _Process(dict(known.files), known.folder)
                processes[thread] = process
            self._at = at - first
            self._since = self._ended[after]
            self._numbers[thread, name] += 1
            self._number = self._numbers[thread, name]
            self._call(process, name, arguments, result)
            self._ended.append(len(self.events))

    def _call(self, process: _Process, name: str, arguments: list[Argument], result: int) -> None:
        if result < 0:
            self._failed(process, name, arguments)
            return
        handler = getattr(self, f"_do_{name}", None) or getattr(self, f"_do_{_SAME.get(name, '')}", None)
        if handler is not None:
            handler(process, name, arguments, result)

    def _failed(self, process: _Process, name: str, arguments: list[Argument]) -> None:
        if name in ("fsync", "fdatasync", "fallocate", "ftruncate", *_WRITES):
            inode = self._opened(process, arguments[0]).inode
            self.failures[name] += inode > 0
            if inode and name in ("fsync", "fdatasync"):
                self._add("sync", inode, text=name, since=self._since, failed=True)

    def _add(self, kind: str, inode: int, **fields: object) -> None:
        self.events.append(replace(FileEvent(kind, self._at, inode), **fields))  # type: ignore[arg-type]

    def _count(self, name: str) -> None:
        self.calls[name, self._number] = None

    def _doubt(self, problem: str) -> None:
        self.doubts[problem] = None

    # Paths and open files.

    def _inode(self, process: _Process, path: str, base: Argument | None = None, *, follow: bool = True) -> int:
        """Return the inode of a path; 0 if it does not exist or is outside the folder."""
        folder, name = self._place(process, path, base, follow=follow)
        return ROOT if folder == ROOT and name == "." else self._entries.get(folder, {}).get(name, 0)

    def _place(
        self, process: _Process, path: str, base: Argument | None = None, *, follow: bool = False, depth: int = 0
    ) -> tuple[int, str]:
        """Return the folder of a path and its name there; 0 as the folder if it is outside or does not exist."""
        start = os.fsdecode(base[1]) if isinstance(base, tuple) else process.folder
        whole = path if path.startswith("/") else f"{start}/{path}"
        if depth > 16 or not f"{os.path.normpath(whole)}/".startswith(f"{self._top}/"):
            return 0, ""
        relative = os.path.normpath(whole)[len(self._top) :].strip("/")
        if not relative:
            return ROOT, "."
        names, folder = relative.split("/"), ROOT
        for number, name in enumerate(names):
            inode = self._entries.get(folder, {}).get(name, 0)
            is_last = number == len(names) - 1
            if inode in self._links and (follow or not is_last):
                above = "/".join((self._top, *names[:number]))
                target = os.path.join(above, self._links[inode], *names[number + 1 :])  # noqa: PTH118
                return self._place(process, target, None, follow=follow, depth=depth + 1)
            if is_last:
                return folder, name
            folder = inode
        return 0, ""

    def _opened(self, process: _Process, argument: Argument) -> _Open:
        number = argument[0] if isinstance(argument, tuple) else _number(argument)
        known = process.files.get(number)
        if known is not None:
            return known
        path = argument[1] if isinstance(argument, tuple) and not argument[2] else b""
        opened = _Open(self._inode(process, os.fsdecode(path)) if path else 0, None)
        process.files[number] = opened
        return opened

    def _new(self, kind: str, place: tuple[int, str] | None, data: bytes = b"") -> int:
        inode, self._next = self._next, self._next + 1
        self._add("make", inode, text=kind, data=data)
        if kind == "folder":
            self._entries[inode] = {}
        elif kind == "link":
            self._links[inode] = os.fsdecode(data)
        else:
            self._data[inode] = bytearray()
        if place is not None:
            self._name([(*place, inode)])
        return inode

    def _name(self, names: list[tuple[int, str, int]]) -> None:
        self._add("names", 0, names=tuple(names))
        for folder, name, inode in names:
            if inode:
                self._entries[folder][name] = inode
                above = self._paths.get(folder, "")
                self._paths[inode] = name if above == "." else f"{above}/{name}"
            else:
                self._entries[folder].pop(name, None)

    def _do_openat(self, process: _Process, name: str, arguments: list[Argument], result: int) -> None:
        base = None if name in ("open", "creat") else arguments[0]
        path, flags = arguments[0 if base is None else 1], arguments[1 if base is None else 2]
        words = set(str(flags).replace("{flags=", "").replace(",", "|").replace("}", "|").split("|"))
        if name == "creat":
            words = {"O_CREAT", "O_WRONLY", "O_TRUNC"}
        text = _text(path)
        if any(word.endswith("O_TMPFILE") for word in words):
            inside = self._inode(process, text, base)
            process.files[result] = _Open(self._new("file", None) if inside else 0)
            return
        place = self._place(process, text, base, follow="O_NOFOLLOW" not in words)
        inode = ROOT if place == (ROOT, ".") else self._entries.get(place[0], {}).get(place[1], 0)
        if not inode and place[0] and "O_CREAT" in words:
            inode = self._new("file", place)
        elif inode in self._data and "O_TRUNC" in words and self._data[inode]:
            self._resize(inode, 0)
        sync = "fsync" if "O_SYNC" in words else "fdatasync" if "O_DSYNC" in words else ""
        process.files[result] = _Open(inode, 0, "O_APPEND" in words, sync)

    def _do_close(self, process: _Process, _name: str, arguments: list[Argument], _result: int) -> None:
        number = arguments[0][0] if isinstance(arguments[0], tuple) else _number(arguments[0])
        process.files.pop(number, None)

    def _do_dup(self, process: _Process, name: str, arguments: list[Argument], result: int) -> None:
        if name == "fcntl" and not str(arguments[1]).startswith("F_DUPFD"):
            if arguments[1] == "F_SETFL":
                self._opened(process, arguments[0]).appends = "O_APPEND" in str(arguments[2])
            return
        process.files[result] = self._opened(process, arguments[0])

    def _do_lseek(self, process: _Process, _name: str, arguments: list[Argument], result: int) -> None:
        self._opened(process, arguments[0]).position = result

    def _do_read(self, process: _Process, _name: str, arguments: list[Argument], result: int) -> None:
        opened = self._opened(process, arguments[0])
        if opened.position is not None:
            opened.position += result

    def _do_chdir(self, process: _Process, _name: str, arguments: list[Argument], _result: int) -> None:
        first = arguments[0]
        path = os.fsdecode(first[1]) if isinstance(first, tuple) else _text(first)
        process.folder = os.path.normpath(path if path.startswith("/") else f"{process.folder}/{path}")

    # Contents.

    def _do_write(self, process: _Process, name: str, arguments: list[Argument], result: int) -> None:
        target, data = arguments[0], arguments[1]
        if isinstance(target, tuple) and target[1] == self._terminal:
            self._say(data[:result] if isinstance(data, bytes) else b"")
            return
        opened = self._opened(process, target)
        if not opened.inode:
            return
        self._count(name)
        if not isinstance(data, bytes) or len(data) < result:
            self._doubt(f"a {name} of {result:,} bytes to {self._paths.get(opened.inode)} was not recorded whole")
            return
        self.failures["short"] += len(data) > result
        position = -1
        if name.startswith("pwrite"):
            position = _number(arguments[3])
        self._store(opened, data[:result], position, name)
        if name == "pwritev2" and "SYNC" in str(arguments[-1]):
            self._synced(opened.inode, "fsync" if "RWF_SYNC" in str(arguments[-1]) else "fdatasync")

    def _say(self, data: bytes) -> None:
        *lines, self._text = (self._text + data).replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            self._add("line", 0, text=line.decode(errors="replace"))

    def _store(self, opened: _Open, data: bytes, position: int, name: str) -> None:
        """Add a write; a negative position stands for that of the open file."""
        contents = self._data.get(opened.inode)
        if contents is None:
            return
        begin = position
        if opened.appends:
            begin = len(contents)
        elif position < 0:
            if opened.position is None:
                self._doubt(f"the position of a {name} to {self._paths.get(opened.inode)} is not known")
                return
            begin = opened.position
        if position < 0:
            opened.position = begin + len(data)
        if data:
            self._add("write", opened.inode, offset=begin, data=data)
            if begin > len(contents):
                contents.extend(bytes(begin - len(contents)))
            contents[begin : begin + len(data)] = data
            self.largest = max(self.largest, len(contents))
            if opened.sync:
                self._synced(opened.inode, opened.sync)

    def _synced(self, inode: int, name: str) -> None:
        self._add("sync", inode, text=name, since=len(self.events))

    def _do_sendfile(self, process: _Process, name: str, arguments: list[Argument], result: int) -> None:
        """Copy bytes from a file: from the recorded contents, or from a file outside the folder."""
        if name == "sendfile":
            target, source, offset, place = arguments[0], arguments[1], arguments[2], "NULL"
        else:
            source, offset, target, place = arguments[0], arguments[1], arguments[2], str(arguments[3])
        opened, copied = self._opened(process, target), self._opened(process, source)
        if not opened.inode or not result:
            return
        begin = copied.position if offset == "NULL" else _number(offset)
        data = self._read(source, copied.inode, begin, result)
        if data is None or name == "splice":
            self._doubt(f"a {name} to {self._paths.get(opened.inode)} was not recorded")
            return
        if offset == "NULL" and copied.position is not None:
            copied.position += result
        self._count(name)
        self._store(opened, data, -1 if place == "NULL" else _number(place), name)

    def _read(self, source: Argument, inode: int, begin: int | None, size: int) -> bytes | None:
        if begin is None:
            return None
        if inode in self._data:
            return bytes(self._data[inode][begin : begin + size])
        try:
            with Path(os.fsdecode(source[1]) if isinstance(source, tuple) else "").open("rb") as file:
                file.seek(begin)
                data = file.read(size)
        except OSError:
            return None
        return data if len(data) == size else None

    def _do_ioctl(self, process: _Process, _name: str, arguments: list[Argument], _result: int) -> None:
        if "FICLONE" not in str(arguments[1]):
            return
        opened = self._opened(process, arguments[0])
        source = self._opened(process, arguments[2]).inode if len(arguments) > 2 else 0
        if opened.inode and arguments[1] == "FICLONE" and source in self._data:
            self._store(opened, bytes(self._data[source]), 0, "ioctl")
        elif opened.inode:
            self._doubt(f"a clone to {self._paths.get(opened.inode)} was not recorded")

    def _resize(self, inode: int, size: int) -> None:
        contents = self._data.get(inode)
        if contents is None:
            return
        self._add("size", inode, offset=size)
        del contents[size:]
        contents.extend(bytes(size - len(contents)))

    def _do_ftruncate(self, process: _Process, name: str, arguments: list[Argument], _result: int) -> None:
        is_path = name == "truncate"
        inode = self._inode(process, _text(arguments[0])) if is_path else self._opened(process, arguments[0]).inode
        if inode:
            self._count(name)
            self._resize(inode, _number(arguments[1]))

    def _do_fallocate(self, process: _Process, name: str, arguments: list[Argument], _result: int) -> None:
        inode = self._opened(process, arguments[0]).inode
        contents, mode = self._data.get(inode), str(arguments[1])
        if contents is None:
            return
        self._count(name)
        begin, length = _number(arguments[2]), _number(arguments[3])
        if "COLLAPSE" in mode or "INSERT" in mode:
            self._doubt(f"fallocate with {mode} of {self._paths.get(inode)} is not in the model")
            return
        if "PUNCH" in mode or "ZERO" in mode:
            end = min(begin + length, len(contents))
            if end > begin:
                self._add("zeros", inode, offset=begin, data=bytes(end - begin))
                contents[begin:end] = bytes(end - begin)
        if "KEEP_SIZE" not in mode and begin + length > len(contents):
            self._resize(inode, begin + length)

    def _do_mmap(self, process: _Process, _name: str, arguments: list[Argument], result: int) -> None:
        if "MAP_SHARED" not in str(arguments[3]) or not isinstance(arguments[4], tuple):
            return
        inode = self._opened(process, arguments[4]).inode
        if inode in self._data:
            self._mapped[result, _number(arguments[1])] = inode
            if "PROT_WRITE" in str(arguments[2]):
                self._not_seen(inode)

    def _do_mprotect(self, _process: _Process, _name: str, arguments: list[Argument], _result: int) -> None:
        if "PROT_WRITE" in str(arguments[2]):
            begin, size = _number(arguments[0]), _number(arguments[1])
            for (start, length), inode in self._mapped.items():
                if begin < start + length and start < begin + size:
                    self._not_seen(inode)

    def _not_seen(self, inode: int) -> None:
        path = self._paths.get(inode, "")
        if not any(fnmatch.fnmatchcase(path.rpartition("/")[2], pattern) for pattern in self._remade):
            self._doubt(f"{path} is written by a shared mapping, whose writes strace does not see")

    def _do_io_uring_setup(self, _process: _Process, name: str, _arguments: list[Argument], _result: int) -> None:
        self._doubt(f"the program uses {name.partition('_setup')[0]}, whose operations strace does not see")

    # Syncs.

    def _do_fsync(self, process: _Process, name: str, arguments: list[Argument], _result: int) -> None:
        inode = self._opened(process, arguments[0]).inode
        if inode:
            self._count(name)
            self._add("sync", inode, text=name, since=self._since)

    def _do_sync(self, _process: _Process, name: str, _arguments: list[Argument], _result: int) -> None:
        self._add("sync all", 0, text=name, since=self._since)

    def _do_msync(self, _process: _Process, _name: str, arguments: list[Argument], _result: int) -> None:
        begin = _number(arguments[0])
        for (start, length), inode in self._mapped.items():
            if start <= begin < start + length and "MS_SYNC" in str(arguments[2]):
                self._add("sync", inode, text="fsync", since=self._since)

    # Names.

    def _two(self, process: _Process, name: str, arguments: list[Argument]) -> tuple[tuple[int, str], tuple[int, str]]:
        if "at" in name.removeprefix("re"):
            first = self._place(process, _text(arguments[1]), arguments[0])
            return first, self._place(process, _text(arguments[3]), arguments[2])
        return self._place(process, _text(arguments[0])), self._place(process, _text(arguments[1]))

    def _do_rename(self, process: _Process, name: str, arguments: list[Argument], _result: int) -> None:
        old, new = self._two(process, name, arguments)
        moved = self._entries.get(old[0], {}).get(old[1], 0)
        other = self._entries.get(new[0], {}).get(new[1], 0)
        if not (old[0] and new[0]):
            if moved or new[0]:
                self._doubt(f"{old[1] or new[1]} is renamed into or out of the folder")
            return
        if moved and moved != other:
            exchanged = other if "RENAME_EXCHANGE" in str(arguments[-1]) else 0
            self._name([(*old, exchanged), (*new, moved)])

    def _do_link(self, process: _Process, name: str, arguments: list[Argument], _result: int) -> None:
        old, new = self._two(process, name, arguments)
        inode = self._entries.get(old[0], {}).get(old[1], 0)
        if name == "linkat" and (_text(arguments[1]) == "" or "/proc/self/fd/" in _text(arguments[1])):
            number = _text(arguments[1]).rpartition("/")[2]
            inode = self._opened(process, number or arguments[0]).inode
        if inode and new[0]:
            self._name([(*new, inode)])

    def _do_unlink(self, process: _Process, name: str, arguments: list[Argument], _result: int) -> None:
        base, path = (arguments[0], arguments[1]) if name == "unlinkat" else (None, arguments[0])
        place = self._place(process, _text(path), base)
        if self._entries.get(place[0], {}).get(place[1]):
            self._name([(*place, 0)])

    def _do_mkdir(self, process: _Process, name: str, arguments: list[Argument], _result: int) -> None:
        base, path = (arguments[0], arguments[1]) if name == "mkdirat" else (None, arguments[0])
        place = self._place(process, _text(path), base)
        if place[0]:
            self._new("folder", place)

    def _do_symlink(self, process: _Process, name: str, arguments: list[Argument], _result: int) -> None:
        base, path = (arguments[1], arguments[2]) if name == "symlinkat" else (None, arguments[1])
        place = self._place(process, _text(path), base)
        if place[0] and isinstance(arguments[0], bytes):
            self._new("link", place, arguments[0])

    def _do_mknod(self, process: _Process, name: str, arguments: list[Argument], _result: int) -> None:
        base, path = (arguments[0], arguments[1]) if name == "mknodat" else (None, arguments[0])
        place = self._place(process, _text(path), base)
        if place[0]:
            self._new("file", place)

    # Attributes.

    def _do_chmod(self, process: _Process, name: str, arguments: list[Argument], _result: int) -> None:
        if name == "fchmod":
            inode = self._opened(process, arguments[0]).inode
        else:
            base, path = (arguments[0], arguments[1]) if name == "fchmodat" else (None, arguments[0])
            inode = self._inode(process, _text(path), base)
        mode = next((word for word in arguments if isinstance(word, str) and word.isdigit()), "")
        if inode and inode != ROOT and mode:
            self._add("attribute", inode, text="mode", data=mode.encode())

    def _do_setxattr(self, process: _Process, name: str, arguments: list[Argument], _result: int) -> None:
        first = arguments[0]
        inode = (
            self._opened(process, first).inode
            if name.startswith("f")
            else self._inode(process, _text(first), follow=not name.startswith("l"))
        )
        value = arguments[2] if "set" in name else b""
        if inode and isinstance(value, bytes):
            self._add("attribute", inode, text=_text(arguments[1]), data=value)


#: Calls that are translated as another one.
_SAME = {
    **dict.fromkeys(("open", "openat2", "creat"), "openat"),
    **dict.fromkeys(("dup2", "dup3", "fcntl"), "dup"),
    **dict.fromkeys(("writev", "pwrite64", "pwritev", "pwritev2"), "write"),
    **dict.fromkeys(("copy_file_range", "splice"), "sendfile"),
    **{"readv": "read", "fchdir": "chdir", "truncate": "ftruncate", "fdatasync": "fsync", "syncfs": "sync"},
    **dict.fromkeys(("renameat", "renameat2"), "rename"),
    **{"linkat": "link", "unlinkat": "unlink", "rmdir": "unlink", "mkdirat": "mkdir", "symlinkat": "symlink"},
    **{"mknodat": "mknod", "fchmod": "chmod", "fchmodat": "chmod", "io_submit": "io_uring_setup"},
    **dict.fromkeys(("lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr"), "setxattr"),
}


def sites(recorded: RecordedFiles, fault: str, most: int) -> list[Injected]:
    """Return the faults of one kind, each for a run of its own: evenly chosen among the calls, at most `most`."""
    if fault == "short":
        sizes = {recorded.largest * (2 * number + 1) // (2 * most) for number in range(most)} - {0}
        return [Injected("", "short", size) for size in sorted(sizes)]
    names, error = FAULTS[fault]
    calls = [call for call in recorded.calls if call[0] in names]
    if len(calls) > most:
        calls = [calls[len(calls) * place // most] for place in range(most)]
    return [Injected(error, *call) for call in calls]


@dataclass(frozen=True)
class RecordedFiles:
    """What a recording of file operations shows about faults.

    Attributes:
        calls: calls that a fault can reach, in their order.
        failures: number of calls that failed, by name.
        largest: size of the largest file that was written, bytes.
    """

    calls: Sequence[tuple[str, int]] = ()
    failures: Mapping[str, int] = field(default_factory=dict)
    largest: int = 0


def faults_of(text: str) -> list[tuple[str, int]]:
    """Return the kinds of faults in a list such as `eio,short:3`, each with its maximum number of recordings.

    Raises:
        ConfigError: a kind does not exist, or a number is none.

    >>> faults_of("eio,short:3")
    [('eio', 8), ('short', 3)]
    """
    chosen = []
    for part in text.split(","):
        name, _, number = part.strip().partition(":")
        if name not in (*FAULTS, "short") or not (number or "8").isdecimal() or number == "0":
            hint = f"use {', '.join(FAULTS)}, short, each with an optional number of recordings: eio:20"
            raise ConfigError(f"`{part}` is not a fault", field="faults", hint=hint)
        chosen.append((name, int(number or 8)))
    return chosen
