"""Targets of the durability test: a block device, a file, or a disk over NBD."""

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

from emmclab.errors import ConfigError, InputError
from emmclab.real_devices.durability.nbd_client import Nbd, is_nbd
from emmclab.real_devices.durability.target_identity import TargetIdentity
from emmclab.real_devices.durability.write_pattern import Kind
from emmclab.real_devices.probe.targets import open_direct

#: ioctl requests of `linux/fs.h`.
_BLKDISCARD, _BLKZEROOUT = 0x1277, 0x127F
#: Maximum length of a transfer, bytes.
LONGEST = 1 << 20
#: Linux error numbers for a request that a device does not support.
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.ENOSYS}


class Target(Protocol):
    """A disk that is written, flushed and read by byte offset.

    Every call raises an `OSError` if the device is gone.
    """

    name: str
    size: int

    def write(self, at: int, data: bytes, *, through: bool) -> None:
        """Write at a byte offset; with `through` (FUA) the data is durable when this returns."""

    def clear(self, kind: Kind, at: int, length: int) -> None:
        """Trim a range, or make the device write zeros to it."""

    def flush(self, kind: Kind) -> None:
        """Flush: make all earlier writes durable."""

    def read(self, at: int, length: int) -> bytes:
        """Read from the device, not from the page cache."""

    def can(self, kind: Kind) -> bool:
        """Return whether the target supports trim, or write zeroes; this is tried on its first block."""

    def identity(self) -> TargetIdentity:
        """Return the properties by which the target is recognised."""

    def close(self) -> None:
        """Close the target."""


def open_target(target: str, *, write: bool) -> Target:
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
            field="TARGET",
            hint="name one, as /dev/sdX; `emmclab crash` cuts the power of simulated devices",
        )
    return Direct(Path(target), write=write)


class Direct:
    """A block device or a file, accessed with direct I/O (`O_DIRECT`)."""

    def __init__(self, path: Path, *, write: bool) -> None:
        """Open the target; for writing, a block device must not be in use."""
        self._file = open_direct(path, write=write)
        self.name = str(path)
        self.size = os.lseek(self._file, 0, os.SEEK_END)
        self._is_block = stat.S_ISBLK(os.fstat(self._file).st_mode)
        self._number = os.fstat(self._file).st_rdev
        self._own = threading.local()

    def _memory(self) -> mmap.mmap:
        """Return the buffer of this thread. Direct I/O needs it aligned to pages, so it is a mapping."""
        if not hasattr(self._own, "memory"):
            self._own.memory = mmap.mmap(-1, LONGEST)
        memory: mmap.mmap = self._own.memory
        return memory

    def write(self, at: int, data: bytes, *, through: bool) -> None:
        """Write at a byte offset."""
        memory = self._memory()
        memory[: len(data)] = data
        with memoryview(memory) as whole, whole[: len(data)] as part:
            moved = os.pwritev(self._file, [part], at, os.RWF_DSYNC if through else 0)
        if moved != len(data):
            raise OSError(errno.EIO, f"{moved} of {len(data)} bytes were written")

    def clear(self, kind: Kind, at: int, length: int) -> None:
        """Trim a range of a block device, or make it write zeros."""
        request = _BLKDISCARD if kind is Kind.TRIM else _BLKZEROOUT
        fcntl.ioctl(self._file, request, struct.pack("=QQ", at, length))

    def flush(self, kind: Kind) -> None:
        """Make all earlier writes durable."""
        (os.fsync if kind is Kind.FSYNC else os.fdatasync)(self._file)

    def read(self, at: int, length: int) -> bytes:
        """Read with direct I/O."""
        memory = self._memory()
        with memoryview(memory) as whole, whole[:length] as part:
            moved = os.preadv(self._file, [part], at)
        if moved != length:
            raise OSError(errno.EIO, f"{moved} of {length} bytes were read")
        return memory[:length]

    def can(self, kind: Kind) -> bool:
        """Try it on the first block; False for a file, where the file system would answer, not the device."""
        if not self._is_block:
            return False
        try:
            self.clear(kind, 0, mmap.PAGESIZE)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                return False
            raise
        return True

    def identity(self) -> TargetIdentity:
        """Return the name, the size, and the identity that the device reports."""
        return {"name": self.name, "bytes": self.size, "identity": self._identity()}

    def _identity(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self._is_block:
            here = Path(f"/sys/dev/block/{os.major(self._number)}:{os.minor(self._number)}").resolve()
            # A partition has the identity of its disk.
            for folder in (here / "device", here, here.parent / "device", here.parent):
                for name in ("cid", "serial", "wwid", "model", "name"):
                    with contextlib.suppress(OSError):
                        found.setdefault(name, (folder / name).read_text().strip())
        return {name: value for name, value in found.items() if value}

    def disk(self) -> int | None:
        """Return the device number (`st_dev`) of the disk whose power is cut; for a file, of its disk."""
        return self._number if self._is_block else os.fstat(self._file).st_dev

    def close(self) -> None:
        """Close it."""
        os.close(self._file)


class Closing:
    """Context manager that closes a target."""

    def __init__(self, target: Target) -> None:
        """Wrap the target."""
        self.target = target

    def __enter__(self) -> Target:
        return self.target

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.target.close()


def refuse_same_disk(target: Target, log: int) -> None:
    """Reject a log on the device whose power is cut: syncs of the log would make the test data durable.

    Raises:
        ConfigError: the log is on that device.
    """
    disk = target.disk() if isinstance(target, Direct) else None
    about = os.fstat(log)
    if disk is not None and stat.S_ISREG(about.st_mode) and about.st_dev in _parts_of(disk):
        raise ConfigError(
            f"the log is on the device that is tested, {target.name}",
            field="--log",
            hint="name a file on another disk, or give `--log -` and store the output on another machine",
        )


def _parts_of(disk: int) -> set[int]:
    """Return the device numbers of a disk and all its partitions, given the disk or one of its partitions."""
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
    """Return the error for a target that cannot be read."""
    return InputError(
        f"{name}: it cannot be read: {error.strerror or error}",
        file=name,
        errno=error.errno,
        hint="turn its power on again, and read `dmesg`; a device that stays unreadable did not survive the cut",
    )
