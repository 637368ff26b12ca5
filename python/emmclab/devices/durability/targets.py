"""What can be written and read after a cut: a block device, a file, a disk over NBD."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import stat
import struct
import threading
from pathlib import Path
from typing import Protocol

from emmclab.devices.durability.known_target import KnownTarget
from emmclab.devices.durability.nbd import Nbd, is_nbd
from emmclab.devices.durability.pattern import Kind
from emmclab.devices.probe.targets import opened_directly
from emmclab.errors import ConfigError, InputError

#: Requests of `linux/fs.h`.
_BLKDISCARD, _BLKZEROOUT = 0x1277, 0x127F
#: Longest transfer, bytes.
LONGEST = 1 << 20
#: What Linux answers to a request that a device does not have.
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.ENOSYS}


class Target(Protocol):
    """Something with addresses that is written, flushed and read.

    Every call raises an `OSError` where the device is gone.
    """

    name: str
    size: int

    def write(self, at: int, data: bytes, *, through: bool) -> None:
        """Write at a byte; with `through` it is durable when this returns."""

    def clear(self, kind: Kind, at: int, length: int) -> None:
        """Trim a range, or have the device write zeros to it."""

    def flush(self, kind: Kind) -> None:
        """Make durable what was written."""

    def read(self, at: int, length: int) -> bytes:
        """Read, and not from the cache of this machine."""

    def can(self, kind: Kind) -> bool:
        """Whether the target can trim, or write zeros without data; a try is made at its start."""

    def known(self) -> KnownTarget:
        """What is known of it, by which it is recognised."""

    def close(self) -> None:
        """Let go of it."""


def opened(target: str, *, write: bool) -> Target:
    """Open a target: a block device, a file, or `nbd+unix:///?socket=PATH`.

    Raises:
        ConfigError: it is neither.
        InputError: it cannot be opened.
    """
    if is_nbd(target):
        return Nbd(target)
    if "/" not in target and not Path(target).exists():
        raise ConfigError(
            f"there is no file or block device {target}",
            kind="config",
            field="TARGET",
            hint="name one, as /dev/sdX; `emmclab crash` cuts the power of simulated devices",
        )
    return Direct(Path(target), write=write)


class Direct:
    """A block device or a file, past the page cache (`O_DIRECT`)."""

    def __init__(self, path: Path, *, write: bool) -> None:
        """Open it; for writing a block device must not be in use."""
        self._file = opened_directly(path, write=write)
        self.name = str(path)
        self.size = os.lseek(self._file, 0, os.SEEK_END)
        self._is_block = stat.S_ISBLK(os.fstat(self._file).st_mode)
        self._number = os.fstat(self._file).st_rdev
        self._own = threading.local()

    def _memory(self) -> mmap.mmap:
        """Return memory of this thread; direct I/O needs it aligned to pages, which a mapping is."""
        if not hasattr(self._own, "memory"):
            self._own.memory = mmap.mmap(-1, LONGEST)
        memory: mmap.mmap = self._own.memory
        return memory

    def write(self, at: int, data: bytes, *, through: bool) -> None:
        """Write at a byte."""
        memory = self._memory()
        memory[: len(data)] = data
        with memoryview(memory) as whole, whole[: len(data)] as part:
            moved = os.pwritev(self._file, [part], at, os.RWF_DSYNC if through else 0)
        if moved != len(data):
            raise OSError(errno.EIO, f"{moved} of {len(data)} bytes were written")

    def clear(self, kind: Kind, at: int, length: int) -> None:
        """Trim a range of a block device, or have it write zeros."""
        request = _BLKDISCARD if kind is Kind.TRIM else _BLKZEROOUT
        fcntl.ioctl(self._file, request, struct.pack("=QQ", at, length))

    def flush(self, kind: Kind) -> None:
        """Make durable what was written."""
        (os.fsync if kind is Kind.FSYNC else os.fdatasync)(self._file)

    def read(self, at: int, length: int) -> bytes:
        """Read past the page cache."""
        memory = self._memory()
        with memoryview(memory) as whole, whole[:length] as part:
            moved = os.preadv(self._file, [part], at)
        if moved != length:
            raise OSError(errno.EIO, f"{moved} of {length} bytes were read")
        return memory[:length]

    def can(self, kind: Kind) -> bool:
        """Try it on the first block; of a file the file system would answer, and not the device."""
        if not self._is_block:
            return False
        try:
            self.clear(kind, 0, mmap.PAGESIZE)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                return False
            raise
        return True

    def known(self) -> KnownTarget:
        """Return name, size, and what the device says of itself."""
        return {"name": self.name, "bytes": self.size, "identity": self._identity()}

    def _identity(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self._is_block:
            here = Path(f"/sys/dev/block/{os.major(self._number)}:{os.minor(self._number)}").resolve()
            # Of a partition, the disk says it.
            for folder in (here / "device", here, here.parent / "device", here.parent):
                for name in ("cid", "serial", "wwid", "model", "name"):
                    with contextlib.suppress(OSError):
                        found.setdefault(name, (folder / name).read_text().strip())
        return {name: value for name, value in found.items() if value}

    def disk(self) -> int | None:
        """Return the number of the device whose power is cut, as `st_dev` has it; of a file, of its disk."""
        return self._number if self._is_block else os.fstat(self._file).st_dev

    def close(self) -> None:
        """Close it."""
        os.close(self._file)


class Closing:
    """Closes a target at the end of a block."""

    def __init__(self, target: Target) -> None:
        """Take it."""
        self.target = target

    def __enter__(self) -> Target:
        return self.target

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.target.close()


def refuse_same_disk(target: Target, log: int) -> None:
    """Refuse a log on the device whose power is cut: its own syncs would make durable what is tested.

    Raises:
        ConfigError: it is there.
    """
    disk = target.disk() if isinstance(target, Direct) else None
    about = os.fstat(log)
    if disk is not None and stat.S_ISREG(about.st_mode) and about.st_dev in _parts_of(disk):
        raise ConfigError(
            f"the log is on the device that is tested, {target.name}",
            kind="config",
            field="--log",
            hint="name a file on another disk, or `--log -` and keep what it prints on another machine",
        )


def _parts_of(disk: int) -> set[int]:
    """Return the numbers of a disk and its partitions, also where a partition is named."""
    here = Path(f"/sys/dev/block/{os.major(disk)}:{os.minor(disk)}")
    found = {disk}
    if here.exists():
        here = here.resolve()
        whole = here.parent if (here / "partition").exists() else here
        for number in (whole / "dev", *whole.glob("*/dev")):
            with contextlib.suppress(OSError, ValueError):
                major, minor = number.read_text().split(":")
                found.add(os.makedev(int(major), int(minor)))
    return found


def lost_io(name: str, error: OSError) -> InputError:
    """Return the error of a target that cannot be read back."""
    return InputError(
        f"{name}: it cannot be read: {error.strerror or error}",
        kind="io",
        file=name,
        errno=error.errno,
        hint="bring its power back, and see `dmesg`; a device that stays so did not survive the cut",
    )
