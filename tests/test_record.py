"""Recording this or another host on the command line, and the live view, without losing recorded data."""

import fcntl
import json
import os
import pty
import select
import signal
import socket
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conftest import (
    COMMAND,
    PATIENCE_S,
    assert_fails,
    assert_refused,
    begin,
    emmclab,
    emmclab_json,
    emmclab_ok,
    environment,
    executable,
    execute,
    instances,
    wait_until,
)
from emmclab.cli.machine_options import _mount_point
from emmclab.cli.top import Interval


def _read(loop: str, blocks: int, size: str = "64k") -> None:
    execute("dd", f"if={loop}", "of=/dev/null", f"bs={size}", f"count={blocks}", "iflag=direct", "status=none")


@contextmanager
def mounted(loop: str, tmp_path: Path) -> Iterator[Path]:
    """Yield the folder where a new ext4 of a loop device is mounted."""
    folder = tmp_path / "mnt"
    folder.mkdir()
    execute("mkfs.ext4", "-q", loop)
    execute("mount", loop, folder)
    try:
        yield folder
    finally:
        execute("umount", folder)


def _recording(loop: str, path: Path, *more: str) -> subprocess.Popen[str]:
    """Start a recording, and wait until it records."""
    recording = begin("record", "--device", loop, "-o", path, *more)
    assert recording.stderr and "recording" in recording.stderr.readline()
    return recording


def _sectors_written(loop: str) -> int:
    return int(Path(f"/sys/block/{loop.removeprefix('/dev/')}/stat").read_text().split()[6])


def test_a_command_is_recorded_whole_and_nothing_is_left_behind(loop: str, tmp_path: Path) -> None:
    before = _sectors_written(loop)
    path = tmp_path / "x.parquet"
    write = ["dd", "if=/dev/zero", f"of={loop}", "bs=64k", "count=32", "oflag=direct", "status=none"]
    done = emmclab_ok("record", "--device", loop, "-o", path, "--json", "--", *write)
    output = json.loads(done.stdout)
    assert output["ledger"]["lost"] == output["ledger"]["unpaired"] == 0 and output["ended_early"] is None
    # Other programs of the machine may read the disk, too.
    profiled = json.loads(emmclab("profile", path, "--only", "process=dd", "--json").stdout)[0]
    assert profiled["write_requests_pct"] == 100
    assert profiled["data_size_kb"] * 2 == _sectors_written(loop) - before == 32 * 128
    assert output["activity"] == {"hosts": [], "syncs": [], "stalls": [], "journals": []} and output["remarks"] == []
    assert instances(loop) == []


def test_what_a_recorded_command_prints_does_not_mix_with_json(loop: str, tmp_path: Path) -> None:
    words = ("--device", loop, "-o", tmp_path / "x.parquet", "--json")
    done = emmclab("record", *words, "--", "echo", "of the command")
    assert "trace" in json.loads(done.stdout) and "of the command" in done.stderr


def test_a_quiet_recording_and_a_wrong_option_say_so(loop: str, tmp_path: Path) -> None:
    assert_fails(emmclab("record", "--device", "/dev/no-such-disk", "-o", tmp_path / "y.parquet"), "no-such-disk")
    assert_fails(emmclab("record", "--device", loop, "--duration", "soon"), "soon")
    assert_fails(
        emmclab("record", "--device", loop, "-o", tmp_path / "z.parquet", "--", "no-such-command"), "no-such-command"
    )
    assert list(tmp_path.iterdir()) == []


