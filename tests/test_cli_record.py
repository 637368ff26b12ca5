"""Recording this host on the command line, on a separate loop device."""

import fcntl
import json
import os
import signal
import subprocess
import termios
import time
from pathlib import Path

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
    instances,
    wait_until,
)


def _sectors_written(loop: str) -> int:
    return int(Path(f"/sys/block/{loop.removeprefix('/dev/')}/stat").read_text().split()[6])


def test_a_command_is_recorded_whole_and_nothing_is_left_behind(loop: str, tmp_path: Path) -> None:
    before = _sectors_written(loop)
    path = tmp_path / "x.parquet"
    write = ["dd", "if=/dev/zero", f"of={loop}", "bs=64k", "count=32", "oflag=direct", "status=none"]
    done = emmclab_ok("record", "--device", loop, "-o", path, "--json", "--", *write)
    said = json.loads(done.stdout)
    assert said["ledger"]["lost"] == said["ledger"]["unpaired"] == 0 and said["ended_early"] is None
    # Other programs of the machine may read the disk, too.
    profiled = json.loads(emmclab("profile", path, "--only", "process=dd", "--json").stdout)[0]
    assert profiled["write_requests_pct"] == 100
    assert profiled["data_size_kb"] * 2 == _sectors_written(loop) - before == 32 * 128
    assert said["activity"] == {"hosts": [], "syncs": [], "stalls": [], "journals": []} and said["remarks"] == []
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
    path, folder = tmp_path / "x.parquet", tmp_path / "mnt"
    folder.mkdir()
    subprocess.run(["mkfs.ext4", "-q", loop], check=True)
    subprocess.run(["mount", loop, folder], check=True)
    try:
        write = ["dd", "if=/dev/zero", f"of={folder}/file", "bs=64k", "count=4", "conv=fsync", "status=none"]
        done = emmclab("record", "--device", loop, "-o", path, "--json", "--", *write)
        shown = emmclab("record", "--device", loop, "-o", tmp_path / "y.parquet", "--", *write)
    finally:
        subprocess.run(["umount", folder], check=True)
    [sync] = json.loads(done.stdout)["activity"]["syncs"]
    assert (sync["process"], sync["file_system"], sync["calls"], sync["errors"]) == ("dd", "ext4", 1, 0)
    assert 0 < sync["longest_ns"] == sync["time_ns"]
    assert "Waits for durability" in shown.stdout and "dd " in shown.stdout
    [journal] = json.loads(done.stdout)["activity"]["journals"]
    assert journal["device"] == loop.removeprefix("/dev/") and journal["commits"] >= 1
    # The trace contains it, and so does a copy.
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
        recording = begin("record", "--device", loop, "-o", small / "x.parquet", "--json")
        assert recording.stderr and "recording" in recording.stderr.readline()
        read = ["dd", f"if={loop}", "of=/dev/null", "bs=64k", "count=50", "iflag=direct", "status=none"]
        subprocess.run(read, check=True)
        (small / "fills").write_bytes(bytes(40 << 20))
        said, words = recording.communicate(timeout=PATIENCE_S)
        assert recording.returncode == 0 and "MB are free" in words
        assert "MB are free" in json.loads(said)["ended_early"]
        assert json.loads(said)["ledger"]["kept"] > 0
        assert emmclab("profile", small / "x.parquet").returncode == 0
        # Now it does not even start there.
        assert_refused(
            emmclab("record", "--device", loop, "-o", small / "y.parquet", "--duration", "1s"), "MB are free"
        )
        assert {entry.name for entry in small.iterdir()} == {"fills", "x.parquet"}
    finally:
        subprocess.run(["umount", small], check=True)
    assert instances(loop) == []


