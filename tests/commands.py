"""Runs the command line in processes that are forked from one that has already imported it.

A test suite starts thousands of commands, and a short command spends most of its time in Python's start and imports.
`Commands.run` returns the same as `subprocess.run` of `python -m emmclab`: each command has its own process,
standard streams, folder, environment and exit, and enters at `emmclab.__main__`. Only the imports are shared.
Variables that are read when Python starts cannot be changed for one command; `Commands.can_run` detects that.
"""

import atexit
import contextlib
import functools
import importlib
import json
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

#: Names, or prefixes of names, of variables that Python, the libraries and modules read when they start.
_READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC", "PATH", "EMMCLAB_TESTED_CORE")


class Commands:
    """Runs commands in processes that are forked from one process, which starts with the first command."""

    def __init__(self, env: dict[str, str]) -> None:
        """Set the environment of most commands."""
        self._env = env

    def can_run(self, env: dict[str, str], options: dict[str, Any]) -> bool:
        """Return whether a command with this environment and these `subprocess.run` options can be forked."""
        changed = {name for name in env.keys() | self._env if env.get(name) != self._env.get(name)}
        return options.keys() <= {"cwd", "input", "umask"} and not any(
            name.startswith(_READ_AT_START) for name in changed
        )

    def run(
        self,
        command: list[str],
        env: dict[str, str],
        timeout: float,
        cwd: str | os.PathLike[str] | None = None,
        input: str | None = None,  # noqa: A002: the name of `subprocess.run`
        umask: int = -1,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, `[sys.executable, "-m", "emmclab", ...]`; return its status and output.

        Raises:
            subprocess.TimeoutExpired: it took longer, and was killed.
        """
        request = {"words": command[3:], "cwd": os.fspath(cwd or Path.cwd()), "env": env, "umask": umask}
        with contextlib.ExitStack() as owned:
            connection = owned.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(self._address)
            # Without input, commands inherit the standard input of the tests, as with `subprocess.run`.
            stdin, feed = os.pipe() if input is not None else (os.dup(0), os.open(os.devnull, os.O_WRONLY))
            (read_out, write_out), (read_err, write_err) = os.pipe(), os.pipe()
            streams = [
                owned.enter_context(os.fdopen(descriptor, encoding="utf-8")) for descriptor in (read_out, read_err)
            ]
            fed = os.fdopen(feed, "w", encoding="utf-8")
            descriptors = [stdin, write_out, write_err]
            body = json.dumps(request).encode()
            socket.send_fds(connection, [len(body).to_bytes(4, "little")], descriptors)
            connection.sendall(body)
            for descriptor in descriptors:
                os.close(descriptor)
            texts = ["", ""]

            def read(number: int) -> None:
                texts[number] = streams[number].read()

            readers = [threading.Thread(target=read, args=(number,), daemon=True) for number in range(2)]
            for reader in readers:
                reader.start()
            with contextlib.suppress(BrokenPipeError), fed:
                fed.write(input or "")
            answers = owned.enter_context(connection.makefile())
            pid = int(answers.readline())
            in_time, _, _ = select.select([connection], [], [], timeout)
            if not in_time:
                os.kill(pid, signal.SIGKILL)
            status = int(answers.readline())
            for reader in readers:
                reader.join()
        if not in_time:
            raise subprocess.TimeoutExpired(command, timeout, *texts)
        return subprocess.CompletedProcess(command, status, *texts)

    @functools.cached_property
    def _address(self) -> str:
        """Return the socket of the process from which commands are forked."""
        folder = tempfile.mkdtemp(prefix="emmclab-commands-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{folder}/socket")
            listener.listen(64)
            # The forking process ends when this pipe is closed, which also happens if this process is killed.
            ends, _held = os.pipe()
            passed = (listener.fileno(), ends)
            words = [sys.executable, __file__, *map(str, passed)]
            subprocess.Popen(words, pass_fds=passed, env=self._env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            os.close(ends)
        return f"{folder}/socket"


def _serve(listener: socket.socket, ends: int) -> dict[str, Any]:
    """Fork commands until the tests end. In a forked command, return its request."""
    commands: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready, _, _ = select.select([listener, ends, *commands], [], [])
        for ready_socket in ready:
            if ready_socket == ends:
                os._exit(0)
            if ready_socket is listener:
                connection, _ = listener.accept()
                head, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
                with connection.makefile("rb") as body:
                    request: dict[str, Any] = json.loads(body.read(int.from_bytes(head, "little")))
                pid = os.fork()
                if pid == 0:
                    for number, stream in enumerate(descriptors):
                        os.dup2(stream, number)
                    for other in (listener.fileno(), ends, connection.fileno(), *descriptors, *commands):
                        os.close(other)
                    for _, other in commands.values():
                        other.close()
                    connection.detach()
                    listener.detach()
                    return request
                for stream in descriptors:
                    os.close(stream)
                connection.sendall(f"{pid}\n".encode())
                commands[os.pidfd_open(pid)] = (pid, connection)
                continue
            pid, connection = commands.pop(ready_socket)
            os.close(ready_socket)
            _, status = os.waitpid(pid, 0)
            with contextlib.suppress(OSError):
                connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
            connection.close()


def _main() -> NoReturn:
    import emmclab

    for module in pkgutil.walk_packages(emmclab.__path__, "emmclab."):
        importlib.import_module(module.name)
    # A forked process has only the thread that forked it.
    import gc

    gc.collect()
    gc.freeze()
    threads = list(Path("/proc/self/task").iterdir())
    if len(threads) > 1:
        sys.exit(f"imports of the package have started {len(threads) - 1} threads: {__file__} cannot fork")
    request = _serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
    os.chdir(request["cwd"])
    if request["umask"] >= 0:
        os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.argv = ["emmclab", *request["words"]]
    # `python -m` puts the folder of the command first in the path.
    sys.path[0] = request["cwd"]
    del sys.modules["emmclab.__main__"]
    status: object = 0
    try:
        runpy.run_module("emmclab", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code
    # The process ends without finalization, in which libraries that the command has not used would report leaks.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(status if isinstance(status, int) else 1)


if __name__ == "__main__":
    _main()