def test_what_waits_for_durability_is_shown_and_stored(loop: str, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    with mounted(loop, tmp_path) as folder:
        write = ["dd", "if=/dev/zero", f"of={folder}/file", "bs=64k", "count=4", "conv=fsync", "status=none"]
        done = emmclab("record", "--device", loop, "-o", path, "--json", "--", *write)
        recording = emmclab("record", "--device", loop, "-o", tmp_path / "y.parquet", "--", *write)
    [sync] = json.loads(done.stdout)["activity"]["syncs"]
    assert (sync["process"], sync["file_system"], sync["calls"], sync["errors"]) == ("dd", "ext4", 1, 0)
    assert 0 < sync["longest_ns"] == sync["time_ns"]
    assert "Waits for durability" in recording.stdout and "dd " in recording.stdout
    [journal] = json.loads(done.stdout)["activity"]["journals"]
    assert journal["device"] == loop.removeprefix("/dev/") and journal["commits"] >= 1
    # A copy of the trace contains the activity, too.
    copy = tmp_path / "copy.parquet"
    assert emmclab("convert", path, copy).returncode == 0
    header = json.loads(emmclab("profile", copy, "--json").stdout)[0]["header"]
    assert json.loads(header["activity"])["syncs"] == [sync]
    # The wait is on the time line of the requests.
    [stall] = json.loads(done.stdout)["activity"]["stalls"]
    assert (stall["process"], stall["time_ns"]) == ("dd", sync["time_ns"])
    profile = json.loads(emmclab("profile", copy, "--json").stdout)[0]
    [row] = profile["figures"]["sync_stalls"]
    assert row["wait_ms"] == pytest.approx(sync["time_ns"] / 1e6)
    assert row["start_s"] <= profile["duration_s"] and row["end_s"] >= 0
    # It is divided: dd writes data, and its commit ends with a flush.
    [divided] = emmclab_json("profile", copy, "--fsync")[0]["fsync"]["by_process"]
    parts = [divided[f"{part}_ms"] for part in ("data", "commit", "flush", "queue", "unexplained")]
    assert sum(parts) == pytest.approx(divided["total_ms"]) and parts[0] > 0 and parts[2] > 0
    flags = [row["flags"] for row in json.loads(emmclab("head", path, "-n", "100", "--json").stdout)]
    assert any("journal" in flag for flag in flags)


def test_a_recording_ends_whole_before_the_local_disk_is_full(loop: str, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "none", small], check=True)
    try:
        recording = _recording(loop, small / "x.parquet", "--json")
        _read(loop, 50)
        (small / "fills").write_bytes(bytes(40 << 20))
        stdout, words = recording.communicate(timeout=PATIENCE_S)
        assert recording.returncode == 0 and "MB are free" in words
        assert "MB are free" in json.loads(stdout)["ended_early"]
        assert json.loads(stdout)["ledger"]["kept"] > 0
        assert emmclab("profile", small / "x.parquet").returncode == 0
        # On the full disk the command does not start.
        assert_refused(
            emmclab("record", "--device", loop, "-o", small / "y.parquet", "--duration", "1s"), "MB are free"
        )
        assert {entry.name for entry in small.iterdir()} == {"fills", "x.parquet"}
    finally:
        subprocess.run(["umount", small], check=True)
    assert instances(loop) == []


