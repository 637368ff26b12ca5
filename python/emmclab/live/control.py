"""The control socket of a served device: each request and each reply is a line of JSON."""

import contextlib
import errno
import json
import os
import selectors
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from emmclab.errors import ConfigError, EmmclabError, InputError
from emmclab.runtime.files import lock

#: Maximum length of a line from a client, bytes.
_MOST = 4096
#: Time limit for a client to send its line, and interval between checks for it, seconds.
_PATIENCE_S, _LOOK_S = 5.0, 0.1
#: Maximum number of connected clients; a further client replaces the oldest one.
_MOST_CLIENTS = 64
#: Time for which a client waits for the answer, seconds; long, because layers may have to recover first.
_ANSWER_S = 60.0

COMMANDS = ("status", "cut", "restore", "set", "stop")


class Reply(TypedDict):
    """The answer to a request: the figures of the device, or an error with its hint."""

    ok: bool
    #: Status of the device, with the fields of `LiveStatus`.
    status: NotRequired[dict[str, Any]]
    error: NotRequired[str]
    hint: NotRequired[str | None]


class Control:
    """Answers `status`, `cut`, `restore`, `set` and `stop` on a unix socket that only this user can reach."""

    def __init__(self, live: Any, path: Path, stop: Callable[[], None]) -> None:
        """Listen on a socket at `path`; `stop` is called when a client requests the end."""
        self._live, self._path, self._stop = live, path, stop
        self._socket = _bound(path)
        self._over = False
        self._thread = threading.Thread(target=self._serve, name="emmclab-control", daemon=True)

    def __enter__(self) -> "Control":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._thread.join()
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        """Answer each client when it has sent its line; disconnect clients that send none in time."""
        with selectors.DefaultSelector() as waiting, contextlib.ExitStack() as cleanup:
            waiting.register(self._socket, selectors.EVENT_READ)
            # By client: the bytes received so far and the deadline for the rest; oldest client first.
            clients: dict[socket.socket, tuple[bytes, float]] = {}

            def drop(client: socket.socket) -> None:
                waiting.unregister(client)
                del clients[client]
                client.close()

            def drop_all() -> None:
                for client in list(clients):
                    drop(client)

            cleanup.callback(drop_all)
            while not self._over:
                for key, _ in waiting.select(_LOOK_S):
                    if key.fileobj is self._socket:
                        for client in self._accepted():
                            if len(clients) == _MOST_CLIENTS:
                                drop(next(iter(clients)))
                            waiting.register(client, selectors.EVENT_READ)
                            clients[client] = b"", time.monotonic() + _PATIENCE_S
                        continue
                    client = cast("socket.socket", key.fileobj)
                    if client not in clients:
                        continue
                    received, deadline = clients[client]
                    with contextlib.suppress(OSError):  # The client has disconnected; others are not affected.
                        data = client.recv(_MOST - len(received))
                        received += data
                        if data and b"\n" not in received and len(received) < _MOST:
                            clients[client] = received, deadline
                            continue
                        # This does not block, because the answer fits into the buffer of the socket.
                        client.sendall(json.dumps(self._answer(received.split(b"\n")[0])).encode() + b"\n")
                    drop(client)
                now = time.monotonic()
                for client in [client for client, (_, deadline) in clients.items() if deadline < now]:
                    drop(client)

    def _accepted(self) -> Iterator[socket.socket]:
        """Yield each client that waits for a connection."""
        with contextlib.suppress(OSError):  # No further client waits, or it has disconnected.
            while True:
                client, _ = self._socket.accept()
                client.setblocking(False)
                yield client

    def _answer(self, line: bytes) -> Reply:
        try:
            request = json.loads(line)
            if not isinstance(request, dict) or request.get("command") not in COMMANDS:
                raise ConfigError("there is no such command", field="command", hint=f"use one of {', '.join(COMMANDS)}")
            match request["command"]:
                case "status":
                    return {"ok": True, "status": dict(self._live.stats())}
                case "cut":
                    self._live.cut()
                case "restore":
                    self._live.restore()
                case "set":
                    self._live.set(str(request.get("key")), str(request.get("value")))
                case _:
                    self._stop()
        except EmmclabError as error:
            return {"ok": False, "error": str(error), "hint": error.hint}
        except (ValueError, RecursionError):
            return {"ok": False, "error": "the line is not JSON", "hint": 'send {"command": "status"}'}
        except Exception as error:  # A bug in one command; the socket continues to answer other commands.
            return {"ok": False, "error": f"this is a bug in emmclab ({type(error).__name__}: {error})"}
        return {"ok": True}


def _bound(path: Path) -> socket.socket:
    folder = path.absolute().parent
    try:
        status = folder.stat()
    except FileNotFoundError:
        raise ConfigError("its folder does not exist", hint="create the folder").in_file(str(path)) from None
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022:
        raise ConfigError(
            "other users can write to the folder of the socket",
            hint="use a folder to which only you can write, such as $XDG_RUNTIME_DIR",
        ).in_file(str(path))
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The file mode is set before `bind` creates the file, so that no other user can connect in the meantime.
    os.fchmod(listening.fileno(), 0o600)
    try:
        with _locked(folder):
            _remove_stale(path)
            listening.bind(str(path))
    except OSError as error:
        listening.close()
        in_use = error.errno == errno.EADDRINUSE
        raise ConfigError(
            f"the socket cannot be created: {error.strerror or error}",
            hint="another process listens on it, or the file is not a socket: use another path"
            if in_use
            else "use a folder to which only you can write, and a path of at most 107 bytes",
        ).in_file(str(path)) from None
    listening.listen()
    listening.setblocking(False)
    return listening


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder, so that no other process creates a control socket in it at the same time."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        lock(handle, wait=True)
        yield
    finally:
        os.close(handle)


def _remove_stale(path: Path) -> None:
    """Remove a socket of this user on which no process listens any more, such as after a kill."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_PATIENCE_S)
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except OSError:  # In use, perhaps by a process that is too busy to answer.
            return


def _connect(client: socket.socket, path: Path) -> None:
    """Connect to a socket; retry for some seconds while the server's queue of waiting clients is full."""
    client.setblocking(False)
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            client.connect(str(path))
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_S)
        else:
            return


def ask(path: Path, command: str, **fields: str) -> Reply:
    """Send a command to a control socket; return the answer."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            _connect(client, path)
            client.settimeout(_ANSWER_S)
            client.sendall(json.dumps({"command": command, **fields}).encode() + b"\n")
            line = client.makefile("rb").readline()
        answer = json.loads(line) if line else {"ok": False, "error": "no answer arrived"}
        if not isinstance(answer, dict) or "ok" not in answer:
            raise ValueError("the answer on the socket is not from emmclab")
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None)
        if isinstance(error, TimeoutError):
            reason = f"no answer arrived within {_ANSWER_S:.0f} s"
        raise InputError(
            f"no served device answers: {reason or error}", hint="give the socket of `emmclab serve --control`"
        ).in_file(str(path)) from None
    if not answer["ok"]:
        raise ConfigError(str(answer.get("error")), hint=answer.get("hint"))
    return cast("Reply", answer)
