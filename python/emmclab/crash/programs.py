"""Programs of file-system operations: their language, and an interpreter that runs them in a folder.

This module is also a script that uses only the standard library: `python programs.py FILE`, run in the
working folder. A file contains programs, each a line `program NAME` and a line for each operation; text after
a `#` is a comment. Each program works in its own folder, `p0`, `p1`, which is durable and empty at the start. A path
`@NAME` is the file that the program has opened as NAME, even if it has another name by then, or none.
The script prints these lines: `mount TYPE OPTIONS` of the file system; `begin NUMBER NAME` and `end NUMBER`
of each program; for each operation, `does TEXT` before it and `did` or `failed ERRNO` after it. After each
line it waits for a byte on the standard input, or for its end.
"""

import ctypes
import errno
import fcntl
import hashlib
import mmap
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

#: Operations of generated programs, with the names of their arguments; an argument in capitals is a number. `open`
#: creates a file that does not exist, `clone` is FICLONE, and `dwritesync` is a direct write with O_SYNC.
OPERATIONS: dict[str, tuple[str, ...]] = {
    "create": ("path",),
    "mkdir": ("path",),
    "mknod": ("path", "kind"),
    "open": ("path", "handle"),
    "tmpfile": ("path", "handle"),
    "close": ("handle",),
    "write": ("path", "OFFSET", "LENGTH"),
    "append": ("path", "LENGTH"),
    "truncate": ("path", "SIZE"),
    "fallocate": ("path", "mode", "OFFSET", "LENGTH"),
    "link": ("path", "new"),
    "symlink": ("target", "new"),
    "rename": ("path", "new"),
    "exchange": ("path", "other"),
    "unlink": ("path",),
    "rmdir": ("path",),
    "setxattr": ("path", "name", "LENGTH"),
    "removexattr": ("path", "name"),
    "chmod": ("path", "permissions"),
    "chown": ("path", "OWNER", "GROUP"),
    "utimes": ("path", "SECONDS"),
    "clone": ("path", "other"),
    "mmapwrite": ("path", "OFFSET", "LENGTH"),
    "dwrite": ("path", "OFFSET", "LENGTH"),
    "dwritesync": ("path", "OFFSET", "LENGTH"),
    "syncrange": ("path", "OFFSET", "LENGTH"),
    "fsync": ("path",),
    "fdatasync": ("path",),
    "msync": ("path",),
    "msyncrange": ("path", "OFFSET", "LENGTH"),
    "syncfs": (),
    "sync": (),
}
#: Modes of fallocate (linux/falloc.h); `extend` allocates and may extend the file.
MODES = {
    "extend": 0x00,
    "keep_size": 0x01,
    "punch_hole": 0x03,
    "collapse_range": 0x08,
    "zero_range": 0x10,
    "zero_range_keep_size": 0x11,
    "insert_range": 0x20,
    "unshare_range": 0x40,
}
#: Kinds of special files for mknod; a device has the number 0:0, which has no driver.
KINDS = {"fifo": stat.S_IFIFO, "char": stat.S_IFCHR, "block": stat.S_IFBLK, "socket": stat.S_IFSOCK}
#: Operations that make something durable.
SYNCS = ("fsync", "fdatasync", "msync", "msyncrange", "dwritesync", "syncfs", "sync")
#: Operations that write data of their own.
_WRITERS = ("write", "append", "setxattr", "mmapwrite", "dwrite", "dwritesync")
#: Permissions of new files, and those that a new folder has with the umask of the runner.
FILE_MODE, FOLDER_MODE, _UMASK = 0o644, 0o755, 0o022
#: Path that means the program's own folder.
HERE = "."
#: RENAME_EXCHANGE and FICLONE (linux/fs.h); AT_FDCWD (linux/fcntl.h): paths start in the working folder;
#: AT_SYMLINK_FOLLOW, and all flags of sync_file_range.
_EXCHANGE, _FICLONE, _AT_FDCWD, _FOLLOW, _WRITE_AND_WAIT = 2, 0x40049409, -100, 0x400, 7
#: Files that the running program has opened, by handle.
_handles: dict[str, int] = {}
#: Alignment of direct writes in bytes, and the largest allowed number in a program.
_ALIGNED, _MOST = 4096, 1 << 30