def test_a_dropped_link_leaves_a_whole_trace_and_says_so(loop: str, tmp_path: Path) -> None:
    # Replaces the ssh client: runs the command here, and loses the connection after 200 KB.
    fake = tmp_path / "ssh"
    fake.write_text('#!/bin/sh\nfor last; do :; done\nsh -c "$last" | dd bs=1 count=200000 status=none\n')
    fake.chmod(0o755)
    path = tmp_path / "x.parquet"
    env = environment(PATH=f"{tmp_path}:{os.environ['PATH']}")
    recording = begin("record", "--ssh", "board", "--device", loop, "-o", path, "--json", env=env)
    read = ["dd", f"if={loop}", "of=/dev/null", "bs=4k", "count=50", "iflag=direct", "status=none"]
    deadline = time.monotonic() + PATIENCE_S
    while recording.poll() is None and time.monotonic() < deadline:
        subprocess.run(read, check=True)
        time.sleep(0.2)
    said, words = recording.communicate(timeout=PATIENCE_S)
    assert recording.returncode == 0, words
    assert "link to the recorded machine was lost" in words
    assert "link" in json.loads(said)["ended_early"] and json.loads(said)["ledger"]["kept"] > 0
    assert json.loads(emmclab("profile", path, "--json").stdout)[0]["write_requests_pct"] == 0
    wait_until(lambda: not instances(loop))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_signal_that_ends_a_recording_ends_it_like_its_duration(
    number: signal.Signals, loop: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.parquet"
    recording = begin("record", "--device", loop, "-o", path)
    assert recording.stderr and "recording" in recording.stderr.readline()
    read = ["dd", f"if={loop}", "of=/dev/null", "bs=64k", "count=20", "iflag=direct", "status=none"]
    subprocess.run(read, check=True)
    recording.send_signal(number)
    said, _ = recording.communicate(timeout=PATIENCE_S)
    assert recording.returncode == 0 and "20 kept" in said
    assert emmclab("profile", path).returncode == 0 and instances(loop) == []


def test_the_exit_status_is_that_of_the_command_and_an_empty_recording_says_so(loop: str, tmp_path: Path) -> None:
    for number, (command, status) in enumerate(
        [(["false"], 1), (["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -TERM $$"], 143), (["true"], 0)]
    ):
        path = tmp_path / f"{number}.parquet"
        done = emmclab("record", "--device", loop, "-o", path, "--json", "--", *command)
        assert done.returncode == status, done.stderr
        said = json.loads(done.stdout)
        assert said["command_status"] == status and said["trace"] == str(path)
        assert said["remarks"] == ["no request was recorded"] and "no request was recorded" in done.stderr
        assert path.exists()
    wrote = ["sh", "-c", f"dd if={loop} of=/dev/null bs=4k count=5 iflag=direct status=none; exit 3"]
    path = tmp_path / "whole.parquet"
    done = emmclab("record", "--device", loop, "-o", path, "--", *wrote)
    assert done.returncode == 3 and "status 3" in done.stderr
    assert emmclab("profile", path).returncode == 0


def test_without_a_device_it_says_what_it_takes_and_why(loop: str, tmp_path: Path) -> None:
    done = emmclab("record", "-o", tmp_path / "x.parquet", "--", "true")
    name = Path(loop).name
    # This loop device is not part of anything that is mounted.
    taken, _, why = done.stderr.partition("(")
    assert done.returncode == 0 and name not in taken.split(), done.stderr
    assert "every disk but" in why and name in why and "choose others with --device" in why


def test_a_recording_is_told_apart_from_a_file_that_was_read(loop: str, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    read = ["dd", f"if={loop}", "of=/dev/null", "bs=4k", "count=5", "iflag=direct", "status=none"]
    assert emmclab("record", "--device", loop, "-o", path, "--", *read).returncode == 0
    said = " ".join(emmclab("explain", path).stdout.split())
    assert "recorded by emmclab" in said and "None" not in said and "not recorded)" not in said


def test_a_relative_mount_point_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    from emmclab.cli.machine_options import _mount_point

    monkeypatch.chdir("/")
    assert _mount_point("proc") == _mount_point("./proc/") == _mount_point("/proc/") == "/proc"
    assert _mount_point("sda") == "sda"
    assert _mount_point("usr/no-mount-point") == "usr/no-mount-point"


def test_a_recording_whose_terminal_is_closed_is_whole(loop: str, tmp_path: Path) -> None:
    """The kernel sends SIGHUP, and printing is impossible from then on."""
    path = tmp_path / "x.parquet"
    terminal, its_end = os.openpty()
    recording = begin(
        "record",
        "--device",
        loop,
        "-o",
        path,
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(its_end)
    words = b""
    while b"recording" not in words:
        words += os.read(terminal, 4096)
    read = ["dd", f"if={loop}", "of=/dev/null", "bs=64k", "count=20", "iflag=direct", "status=none"]
    subprocess.run(read, check=True)
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
    read = ["dd", f"if={loop}", "of=/dev/null", "bs=64k", "count=20", "iflag=direct", "status=none"]
    subprocess.run(read, check=True)
    recording.send_signal(signal.SIGTERM)
    said, _ = recording.communicate(timeout=PATIENCE_S)
    assert recording.returncode == 0 and "20 kept" in said
