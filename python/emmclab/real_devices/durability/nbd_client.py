"""A disk over NBD (github.com/NetworkBlockDevice/nbd, doc/proto.md), as QEMU and `emmclab serve` offer it."""

import errno
import socket
import struct
import threading
from urllib.parse import parse_qs, unquote, urlsplit

from emmclab.errors import ConfigError, InputError
from emmclab.real_devices.durability.target_identity import TargetIdentity
from emmclab.real_devices.durability.write_pattern import Kind

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
#: Timeout for an answer of the server, seconds.
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
        """Connect.

        Raises:
            ConfigError: the address is wrong, or the export cannot be used.
            InputError: no server answers.
        """
        self.name = address
        self._own = threading.local()
        self._connections: list[socket.socket] = []
        try:
            self._connection()
        except (OSError, ValueError, struct.error) as error:
            raise InputError(
                f"{address}: no NBD server answers there: {getattr(error, 'strerror', None) or error}",
                file=address,
                errno=getattr(error, "errno", None),
                hint="name one as nbd+unix:///?socket=PATH or nbd://HOST:PORT; TLS is not supported",
            ) from error
        if not self._flags & _CAN_FLUSH or self._flags & _READ_ONLY:
            raise ConfigError(
                f"{address}: this disk cannot be {'written' if self._flags & _READ_ONLY else 'flushed'}",
                field="TARGET",
                hint="serve it writable, with a cache that can be flushed",
            )

    def _connection(self) -> socket.socket:
        if not hasattr(self._own, "connection"):
            made = _connected(self.name)
            made.settimeout(_PATIENCE_S)
            self._connections.append(made)
            self.size, self._flags = _negotiated(made, unquote(urlsplit(self.name).path.lstrip("/")))
            self._own.connection = made
        connection: socket.socket = self._own.connection
        return connection

    def _ask(self, command: int, at: int, length: int, data: bytes = b"", flags: int = 0) -> bytes:
        connection = self._connection()
        connection.sendall(_REQUEST.pack(_REQUEST_MAGIC, flags, command, 0, at, length) + data)
        magic, failed, _ = _REPLY.unpack(_received(connection, _REPLY.size))
        if magic != _REPLY_MAGIC:
            raise OSError(errno.EPROTO, "the NBD server does not send a simple reply")
        if failed:
            raise OSError(failed, "the NBD server reports an error")
        return _received(connection, length) if command == _READ else b""

    def write(self, at: int, data: bytes, *, through: bool) -> None:
        """Write at a byte offset; `through` uses FUA, or a flush if the server does not support FUA."""
        has_fua = bool(self._flags & _CAN_FUA)
        self._ask(_WRITE, at, len(data), data, _FUA if through and has_fua else 0)
        if through and not has_fua:
            self.flush(Kind.FDATASYNC)

    def clear(self, kind: Kind, at: int, length: int) -> None:
        """Trim a range, or make the server write zeros to it."""
        self._ask(_TRIM if kind is Kind.TRIM else _WRITE_ZEROES, at, length)

    def flush(self, kind: Kind) -> None:
        """Make all earlier writes durable."""
        del kind  # NBD has one flush.
        self._ask(_FLUSH, 0, 0)

    def read(self, at: int, length: int) -> bytes:
        """Read from the server."""
        return self._ask(_READ, at, length)

    def can(self, kind: Kind) -> bool:
        """Whether the server supports trim, or write zeroes."""
        return bool(self._flags & (_CAN_TRIM if kind is Kind.TRIM else _CAN_ZERO))

    def identity(self) -> TargetIdentity:
        """Return name and size; the protocol reports nothing more."""
        return {"name": self.name, "bytes": self.size, "identity": {}}

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            connection.close()


def _connected(address: str) -> socket.socket:
    parts = urlsplit(address)
    if parts.scheme == "nbd":
        return socket.create_connection((parts.hostname or "localhost", parts.port or _PORT), _PATIENCE_S)
    (path,) = parse_qs(parts.query).get("socket", [""])
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.connect(path)
    except OSError:
        made.close()
        raise
    return made


def _negotiated(connection: socket.socket, export: str) -> tuple[int, int]:
    """Negotiate the use of an export; return its size in bytes and its transmission flags."""
    magic, option_magic, offered = _GREETING.unpack(_received(connection, _GREETING.size))
    if magic != _NBD_MAGIC or option_magic != _OPTION_MAGIC:
        raise OSError(errno.EPROTO, "this is no NBD server with options")
    name = export.encode()
    body = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
    # The client accepts the two handshake flags of the server that it knows: fixed newstyle, and no zeroes.
    connection.sendall(struct.pack(">I", offered & 3) + _OPTION.pack(_OPTION_MAGIC, _GO, len(body)) + body)
    found = None
    while True:
        reply_magic, _, kind, length = _OPTION_REPLY.unpack(_received(connection, _OPTION_REPLY.size))
        said = _received(connection, length)
        if reply_magic != _OPTION_REPLY_MAGIC or kind & _ERROR:
            raise OSError(errno.EPROTO, f"it refuses the disk `{export}`: {said.decode(errors='replace')}")
        if kind == _INFO and length == _EXPORT.size and said[:2] == b"\0\0":
            _, size, flags = _EXPORT.unpack(said)
            found = size, flags
        if kind == _ACK:
            break
    if found is None:
        raise OSError(errno.EPROTO, "it does not tell the size of the disk")
    return found


def _received(connection: socket.socket, length: int) -> bytes:
    parts, left = [], length
    while left:
        part = connection.recv(min(left, 1 << 20))
        if not part:
            raise OSError(errno.ECONNRESET, "the NBD server has closed the connection")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