class ProgramError(ValueError):
    """An invalid line in a file of programs; `line` counts from 1."""

    def __init__(self, line: int, problem: str) -> None:
        """Set the number of the invalid line, and the problem."""
        super().__init__(f"line {line}: {problem}")
        self.line, self.problem = line, problem


@dataclass(frozen=True)
class Operation:
    """An operation: its name, and its arguments in the order of `OPERATIONS`."""

    verb: str
    arguments: tuple[str | int, ...]

    def __str__(self) -> str:
        """Return the operation as a line of a program file."""
        return " ".join([self.verb, *map(str, self.arguments)])

    def paths(self) -> list[str]:
        """Return the paths on which the operation acts, without the target of a symbolic link."""
        pairs = zip(OPERATIONS[self.verb], self.arguments, strict=True)
        return [str(value) for name, value in pairs if name in ("path", "new", "other")]


@dataclass(frozen=True)
class Program:
    """A named sequence of operations."""

    name: str
    operations: tuple[Operation, ...]

    def __str__(self) -> str:
        """Return the program as lines of a program file."""
        return "\n".join([f"program {self.name}", *map(str, self.operations)])


def operation(text: str, line: int = 1) -> Operation:
    """Parse an operation."""
    verb, *words = text.split()
    if verb not in OPERATIONS:
        raise ProgramError(line, f"`{verb}` is not an operation of a program; use {', '.join(OPERATIONS)}")
    names = OPERATIONS[verb]
    if len(words) != len(names):
        raise ProgramError(line, f"`{verb}` takes {' '.join(names) or 'nothing'}, not `{' '.join(words)}`")
    values: list[str | int] = []
    for name, word in zip(names, words, strict=True):
        if name.isupper():
            if not word.isdecimal() or int(word) > _MOST:
                raise ProgramError(line, f"{name.lower()} `{word}` is not a number up to {_MOST:,}")
            values.append(int(word))
        elif name == "mode" and word not in MODES:
            raise ProgramError(line, f"`{word}` is not a mode of fallocate; use {', '.join(MODES)}")
        elif name == "kind" and word not in KINDS:
            raise ProgramError(line, f"`{word}` is not a kind of special file; use {', '.join(KINDS)}")
        elif name == "permissions" and not (len(word) == 3 and {*word} <= {*"01234567"}):
            raise ProgramError(line, f"`{word}` is not permissions of three octal digits")
        elif name in ("path", "new", "other") and (word.startswith("/") or ".." in word.split("/")):
            raise ProgramError(line, f"`{word}` leaves the folder of the program")
        elif name == "new" and word.startswith("@"):
            raise ProgramError(line, f"`{word}` is an open file, and no name for a new one")
        else:
            values.append(word)
    if verb in ("dwrite", "dwritesync") and any(isinstance(value, int) and value % _ALIGNED for value in values):
        raise ProgramError(line, f"offset and length of a direct write must be multiples of {_ALIGNED:,} bytes")
    return Operation(verb, tuple(values))


