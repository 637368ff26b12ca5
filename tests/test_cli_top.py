"""The live view on the command line, on a separate loop device."""

import json
import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conftest import COMMAND, PATIENCE_S, assert_refused, begin, emmclab, environment, instances
from emmclab.cli.top import Interval


def _write(loop: str, blocks: int) -> None:
    to = ["dd", "if=/dev/zero", f"of={loop}", "bs=64k", f"count={blocks}", "oflag=direct", "status=none"]
    subprocess.run(to, check=True)


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
    said, _ = watching.communicate(timeout=PATIENCE_S)
    assert watching.returncode == 0
    views += [json.loads(line) for line in said.splitlines()]
    typed = [{name: value for name, value in view.items() if name != "at_s"} for view in views]
    assert msgspec.convert(typed, list[Interval]) == typed
    rows = by_dd()
    assert {row["op"] for row in rows} == {"write"}
    assert sum(row["requests"] for row in rows) == 32
    assert sum(row["bytes"] for row in rows) == 32 << 16
    assert all(row["largest_bytes"] == 1 << 16 for row in rows)
    assert all(0 < row["response_p50_ns"] <= row["response_p99_ns"] for row in rows)
    # dd has one request at a time: none waits, and there is a gap after each.
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
    said = ""
    while "  dd write: " not in said:
        line = watching.stdout.readline()
        assert line, said
        said += line
    watching.send_signal(signal.SIGINT)
    said += watching.stdout.read()
    assert not watching.stderr.read() and watching.wait(PATIENCE_S) == 0
    assert "  dd write: " in said and "64.0 mean KB" in said and "\x1b" not in said
    assert instances(loop) == []


def test_waits_for_durability_are_shown_by_process(loop: str, tmp_path: Path) -> None:
    folder = tmp_path / "mnt"
    folder.mkdir()
    subprocess.run(["mkfs.ext4", "-q", loop], check=True)
    subprocess.run(["mount", loop, folder], check=True)
    try:
        for json_or_not in (["--json"], []):
            watching = _watch("--device", loop, "--interval", "300ms", *json_or_not)
            for number in range(3):
                to = ["dd", "if=/dev/zero", f"of={folder}/{number}", "bs=4k", "count=2", "conv=fsync", "status=none"]
                subprocess.run(to, check=True)
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
    finally:
        subprocess.run(["umount", folder], check=True)


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
    shown, begin, asked = b"", time.monotonic(), False
    while time.monotonic() - begin < PATIENCE_S:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                shown += os.read(terminal, 1 << 16)
            except OSError:
                break
        elif b"watching" in shown and b"dd" not in shown:
            _write(loop, 5)
        if b"dd" in shown and not asked:
            asked = True
            os.write(terminal, b"\x03")
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert b"process" in shown and b"p99 ms" in shown and b"no-wait %" in shown
    assert instances(loop) == []
