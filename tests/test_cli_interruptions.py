"""Closed pipes, full disks and signals: a clear message or none, and no partial file."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import PATIENCE_S, begin, emmclab, emmclab_ok, ended_in_the_middle, kept_cells
from emmclab.traces.workload import Workload


def test_closed_pipe_on_stdout_is_quiet(long_trace: Path) -> None:
    process = begin("head", long_trace, "-n", "20000", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(PATIENCE_S) == 141
    assert process.stderr.read() == ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signal_in_the_middle_of_a_conversion_leaves_nothing(tmp_path: Path, number: signal.Signals, code: int) -> None:
    status, words = ended_in_the_middle(["convert", "-", tmp_path / "out.parquet"], tmp_path, number)
    assert status == code
    assert "Traceback" not in words
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["profile PIPE", "serve PIPE", "run PIPE", "journal PIPE"])
def test_a_wait_for_a_silent_pipe_ends_at_once_with_a_signal(tmp_path: Path, command: str) -> None:
    """A trace and settings of a device are read by the core, settings of a study by Python."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    words = [str(pipe) if word == "PIPE" else word for word in command.split()]
    process = begin(*words)
    silent = None
    deadline = time.monotonic() + PATIENCE_S
    while silent is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # No process reads the pipe yet.
            silent = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        time.sleep(0.02)
    assert silent is not None
    process.terminate()
    assert process.wait(PATIENCE_S) == 143
    os.close(silent)


def test_a_pipe_with_the_name_of_a_temporary_file_is_not_opened(trace: Path, tmp_path: Path) -> None:
    """Any user can make one in a shared folder; opening it would wait for its writer for ever."""
    planted = tmp_path / ".emmclab-tmp-pipe"
    os.mkfifo(planted)
    emmclab_ok("convert", trace, tmp_path / "out.csv")
    emmclab_ok("query", "--trace", trace, "select 1", env={"TMPDIR": str(tmp_path)})
    assert planted.exists()


@pytest.fixture
def tiny_disk(root: None, tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KB."""
    del root
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    subprocess.run(mount, capture_output=True, check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_full_disk_under_a_fleet_keeps_rows_and_the_next_run_goes_on(tiny_disk: Path, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    for number in range(96):
        Workload.preset("Movie").trace(number, requests=120).write(fleet / f"{number:03}.parquet")
    words = ("fleet", fleet, "-o", tiny_disk / "fleet.parquet", "--jobs", 1)
    done = emmclab(*words)
    assert done.returncode == 1, done.stdout
    assert f"error: {tiny_disk / 'fleet.parquet'}: No space left on device" in done.stderr
    state = tiny_disk / ".fleet.parquet.state"
    assert f"hint: finished rows are stored in {state}; free some space" in done.stderr
    kept = state.read_text().count('"row": {')
    assert kept > 20
    subprocess.run(["mount", "-o", "remount,size=8m", str(tiny_disk)], check=True)
    done = emmclab_ok(*words)
    (profiled,) = re.findall(r"\(96 files, (\d+) of them profiled now\)", done.stderr)
    assert 96 - kept <= int(profiled) <= 96 - kept + 1


def test_full_disk_under_a_study_says_what_is_left(tiny_disk: Path, tmp_path: Path) -> None:
    """Finished cells are kept, and the same command given again runs the rest."""
    study = tmp_path / "full.toml"
    study.write_text(
        f'name = "full"\ninputs = ["Movie"]\nseeds = {list(range(1, 201))}\n'
        '[[grid]]\nname = "all"\ndevices = ["nexus5"]\nwrap_addresses = true\n'
    )
    done = emmclab("run", study, "--jobs", 1, "--results", tiny_disk)
    assert done.returncode == 1, done.stderr
    kept = kept_cells(tiny_disk)
    assert 0 < kept < 400
    assert "No space left on device" in done.stderr
    assert f"hint: {kept} of 400 cells are stored in {tiny_disk / 'full'}; free some space" in done.stderr
    assert "nothing was left behind" not in done.stderr
    assert not list(tiny_disk.rglob(".emmclab-*"))