def parse(text: str) -> list[Program]:
    r"""Parse programs; operations before the first `program` line form a program `p0`.

    >>> [str(one) for one in parse("program a\nmkdir A\ncreate A/foo # new\nfsync A/foo")[0].operations]
    ['mkdir A', 'create A/foo', 'fsync A/foo']
    """
    parsed: list[tuple[str, list[Operation]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if words[0] == "program":
            if len(words) != 2:
                raise ProgramError(number, "write exactly one name after `program`")
            parsed.append((words[1], []))
            continue
        if not parsed:
            parsed.append(("p0", []))
        parsed[-1][1].append(operation(" ".join(words), number))
    return [Program(name, tuple(operations)) for name, operations in parsed]


def filling(program: int, index: int, length: int) -> bytes:
    """Return the bytes that an operation writes; each operation writes different bytes."""
    tag = hashlib.sha256(f"{program}:{index}".encode()).digest()
    return (tag * (length // len(tag) + 1))[:length].replace(b"\0", b"\1")


def _say(line: str) -> None:
    """Print a line and wait for its confirmation, so that each operation is logged before it is executed."""
    print(line, flush=True)
    os.read(0, 1)


def _opened(path: str, flags: int, act: Callable[[int], object]) -> None:
    # O_NONBLOCK: a named pipe would otherwise be opened only when another process has opened it.
    file = os.open(path, flags | os.O_NONBLOCK)
    try:
        act(file)
    finally:
        os.close(file)


def _write_all(file: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written


LIBC = ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> None:
    """Raise an error if the result of a function of the C library is not 0."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _folder_or_file(path: str) -> int:
    return os.O_RDONLY | (os.O_DIRECTORY if Path(path).is_dir() else 0)


def _keep_open(handle: str, path: str, flags: int) -> None:
    file = os.open(path, flags | os.O_NONBLOCK, FILE_MODE)
    if handle in _handles:
        # The earlier file stays open until the program ends.
        _handles[f"{handle} {file}"] = _handles[handle]
    _handles[handle] = file


def _close(handle: str) -> None:
    os.close(_handles.pop(handle, -1))


def _place(path: str) -> str:
    """Return the path of a file in the file system: that of an open file is one in /proc."""
    return f"/proc/self/fd/{_handles.get(path[1:], -1)}" if path.startswith("@") else path


def _map(file: int, act: Callable[[mmap.mmap], object]) -> None:
    if os.fstat(file).st_size == 0:
        # The C function mmap() fails with EINVAL for a length of 0; Python's mmap raises a different error.
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    with mmap.mmap(file, 0) as memory:
        act(memory)


def _mapped_write(memory: mmap.mmap, offset: int, data: bytes) -> None:
    if offset + len(data) > len(memory):
        raise OSError(errno.ENXIO, "the operation is beyond the end of the file")
    memory[offset : offset + len(data)] = data


def _flush(memory: mmap.mmap, offset: int, length: int) -> None:
    if offset % mmap.PAGESIZE or offset + length > len(memory):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    memory.flush(offset, length)


def _direct_write(file: int, offset: int, data: bytes) -> None:
    # Direct I/O needs an aligned buffer, and the memory of a mapping is aligned to pages.
    with mmap.mmap(-1, max(len(data), 1)) as memory:
        memory[: len(data)] = data
        with memoryview(memory) as view, view[: len(data)] as part:
            if os.pwrite(file, part, offset) != len(data):
                raise OSError(errno.EIO, "a direct write wrote only a part of its data")


def perform(step: Operation, data: bytes) -> None:
    """Execute an operation in the current folder; `data` are the bytes that it writes.

    Raises:
        OSError: the operation failed.
    """
    verb, arguments = step.verb, step.arguments
    path = _place(str(arguments[0])) if arguments else HERE
    is_open = bool(arguments) and str(arguments[0]).startswith("@")
    numbers = [value for value in arguments if isinstance(value, int)]
    match verb:
        case "create":
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))
        case "mkdir":
            Path(path).mkdir()
        case "write":
            _opened(path, os.O_WRONLY, lambda file: _write_all(file, data, numbers[0]))
        case "append":
            _opened(path, os.O_WRONLY, lambda file: _write_all(file, data, os.fstat(file).st_size))
        case "truncate":
            os.truncate(path, numbers[0])
        case "fallocate":
            mode, offset, length = MODES[str(arguments[1])], *map(ctypes.c_longlong, numbers)
            _opened(path, os.O_RDWR, lambda file: checked(LIBC.fallocate(file, mode, offset, length)))
        case "mknod":
            os.mknod(path, KINDS[str(arguments[1])] | FILE_MODE)
        case "open":
            flags = os.O_RDONLY | os.O_DIRECTORY if Path(path).is_dir() else os.O_RDWR | os.O_CREAT
            _keep_open(str(arguments[1]), path, flags)
        case "tmpfile":
            _keep_open(str(arguments[1]), path, os.O_TMPFILE | os.O_RDWR)
        case "close":
            _close(str(arguments[0]))
        case "link":
            names, flags = (path.encode(), str(arguments[1]).encode()), _FOLLOW if is_open else 0
            checked(LIBC.linkat(_AT_FDCWD, names[0], _AT_FDCWD, names[1], flags))
        case "symlink":
            Path(str(arguments[1])).symlink_to(str(arguments[0]))
        case "rename":
            Path(path).rename(str(arguments[1]))
        case "exchange":
            names = path.encode(), str(arguments[1]).encode()
            checked(LIBC.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE))
        case "unlink":
            Path(path).unlink()
        case "rmdir":
            Path(path).rmdir()
        case "setxattr":
            os.setxattr(path, f"user.{arguments[1]}", data, follow_symlinks=is_open)
        case "removexattr":
            os.removexattr(path, f"user.{arguments[1]}", follow_symlinks=is_open)
        case "chmod":
            Path(path).chmod(int(str(arguments[1]), 8))
        case "chown":
            os.chown(path, *numbers, follow_symlinks=is_open)
        case "utimes":
            os.utime(path, (numbers[0], numbers[0]), follow_symlinks=is_open)
        case "clone":
            other = _place(str(arguments[1]))
            clone = partial(_opened, other, os.O_RDWR)
            _opened(path, os.O_RDONLY, lambda file: clone(lambda new: fcntl.ioctl(new, _FICLONE, file)))
        case "mmapwrite":
            write = partial(_mapped_write, offset=numbers[0], data=data)
            _opened(path, os.O_RDWR, lambda file: _map(file, write))
        case "dwrite" | "dwritesync":
            flags = os.O_RDWR | os.O_DIRECT | (os.O_SYNC if verb == "dwritesync" else 0)
            _opened(path, flags, lambda file: _direct_write(file, numbers[0], data))
        case "fsync":
            _opened(path, _folder_or_file(path), os.fsync)
        case "fdatasync":
            _opened(path, _folder_or_file(path), os.fdatasync)
        case "syncrange":
            offset, length = map(ctypes.c_longlong, numbers)
            sync = LIBC.sync_file_range
            _opened(path, os.O_RDWR, lambda file: checked(sync(file, offset, length, _WRITE_AND_WAIT)))
        case "msync":
            _opened(path, os.O_RDWR, lambda file: _map(file, lambda memory: memory.flush()))
        case "msyncrange":
            _opened(path, os.O_RDWR, lambda file: _map(file, partial(_flush, offset=numbers[0], length=numbers[1])))
        case "syncfs":
            _opened(HERE, os.O_RDONLY | os.O_DIRECTORY, lambda file: checked(LIBC.syncfs(file)))
        case _:
            os.sync()


def _length(step: Operation) -> int:
    names = OPERATIONS[step.verb]
    lengths = [value for name, value in zip(names, step.arguments, strict=True) if name == "LENGTH"]
    return int(lengths[0]) if lengths else 0


def written_bytes(program: int, index: int, step: Operation) -> bytes:
    """Return the bytes that an operation of a program writes; empty if it writes no data."""
    return filling(program, index, _length(step)) if step.verb in _WRITERS else b""


def run(number: int, program: Program) -> None:
    """Run a program of file-system operations in a folder of its own."""
    folder = f"p{number}"
    Path(folder).mkdir()
    _opened(HERE, os.O_RDONLY | os.O_DIRECTORY, lambda file: checked(LIBC.syncfs(file)))
    _say(f"begin {number} {program.name}")
    os.chdir(folder)
    for index, step in enumerate(program.operations):
        _say(f"does {step}")
        try:
            perform(step, written_bytes(number, index, step))
        except OSError as error:
            _say(f"failed {errno.errorcode.get(error.errno or 0, error.errno)}")
        else:
            _say("did")
    for handle in [*_handles]:
        _close(handle)
    os.chdir("..")
    _say(f"end {number}")
    # Remove the program's folder to free inodes and space for the next program.
    shutil.rmtree(folder)


def _mount() -> Iterator[str]:
    """Yield type and options of the file system that contains the current folder, as the kernel lists them."""
    device = Path.cwd().stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == number:
            kind, _, options = after.split(maxsplit=2)
            yield f"{kind} {options}"


def main(path: str) -> None:
    """Run every program of a file in the current folder."""
    os.umask(_UMASK)
    _say(f"mount {next(_mount(), 'unknown -')}")
    for number, program in enumerate(parse(Path(path).read_text())):
        run(number, program)


if __name__ == "__main__":
    main(sys.argv[1])