def test_a_dropped_link_leaves_a_whole_trace_and_says_so(loop: str, tmp_path: Path) -> None:
    # A replacement for ssh that runs the command here, and loses the connection after 200 KB.
    executable(tmp_path / "ssh", '#!/bin/sh\nfor last; do :; done\nsh -c "$last" | dd bs=1 count=200000 status=none\n')
    path = tmp_path / "x.parquet"
    env = environment(PATH=f"{tmp_path}:{os.environ['PATH']}")
    recording = begin("record", "--ssh", "board", "--device", loop, "-o", path, "--json", env=env)
    deadline = time.monotonic() + PATIENCE_S
    while recording.poll() is None and time.monotonic() < deadline:
        _read(loop, 50, "4k")
        time.sleep(0.2)
    stdout, words = recording.communicate(timeout=PATIENCE_S)
    assert recording.returncode == 0, words
    assert "link to the recorded machine was lost" in words
    assert "link" in json.loads(stdout)["ended_early"] and json.loads(stdout)["ledger"]["kept"] > 0
    assert json.loads(emmclab("profile", path, "--json").stdout)[0]["write_requests_pct"] == 0
    wait_until(lambda: not instances(loop))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_signal_ends_a_recording_like_its_duration(number: signal.Signals, loop: str, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    recording = _recording(loop, path)
    _read(loop, 20)
    recording.send_signal(number)
    stdout, _ = recording.communicate(timeout=PATIENCE_S)
    assert recording.returncode == 0 and "20 kept" in stdout
    assert emmclab("profile", path).returncode == 0 and instances(loop) == []


def test_the_exit_status_is_that_of_the_command_and_an_empty_recording_says_so(loop: str, tmp_path: Path) -> None:
    for number, (command, status) in enumerate(
        [(["false"], 1), (["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -TERM $$"], 143), (["true"], 0)]
    ):
        path = tmp_path / f"{number}.parquet"
        done = emmclab("record", "--device", loop, "-o", path, "--json", "--", *command)
        assert done.returncode == status, done.stderr
        output = json.loads(done.stdout)
        assert output["command_status"] == status and output["trace"] == str(path)
        assert output["remarks"] == ["no request was recorded"] and "no request was recorded" in done.stderr
        assert path.exists()
    wrote = ["sh", "-c", f"dd if={loop} of=/dev/null bs=4k count=5 iflag=direct status=none; exit 3"]
    path = tmp_path / "whole.parquet"
    done = emmclab("record", "--device", loop, "-o", path, "--", *wrote)
    assert done.returncode == 3 and "status 3" in done.stderr
    assert emmclab("profile", path).returncode == 0


def test_without_a_device_it_says_what_it_takes_and_why(loop: str, tmp_path: Path) -> None:
    done = emmclab("record", "-o", tmp_path / "x.parquet", "--", "true")
    name = Path(loop).name
    # This loop device is not part of a mounted file system.
    devices, _, why = done.stderr.partition("(")
    assert done.returncode == 0 and name not in devices.split(), done.stderr
    assert "every disk but" in why and name in why and "choose others with --device" in why


def test_a_recording_is_told_apart_from_a_file_that_was_read(loop: str, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    read = ["dd", f"if={loop}", "of=/dev/null", "bs=4k", "count=5", "iflag=direct", "status=none"]
    assert emmclab("record", "--device", loop, "-o", path, "--", *read).returncode == 0
    stdout = " ".join(emmclab("explain", path).stdout.split())
    assert "recorded by emmclab" in stdout and "None" not in stdout and "not recorded)" not in stdout


def test_a_relative_mount_point_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert _mount_point("proc") == _mount_point("./proc/") == _mount_point("/proc/") == "/proc"
    assert _mount_point("sda") == "sda"
    assert _mount_point("usr/no-mount-point") == "usr/no-mount-point"


def test_a_recording_whose_terminal_is_closed_is_whole(loop: str, tmp_path: Path) -> None:
    """The kernel sends SIGHUP, and the command cannot print afterwards."""
    path = tmp_path / "x.parquet"
    terminal, its_end = os.openpty()
    recording = begin(
        *("record", "--device", loop, "-o", path),
        **dict.fromkeys(("stdin", "stdout", "stderr"), its_end),
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(its_end)
    words = b""
    while b"recording" not in words:
        words += os.read(terminal, 4096)
    _read(loop, 20)
    os.close(terminal)
    recording.wait(PATIENCE_S)
    assert json.loads(emmclab("profile", path, "--json").stdout)[0]["requests"] == 20
    assert instances(loop) == []


def test_a_recording_under_nohup_outlives_its_terminal(loop: str, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    command = ["nohup", *COMMAND, "record", "--device", loop, "-o", str(path)]
    recording = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert recording.stderr
    while "recording" not in recording.stderr.readline():
        assert recording.poll() is None
    recording.send_signal(signal.SIGHUP)
    _read(loop, 20)
    recording.send_signal(signal.SIGTERM)
    stdout, _ = recording.communicate(timeout=PATIENCE_S)
    assert recording.returncode == 0 and "20 kept" in stdout


#: Maximum time from a signal to the end of a command, which ends at once unless the machine is busy.
AT_ONCE_S = 20
#: A replacement for ssh that runs the command here.
HERE = '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n'
#: A replacement for ssh or adb that does not answer.
SILENT = f"exec sleep {2 * PATIENCE_S}\n"


@contextmanager
def adb_server(answers: bool) -> Iterator[int]:
    """Serve the protocol of the adb server, or accept connections without an answer; yield the port."""
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
    # The child processes of the command have these files open, too, so pipes would not end with the command.
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
        return begin(*words, cwd=folder, stdout=out, stderr=err, env=env, start_new_session=True)


def ended(process: subprocess.Popen[str], number: signal.Signals) -> int:
    """Send a signal; return the exit status, and fail if the end takes long or a child process remains."""
    process.send_signal(number)
    try:
        status = process.wait(AT_ONCE_S)
        of_session = ["ps", "--no-headers", "-s", str(process.pid), "-o", "args"]
        end = time.monotonic() + AT_ONCE_S
        while (alive := subprocess.run(of_session, capture_output=True, text=True).stdout) and (time.monotonic() < end):
            time.sleep(0.05)
        assert not alive
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
        executable(folder / name, f"#!/bin/sh\ntouch {waiting}\n{SILENT}")
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
def test_a_signal_ends_a_remote_recording_in_full(loop: str, tmp_path: Path, way: str, number: signal.Signals) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    executable(folder / "ssh", HERE)
    reach = ("--ssh", "board") if way == "ssh" else ("--adb",)
    with adb_server(answers=True) as port:
        process = begun(folder, "record", *reach, "--device", loop, "-o", "x.parquet", port=port)
        wait_until(lambda: "recording" in (folder / "stderr").read_text(), process)
        _read(loop, 20)
        assert ended(process, number) == 0
    profiled = emmclab_json("profile", folder / "x.parquet", "--only", "process=dd")[0]
    assert profiled["requests"] == 20
    wait_until(lambda: not instances(loop))


def _write(loop: str, blocks: int) -> None:
    execute("dd", "if=/dev/zero", f"of={loop}", "bs=64k", f"count={blocks}", "oflag=direct", "status=none")


def _watch(*options: str) -> subprocess.Popen[str]:
    """Start the view and wait until it shows data."""
    watching = begin("top", *options)
    assert watching.stderr and "watching" in watching.stderr.readline()
    return watching


def test_the_views_add_up_to_what_was_asked_of_the_device(loop: str) -> None:
    watching = _watch("--device", loop, "--interval", "300ms", "--json")
    assert watching.stdout
    views: list[dict[str, Any]] = []

    def by_dd() -> list[dict[str, Any]]:
        return [row for view in views for row in view["processes"] if row["process"] == "dd"]

    for blocks, so_far in ((20, 20), (12, 32)):
        _write(loop, blocks)
        while sum(row["requests"] for row in by_dd()) < so_far:
            views.append(json.loads(watching.stdout.readline()))
    watching.send_signal(signal.SIGINT)
    stdout, _ = watching.communicate(timeout=PATIENCE_S)
    assert watching.returncode == 0
    views += [json.loads(line) for line in stdout.splitlines()]
    typed = [{name: value for name, value in view.items() if name != "at_s"} for view in views]
    assert msgspec.convert(typed, list[Interval]) == typed
    rows = by_dd()
    assert {row["op"] for row in rows} == {"write"}
    assert sum(row["requests"] for row in rows) == 32
    assert sum(row["bytes"] for row in rows) == 32 << 16
    assert all(row["largest_bytes"] == 1 << 16 for row in rows)
    assert all(0 < row["response_p50_ns"] <= row["response_p99_ns"] for row in rows)
    # dd sends one request at a time, so that none waits, and there is a gap after each.
    assert sum(row["no_wait"] for row in rows) == 32
    for view in views:
        assert view["lost"] == 0 and view["queue_depth"] >= 0
        assert view["requests"] == sum(row["requests"] for row in view["processes"])
        assert view["requests_per_s"] == pytest.approx(view["requests"] / view["interval_s"], abs=0.05, rel=0.01)
    busy = [view for view in views if view["requests"] > 1]
    assert all(0 < view["longest_gap_ns"] <= view["idle_ns"] for view in busy)
    assert instances(loop) == []


def test_without_a_terminal_there_are_plain_lines_and_ctrl_c_ends_them(loop: str) -> None:
    watching = _watch("--device", loop, "--interval", "200ms")
    _write(loop, 10)
    assert watching.stdout and watching.stderr
    text = ""
    while "  dd write: " not in text:
        line = watching.stdout.readline()
        assert line, text
        text += line
    watching.send_signal(signal.SIGINT)
    text += watching.stdout.read()
    assert not watching.stderr.read() and watching.wait(PATIENCE_S) == 0
    assert "  dd write: " in text and "64.0 mean KB" in text and "\x1b" not in text
    assert instances(loop) == []


def test_waits_for_durability_are_shown_by_process(loop: str, tmp_path: Path) -> None:
    with mounted(loop, tmp_path) as folder:
        for json_or_not in (["--json"], []):
            watching = _watch("--device", loop, "--interval", "300ms", *json_or_not)
            for number in range(3):
                to = f"of={folder}/{number}"
                execute("dd", "if=/dev/zero", to, "bs=4k", "count=2", "conv=fsync", "status=none")
            assert watching.stdout
            if json_or_not:
                rows: list[dict[str, Any]] = []
                while sum(row["calls"] for row in rows) < 3:
                    rows += json.loads(watching.stdout.readline())["syncs"]
                assert {(row["process"], row["file_system"]) for row in rows} == {("dd", "ext4")}
            else:
                while "  dd waited for ext4 " not in watching.stdout.readline():
                    assert watching.poll() is None
            watching.send_signal(signal.SIGINT)
            watching.communicate(timeout=PATIENCE_S)
            assert watching.returncode == 0


def test_one_view_and_wrong_options(loop: str) -> None:
    once = emmclab("top", "--device", loop, "--interval", "100ms", "--once")
    assert once.returncode == 0 and once.stdout == "0 requests/s, 0 KB/s\n"
    for option, value in [("--interval", "1ms"), ("--duration", "soon"), ("--device", "/dev/no-such-disk")]:
        assert_refused(emmclab("top", "--device", loop, option, value), value)
    assert_refused(emmclab("top", "--ssh", "x", "--adb"), "--ssh and --adb")
    assert instances(loop) == []


def test_a_terminal_shows_a_table_that_ctrl_c_ends(loop: str) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(COMMAND[0], [*COMMAND, "top", "--device", loop], environment(COLUMNS="120", TERM="xterm"))
    output, begin, is_interrupted = b"", time.monotonic(), False
    while time.monotonic() - begin < PATIENCE_S:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                output += os.read(terminal, 1 << 16)
            except OSError:
                break
        elif b"watching" in output and b"dd" not in output:
            _write(loop, 5)
        if b"dd" in output and not is_interrupted:
            is_interrupted = True
            os.write(terminal, b"\x03")
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert b"process" in output and b"p99 ms" in output and b"no-wait %" in output
    assert instances(loop) == []
