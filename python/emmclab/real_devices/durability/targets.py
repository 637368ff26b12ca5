"""Targets of the durability test: a block device, a file, or a disk over NBD (QEMU, `emmclab serve`)."""

import contextlib
import errno
import fcntl
import mmap
import os
import socket
import stat
import struct
import threading
from pathlib import Path
from typing import Protocol, TypedDict
from urllib.parse import parse_qs, unquote, urlsplit

from emmclab.errors import ConfigError, InputError
from emmclab.real_devices.durability.records import Kind
from emmclab.real_devices.probe import open_direct


class TargetIdentity(TypedDict):
    """Properties of a target; `identity` contains what the device reports about itself, by name."""

    name: str
    bytes: int
    identity: dict[str, str]


_GREETING = struct.Struct(">8sQH")
_OPTION = struct.Struct(">QII")
_OPTION_REPLY = struct.Struct(">QIII")
_EXPORT = struct.Struct(">HQH")
_REQUEST = struct.Struct(">IHHQQI")
_REPLY = struct.Struct(">IIQ")
_NBD_MAGIC, _OPTION_MAGIC, _OPTION_REPLY_MAGIC = b"NBDMAGIC", 0x49484156454F5054, 0x3E889045565A9
_REQUEST_MAGIC, _REPLY_MAGIC = 0x25609513, 0x67446698
_GO, _ACK, _INFO, _ERROR = 7, 1, 3, 1 << 31
_READ, _WRITE, _FLUSH, _TRIM, _WRITE_ZEROES = 0, 1, 3, 4, 6
_FUA = 1
_READ_ONLY, _CAN_FLUSH, _CAN_FUA, _CAN_TRIM, _CAN_ZERO = 1 << 1, 1 << 2, 1 << 3, 1 << 5, 1 << 6
_PORT = 10809
#: Timeout for an answer of the NBD server, seconds.
_PATIENCE_S = 60.0


def is_nbd(target: str) -> bool:
    """Return whether a target is the address of a disk over NBD.

    >>> is_nbd("nbd+unix:///?socket=/run/disk.sock"), is_nbd("/dev/sdb")
    (True, False)
    """
    return target.startswith(("nbd://", "nbd+unix://"))


class Nbd:
    """A disk over NBD; each thread has its own connection."""

    def __init__(self, address: str) -> None:
        """Connect to the NBD server at this address."""
        self.name = address
        self._own = threading.local()
        self._connections: list[socket.socket] = []
        try:
            self._connection()
        except (OSError, ValueError, struct.error) as error:
            raise InputError(
                f"{address}: no NBD server answers: {getattr(error, 'strerror', None) or error}",
                file=address,
                errno=getattr(error, "errno", None),
                hint="give the NBD address as nbd+unix:///?socket=PATH or nbd://HOST:PORT; TLS is not supported",
            ) from error
        if not self._flags & _CAN_FLUSH or self._flags & _READ_ONLY:
            raise ConfigError(
                f"{address}: this disk cannot be {'written' if self._flags & _READ_ONLY else 'flushed'}",
                field="TARGET",
                hint="serve the disk writable, with a cache that can be flushed",
            )

    def _connection(self) -> socket.socket:
        if not hasattr(self._own, "connection"):
            opened = _connected(self.name)
            opened.settimeout(_PATIENCE_S)
            self._connections.append(opened)
            self.size, self._flags = _negotiated(opened, unquote(urlsplit(self.name).path.lstrip("/")))
            self._own.connection = opened
        connection: socket.socket = self._own.connection
        return connection

    def _ask(self, command: int, offset: int, length: int, data: bytes = b"", flags: int = 0) -> bytes:
        connection = self._connection()
        connection.sendall(_REQUEST.pack(_REQUEST_MAGIC, flags, command, 0, offset, length) + data)
        magic, failed, _ = _REPLY.unpack(_received(connection, _REPLY.size))
        if magic != _REPLY_MAGIC:
            raise OSError(errno.EPROTO, "the NBD server does not send a simple reply")
        if failed:
            raise OSError(failed, "the NBD server reports an error")
        return _received(connection, length) if command == _READ else b""

    def write(self, offset: int, data: bytes, *, through: bool) -> None:
        """Write at a byte offset; `through` uses FUA, or a flush if the server does not support FUA."""
        has_fua = bool(self._flags & _CAN_FUA)
        self._ask(_WRITE, offset, len(data), data, _FUA if through and has_fua else 0)
        if through and not has_fua:
            self.flush(Kind.FDATASYNC)

    def clear(self, kind: Kind, offset: int, length: int) -> None:
        """Trim a range, or make the server write zeros to it."""
        self._ask(_TRIM if kind is Kind.TRIM else _WRITE_ZEROES, offset, length)

    def flush(self, kind: Kind) -> None:
        """Make all earlier writes durable."""
        del kind  # NBD has only one flush command.
        self._ask(_FLUSH, 0, 0)

    def read(self, offset: int, length: int) -> bytes:
        """Read from the server."""
        return self._ask(_READ, offset, length)

    def can(self, kind: Kind) -> bool:
        """Return whether the server supports trim or write-zeroes commands."""
        return bool(self._flags & (_CAN_TRIM if kind is Kind.TRIM else _CAN_ZERO))

    def identity(self) -> TargetIdentity:
        """Return name and size; the protocol reports nothing more."""
        return {"name": self.name, "bytes": self.size, "identity": {}}

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.close()


