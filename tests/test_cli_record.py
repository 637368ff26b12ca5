"""Recording this host through the command line, on a loop device of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import emmclab, missing

INSTANCES = Path("/sys/kernel/tracing/instances")


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A loop device of 16 MB."""
    if os.geteuid() != 0 or not Path("/dev/loop-control").exists():
        missing("root with loop devices")
    if not INSTANCES.exists():
        subprocess.run(["mount", "-t", "tracefs", "nodev", str(INSTANCES.parent)], check=False)
    if not INSTANCES.exists():
        missing("tracefs")
    disk = tmp_path_factory.mktemp("disk") / "disk"
    with disk.open("wb") as file:
        file.truncate(16 << 20)
    find = ["losetup", "--find", "--show", str(disk)]
    name = subprocess.run(find, capture_output=True, text=True, check=True).stdout.strip()
    yield name
    subprocess.run(["losetup", "-d", name], check=True)


def _sectors_written(loop: str) -> int:
    return int(Path(f"/sys/block/{loop.removeprefix('/dev/')}/stat").read_text().split()[6])


def test_a_command_is_recorded_whole_and_nothing_is_left_behind(loop: str, tmp_path: Path) -> None:
    before = _sectors_written(loop)
    path = tmp_path / "x.parquet"
    write = ["dd", "if=/dev/zero", f"of={loop}", "bs=64k", "count=32", "oflag=direct", "status=none"]
    done = emmclab("record", "--device", loop, "-o", path, "--json", "--", *write)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["ledger"]["lost"] == said["ledger"]["unpaired"] == 0 and said["ended_early"] is None
    profiled = json.loads(emmclab("profile", path, "--json").stdout)[0]
    assert profiled["write_requests_pct"] == 100
    assert profiled["data_size_kb"] * 2 == _sectors_written(loop) - before == 32 * 128
    assert not [entry for entry in INSTANCES.iterdir() if entry.name.startswith("emmclab-record")]


def test_a_quiet_recording_and_a_wrong_option_say_so(loop: str, tmp_path: Path) -> None:
    unknown = emmclab("record", "--device", "/dev/no-such-disk", "-o", tmp_path / "y.parquet")
    assert unknown.returncode == 2 and "no-such-disk" in unknown.stderr
    senseless = emmclab("record", "--device", loop, "--duration", "soon")
    assert senseless.returncode == 2 and "soon" in senseless.stderr
    absent = emmclab("record", "--device", loop, "-o", tmp_path / "z.parquet", "--", "no-such-command")
    assert absent.returncode == 2 and "no-such-command" in absent.stderr
    assert list(tmp_path.iterdir()) == []
