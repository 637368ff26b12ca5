"""Recording another machine over ssh or adb: a signal ends each wait at once, and nothing recorded is lost.

Programs in a folder of the test replace `ssh` and `adb`, and a thread of the test replaces the adb server.
"""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from conftest import PATIENCE_S, begin, emmclab_json, environment, instances, wait_until

#: Maximum time from a signal to the end of a wait: at once, but the machine may be busy.
AT_ONCE_S = 20
#: A replacement for ssh: runs the command for the other machine here.
HERE = 'for last; do :; done\nexec sh -c "$last"\n'
#: A replacement for ssh or adb that does not answer.
SILENT = f"exec sleep {2 * PATIENCE_S}\n"


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)


@contextmanager
def adb_server(answers: bool) -> Iterator[int]:
    """Serve the protocol of the adb server, or accept connections and say nothing; yield the port."""
    listening = socket.create_server(("127.0.0.1", 0))
    open_ones = []

    def text(client: socket.socket) -> str:
        length = int(client.recv(4, socket.MSG_WAITALL), 16)
        return client.recv(length, socket.MSG_WAITALL).decode()

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            open_ones.append(client)
            if answers:
                assert text(client).startswith("host:transport")
                client.sendall(b"OKAY")
                command = text(client).removeprefix("exec:")
                client.sendall(b"OKAY")
                subprocess.Popen(["sh", "-c", command], stdin=client, stdout=client)
                client.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        # On Linux, this ends an `accept` that waits.
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()
        for client in open_ones:
            client.close()


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def begun(folder: Path, *words: str, port: int = 1) -> subprocess.Popen[str]:
    env = environment(PATH=f"{folder}:{os.environ['PATH']}", ANDROID_ADB_SERVER_PORT=str(port))
    # The programs that it starts have these open, too, so pipes would not end with the command.
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
        return begin(*words, cwd=folder, stdout=out, stderr=err, env=env, start_new_session=True)


def ended(process: subprocess.Popen[str], number: signal.Signals) -> int:
    """Send a signal; return the exit status, and fail if the end takes long or a program is left."""
    process.send_signal(number)
    try:
        status = process.wait(AT_ONCE_S)
        of_session = ["ps", "--no-headers", "-s", str(process.pid), "-o", "args"]
        end = time.monotonic() + AT_ONCE_S
        while (left := subprocess.run(of_session, capture_output=True, text=True).stdout) and (time.monotonic() < end):
            time.sleep(0.05)
        assert not left
        return status
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("words", [("record", "-o", "x.parquet"), ("top",)], ids=["record", "top"])
@pytest.mark.parametrize("wait", ["ssh", "adb-program", "adb-server"])
def test_a_signal_ends_a_wait_for_a_machine_at_once_and_leaves_no_program(
    tmp_path: Path, words: tuple[str, ...], wait: str, number: signal.Signals, status: int
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    waiting = folder / "waiting"
    for name in ("ssh", "adb"):
        program(folder, name, f"touch {waiting}\n{SILENT}")
    with adb_server(answers=False) as silent:
        if wait == "ssh":
            process = begun(folder, *words, "--ssh", "board")
        else:
            process = begun(folder, *words, "--adb", port=silent if wait == "adb-server" else closed_port())
        if wait == "adb-server":
            wait_until(lambda: _connected(process.pid, silent), process)
        else:
            wait_until(waiting.exists, process)
        assert ended(process, number) == status
    assert "Traceback" not in (folder / "stderr").read_text()
    assert not (folder / "x.parquet").exists()


def _connected(pid: int, port: int) -> bool:
    """Return whether a process is connected to a port of this machine."""
    remote = f"0100007F:{port:04X}"
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()
    return any(line.split()[2] == remote for line in lines[1:])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("way", ["ssh", "adb"])
def test_a_signal_ends_a_recording_of_another_machine_with_all_its_requests(
    loop: str, tmp_path: Path, way: str, number: signal.Signals
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    program(folder, "ssh", HERE)
    reach = ("--ssh", "board") if way == "ssh" else ("--adb",)
    with adb_server(answers=True) as port:
        process = begun(folder, "record", *reach, "--device", loop, "-o", "x.parquet", port=port)
        wait_until(lambda: "recording" in (folder / "stderr").read_text(), process)
        read = ["dd", f"if={loop}", "of=/dev/null", "bs=64k", "count=20", "iflag=direct", "status=none"]
        subprocess.run(read, check=True)
        assert ended(process, number) == 0
    profiled = emmclab_json("profile", folder / "x.parquet", "--only", "process=dd")[0]
    assert profiled["requests"] == 20
    wait_until(lambda: not instances(loop))