def _connected(address: str) -> socket.socket:
    parts = urlsplit(address)
    if parts.scheme == "nbd":
        return socket.create_connection((parts.hostname or "localhost", parts.port or _PORT), _PATIENCE_S)
    (path,) = parse_qs(parts.query).get("socket", [""])
    unix_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        unix_socket.connect(path)
    except OSError:
        unix_socket.close()
        raise
    return unix_socket


def _negotiated(connection: socket.socket, export: str) -> tuple[int, int]:
    """Negotiate the use of an NBD export; return its size in bytes and its transmission flags."""
    magic, option_magic, offered = _GREETING.unpack(_received(connection, _GREETING.size))
    if magic != _NBD_MAGIC or option_magic != _OPTION_MAGIC:
        raise OSError(errno.EPROTO, "the NBD server does not use the newstyle protocol")
    name = export.encode()
    body = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
    # The client accepts those handshake flags of the NBD server that it knows: fixed newstyle and no zeroes.
    connection.sendall(struct.pack(">I", offered & 3) + _OPTION.pack(_OPTION_MAGIC, _GO, len(body)) + body)
    size_and_flags = None
    while True:
        reply_magic, _, kind, length = _OPTION_REPLY.unpack(_received(connection, _OPTION_REPLY.size))
        payload = _received(connection, length)
        if reply_magic != _OPTION_REPLY_MAGIC or kind & _ERROR:
            raise OSError(errno.EPROTO, f"the server refuses the disk `{export}`: {payload.decode(errors='replace')}")
        if kind == _INFO and length == _EXPORT.size and payload[:2] == b"\0\0":
            _, size, flags = _EXPORT.unpack(payload)
            size_and_flags = size, flags
        if kind == _ACK:
            break
    if size_and_flags is None:
        raise OSError(errno.EPROTO, "the NBD server does not report the size of the disk")
    return size_and_flags


def _received(connection: socket.socket, length: int) -> bytes:
    parts, missing = [], length
    while missing:
        part = connection.recv(min(missing, 1 << 20))
        if not part:
            raise OSError(errno.ECONNRESET, "the NBD server has closed the connection")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


#: ioctl requests of <linux/fs.h> that discard or zero a range of blocks.
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

    def write(self, offset: int, data: bytes, *, through: bool) -> None:
        """Write at a byte offset; with `through` (FUA) the data is durable when this returns."""

    def clear(self, kind: Kind, offset: int, length: int) -> None:
        """Trim a range, or make the device write zeros to it."""

    def flush(self, kind: Kind) -> None:
        """Flush: make all earlier writes durable."""

    def read(self, offset: int, length: int) -> bytes:
        """Read from the device, not from the page cache."""

    def can(self, kind: Kind) -> bool:
        """Return whether the target supports trim or write-zeroes commands, as tried on its first block."""

    def identity(self) -> TargetIdentity:
        """Return the properties by which the target is recognised."""

    def close(self) -> None:
        """Close the target; errors are ignored, because the device may be gone."""


def open_target(target: str, *, write: bool) -> Target:
    """Open a target: a block device, a file, or `nbd+unix:///?socket=PATH`."""
    if is_nbd(target):
        return Nbd(target)
    if "/" not in target and not Path(target).exists():
        raise ConfigError(
            f"there is no file or block device {target}",
            field="TARGET",
            hint="give a file or block device, such as /dev/sdX; `emmclab crash` cuts the power of simulated devices",
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

    def write(self, offset: int, data: bytes, *, through: bool) -> None:
        """Write at a byte offset."""
        memory = self._memory()
        memory[: len(data)] = data
        with memoryview(memory) as view, view[: len(data)] as part:
            moved = os.pwritev(self._file, [part], offset, os.RWF_DSYNC if through else 0)
        if moved != len(data):
            raise OSError(errno.EIO, f"{moved} of {len(data)} bytes were written")

    def clear(self, kind: Kind, offset: int, length: int) -> None:
        """Trim a range of a block device, or make it write zeros."""
        request = _BLKDISCARD if kind is Kind.TRIM else _BLKZEROOUT
        fcntl.ioctl(self._file, request, struct.pack("=QQ", offset, length))

    def flush(self, kind: Kind) -> None:
        """Make all earlier writes durable."""
        (os.fsync if kind is Kind.FSYNC else os.fdatasync)(self._file)

    def read(self, offset: int, length: int) -> bytes:
        """Read with direct I/O."""
        memory = self._memory()
        with memoryview(memory) as view, view[:length] as part:
            moved = os.preadv(self._file, [part], offset)
        if moved != length:
            raise OSError(errno.EIO, f"{moved} of {length} bytes were read")
        return memory[:length]

    def can(self, kind: Kind) -> bool:
        """Try a command on the first block; return whether the device supports it.

        For a file, return False, because its file system would execute the command instead of the device.
        """
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
        identity: dict[str, str] = {}
        if self._is_block:
            device = Path(f"/sys/dev/block/{os.major(self._number)}:{os.minor(self._number)}").resolve()
            # A partition has the identity of its disk, so the parent folders are searched, too.
            for folder in (device / "device", device, device.parent / "device", device.parent):
                for name in ("cid", "serial", "wwid", "model", "name"):
                    with contextlib.suppress(OSError):
                        identity.setdefault(name, (folder / name).read_text().strip())
        return {name: value for name, value in identity.items() if value}

    def disk(self) -> int | None:
        """Return the device number (`st_dev`) of the disk under test; for a file, of the disk that contains it."""
        return self._number if self._is_block else os.fstat(self._file).st_dev

    def close(self) -> None:
        """Close the file descriptor."""
        with contextlib.suppress(OSError):
            os.close(self._file)


def refuse_same_disk(target: Target, log: int) -> None:
    """Reject a log file on the device under test: syncs of the log would make the test data durable, too."""
    disk = target.disk() if isinstance(target, Direct) else None
    status = os.fstat(log)
    if disk is not None and stat.S_ISREG(status.st_mode) and status.st_dev in _parts_of(disk):
        raise ConfigError(
            f"the log is on the device that is tested, {target.name}",
            field="--log",
            hint="use a file on another disk, or give `--log -` and store the output on another machine",
        )


def _parts_of(disk: int) -> set[int]:
    """Return the device numbers of a disk and all its partitions, given the disk or one of its partitions."""
    device = Path(f"/sys/dev/block/{os.major(disk)}:{os.minor(disk)}")
    numbers = {disk}
    if device.exists():
        device = device.resolve()
        disk_folder = device.parent if (device / "partition").exists() else device
        for number in (disk_folder / "dev", *disk_folder.glob("*/dev")):
            with contextlib.suppress(OSError, ValueError):
                major, minor = number.read_text().split(":")
                numbers.add(os.makedev(int(major), int(minor)))
    return numbers


def lost_io(name: str, error: OSError) -> InputError:
    """Return the error for a target that fails while it is read."""
    return InputError(
        f"{name}: the device cannot be read: {error.strerror or error}",
        file=name,
        errno=error.errno,
        hint="turn the device on again, and read `dmesg`; a device that stays unreadable did not survive the cut",
    )
