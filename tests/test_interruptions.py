"""Signals, closed pipes and full disks end every command at once; no file is partial, no temporary folder is shared."""

import contextlib
import json
import multiprocessing
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import (
    PATIENCE_S,
    begin,
    busy_s,
    emmclab,
    emmclab_ok,
    ended_in_the_middle,
    environment,
    execute,
    kept_cells,
    wait_until,
)
from emmclab.crash.scratch_folders import remove_stale
from emmclab.errors import InputError
from emmclab.runtime import files
from emmclab.runtime.files import folder_aside, stale_folders, sweep
from emmclab.runtime.local_copies import scratch
from emmclab.traces.workload import Workload

#: Work within one call of the core or of a library that takes far longer than the timeout below on any machine: only
#: a command that checks for the signal during this work can end in time.
ENDLESS_PRECONDITION = ("--precondition", "steady:1000", "--wrap-addresses")
#: A device whose blocks endure any number of erases, so that a run never ends.
UNWORN = [f"--set=geometry.block_groups.{group}.erase_limit=0" for group in (0, 1)]


def started(command: list[str], folder: Path, **env: str) -> subprocess.Popen[str]:
    return begin(*command, cwd=folder, env=environment(**env))


def interrupted(command: list[str], folder: Path, after_s: float = 1.5) -> tuple[str, float]:
    """Interrupt a command after some processor time; return its output, and the processor time that it then used."""
    process = started(command, folder)
    deadline = time.monotonic() + PATIENCE_S
    used = 0.0
    while process.poll() is None and used < after_s and time.monotonic() < deadline:
        used = busy_s(process)
        time.sleep(0.01)
    assert process.poll() is None, "the command ended before it could be interrupted"
    # The command is stopped while the signal is sent, because this process may have to wait for a processor.
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    last = used = busy_s(process)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    while process.poll() is None and time.monotonic() < deadline:
        try:
            last = busy_s(process)
        except (OSError, IndexError):
            break
        time.sleep(0.002)
    _, messages = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, messages
    return messages, last - used


def slowly(*command: str) -> Any:
    """Mark a case as slow: it uses 1.5 s of a processor, and other cases interrupt the same work of the core."""
    return pytest.param([*command], marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "command",
    [
        ["simulate", "{trace}", "--device", "emmc51-tlc", *ENDLESS_PRECONDITION],
        slowly("simulate", "{trace}", "--device", "emmc51-tlc", *ENDLESS_PRECONDITION, "--images", "images"),
        slowly("compare", "{trace}", "--devices", "emmc51-tlc,small-1gb", *ENDLESS_PRECONDITION),
        ["simulate", "{long}", "--wrap-addresses", "--passes", "1000", "--events", "rows.parquet"],
        ["simulate", "{long}", "--precondition", "{long}", "--passes", "1000", "--wrap-addresses", *UNWORN],
        ["synth", "Messaging", "out.parquet", "--requests", "1000000000"],
        ["reproduce", "devices", "--html", "page.html"],
        ["serve", "emmc51-tlc", "--precondition", "steady:1000", "--nbd", "x.sock", "--image", "x.img"],
    ],
    ids=["precondition", "images", "compare", "events", "precondition-by-trace", "synth", "devices", "serve"],
)
def test_a_command_ends_at_once_with_nothing(command: list[str], trace: Path, long_trace: Path, tmp_path: Path) -> None:
    """Processor time is measured, so that other load on the machine does not matter."""
    words = [word.format(trace=trace, long=long_trace) for word in command]
    messages, more_s = interrupted(words, tmp_path)
    assert "interrupted; no file was written" in messages
    assert "Traceback" not in messages
    assert more_s < 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_drawing_ends_with_its_process(trace: Path, tmp_path: Path) -> None:
    """The chart library works in a separate process, which ends with the command."""
    # The script of the page is not cached yet, so that it has to be bundled first.
    caches, folder = tmp_path / "caches", tmp_path / "folder"
    folder.mkdir()
    command = ["profile", str(trace), "--html", "page.html", "--figures", "figures"]
    process = started(command, folder, XDG_CACHE_HOME=str(caches))

    def children() -> list[int]:
        processes = []
        for path in Path("/proc", str(process.pid), "task").glob("*/children"):
            # A thread may end between the listing of its name and the reading of its file.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                processes += [int(number) for number in path.read_text().split()]
        return processes

    deadline = time.monotonic() + PATIENCE_S
    drawing: list[int] = []
    while not drawing and process.poll() is None and time.monotonic() < deadline:
        drawing = children()
        time.sleep(0.001)
    assert drawing, "nothing was drawn"
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, messages
    assert messages.strip().endswith("interrupted; no file was written")
    wait_until(lambda: not any(Path("/proc", str(number)).exists() for number in drawing))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_was_written_before_the_interruption_is_named(trace: Path, tmp_path: Path) -> None:
    process = started(["profile", str(trace), "--html", "page.html", "--figures", "figures"], tmp_path)
    wait_until((tmp_path / "page.html").exists)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=PATIENCE_S)
    if process.returncode == 0:
        pytest.skip("the command ended before the signal came")
    assert "interrupted; complete: page.html" in messages


def test_a_file_in_place_is_named_by_an_early_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "written_files", [])
    page = tmp_path / "page.html"
    with pytest.raises(KeyboardInterrupt), files.note_written_files(page):
        page.write_text("whole")
        raise KeyboardInterrupt
    assert files.written_files == [str(page)]
    with pytest.raises(KeyboardInterrupt), files.note_written_files(page):
        raise KeyboardInterrupt
    assert files.written_files == [str(page)], "it was not written again"


def test_a_study_that_preconditions_ends_at_once_and_goes_on_later(trace: Path, tmp_path: Path) -> None:
    study = (
        'name = "aged"\ninputs = ["{}"]\n[[grid]]\nname = "one"\ndevices = ["{}"]\n'
        'precondition = "{}"\nwrap_addresses = true\n'
    )
    (tmp_path / "aged.toml").write_text(study.format(trace, "emmc51-tlc", "steady:1000"))
    for jobs in ("1", "2"):
        process = started(["run", "aged.toml", "--jobs", jobs], tmp_path)
        wait_until(lambda: list(tmp_path.glob("*/aged/images/*/*.lock")))
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130, messages
        match = re.search(r"interrupted; aged: (\d) of 2 cells are stored in \S+; the same command", messages)
        assert match is not None, messages
        assert int(match[1]) == kept_cells(tmp_path)
    (tmp_path / "aged.toml").write_text(study.format(trace, "small-1gb", "sequential:10"))
    assert emmclab("run", "aged.toml", "--jobs", 2, cwd=tmp_path).returncode == 0
    remaining = [path.name for path in tmp_path.rglob("*") if path.suffix == ".lock" or path.name[0] == "."]
    assert remaining == []


def test_closed_pipe_on_stdout_is_quiet(long_trace: Path) -> None:
    process = begin("head", long_trace, "-n", "20000", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(PATIENCE_S) == 141
    assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("convert - OUT.parquet", signal.SIGINT),
        ("convert - OUT.parquet", signal.SIGTERM),
        ("convert - OUT.parquet", signal.SIGHUP),
        ("simulate - --wrap-addresses --perfetto OUT.pftrace", signal.SIGINT),
        ("validate -", signal.SIGINT),
    ],
)
def test_a_signal_in_the_middle_of_a_trace_leaves_nothing(
    command: str, number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    words = [word.replace("OUT", str(tmp_path / "out")) for word in command.split()]
    status, messages = ended_in_the_middle(words, tmp_path, number)
    assert status == 128 + number
    assert "Traceback" not in messages
    assert ("no file was written" in messages) == (number == signal.SIGINT)
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
    """Any user can create such a pipe in a shared folder; opening it would block until it has a writer."""
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
    execute("mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder)
    yield folder
    execute("umount", folder)


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
    stored = state.read_text().count('"row": {')
    assert stored > 20
    execute("mount", "-o", "remount,size=8m", tiny_disk)
    done = emmclab_ok(*words)
    (profiled,) = re.findall(r"\(96 files, (\d+) of them profiled now\)", done.stderr)
    assert 96 - stored <= int(profiled) <= 96 - stored + 1


def test_full_disk_under_a_study_says_what_is_left(tiny_disk: Path, tmp_path: Path) -> None:
    """Finished cells are stored, and the same command then runs the rest."""
    study = tmp_path / "full.toml"
    study.write_text(
        f'name = "full"\ninputs = ["Movie"]\nseeds = {list(range(1, 201))}\n'
        '[[grid]]\nname = "all"\ndevices = ["nexus5"]\nwrap_addresses = true\n'
    )
    done = emmclab("run", study, "--jobs", 1, "--results", tiny_disk)
    assert done.returncode == 1, done.stderr
    stored = kept_cells(tiny_disk)
    assert 0 < stored < 400
    assert "No space left on device" in done.stderr
    assert f"hint: {stored} of 400 cells are stored in {tiny_disk / 'full'}; free some space" in done.stderr
    assert "nothing was left behind" not in done.stderr
    assert not list(tiny_disk.rglob(".emmclab-*"))


STUDY = """
name = "small"
about = "one cell"
inputs = ["Email"]

[[grid]]
name = "only"
devices = ["nexus5"]
"""
#: The command lines; OUT is a name on the full disk, TRACE a trace of 400 requests.
COMMANDS = (
    *(f"convert TRACE OUT.{ending}" for ending in ("csv", "parquet", "csv.gz", "csv.zst", "csv.xz")),
    "synth Email OUT.parquet --requests 400",
    "synth --reads 30 --size 4k --requests 400 -o OUT.csv",
    "fit TRACE -o OUT.toml",
    "profile TRACE --html OUT.html",
    "profile TRACE --figures OUT",
    "profile TRACE --over-time OUT.csv",
    "journal TRACE --html OUT.html",
    "simulate TRACE --device nexus5 --html OUT.html",
    "simulate TRACE --device nexus5 --events OUT.parquet",
    "simulate TRACE --device nexus5 --perfetto OUT.perfetto-trace",
    "compare TRACE --devices nexus5,ufs31 --html OUT.html",
    "advise TRACE --device nexus5 --new --html OUT.html",
    "validate TRACE --device nexus5 --html OUT.html",
    "query --trace TRACE 'select * from trace' -o OUT.csv",
    "query --trace TRACE 'select * from trace' -o OUT.parquet",
    "fleet FOLDER -o OUT.parquet",
    "run STUDY --results OUT",
    "crash --device small-1gb --workload append-log --results OUT",
    "crash --device small-1gb --workload append-log --operations 5 --results RESULTS --save-log OUT.log",
    "crash --device small-1gb --workload append-log --operations 5 --results RESULTS --save-dm-log OUT.log",
    "apps run email --device nexus5 --html OUT.html",
    "serve small-1gb --clock free --nbd SOCKET --record OUT.parquet -- true",
    "serve small-1gb --clock free --nbd SOCKET --image OUT.img -- true",
)


@pytest.fixture
def full_disk(tiny_disk: Path) -> Path:
    """A file system on which folders and empty files can be created, but nothing can be written."""
    filler = tiny_disk / "filler"
    with pytest.raises(OSError, match="No space left"), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return tiny_disk


@pytest.mark.parametrize("line", COMMANDS)
def test_a_full_disk_is_an_error_without_partial_file(line: str, trace: Path, full_disk: Path, tmp_path: Path) -> None:
    study, folder = tmp_path / "small.toml", tmp_path / "recordings"
    study.write_text(STUDY)
    folder.mkdir()
    (folder / "chat.txt").write_bytes(trace.read_bytes())
    places = {
        "OUT": full_disk / "out",
        "TRACE": trace,
        "STUDY": study,
        "FOLDER": folder,
        "RESULTS": tmp_path / "results",
        "SOCKET": tmp_path / "n.sock",
    }
    words = [
        next((str(place) + word.removeprefix(name) for name, place in places.items() if word.startswith(name)), word)
        for word in shlex.split(line)
    ]
    _refused(words, full_disk)


def test_the_image_of_a_state_on_a_full_disk_leaves_no_part_of_it(full_disk: Path, tmp_path: Path) -> None:
    results, image = ("--results", tmp_path / "results"), full_disk / "state.img"
    lies = ("--device", "emmc51-cache", "--set", "cache.lies=flush", "--workload", "append-log")
    findings = json.loads(emmclab("crash", *lies, "--cuts", "20", *results, "--json").stdout)["findings"]
    command = next(finding["again"] for finding in findings if finding["again"] is not None)
    # The disk has space for the temporary folder and some blocks, but not for the whole file.
    (full_disk / "filler").write_bytes(bytes(200 << 10))
    words = ["crash", "--again", command, *map(str, results), "--save-image", str(image)]
    _refused(words, full_disk, holds=str(image))
    assert not image.exists()


def _refused(words: list[str], full_disk: Path, holds: str = "") -> None:
    done = emmclab(*words)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert holds in done.stderr
    assert "error: " in done.stderr and "No space left" in done.stderr, done.stderr
    remaining = [path for path in full_disk.rglob("*") if path.is_file() and path.name != "filler"]
    assert not [path for path in remaining if path.stat().st_size], remaining


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder elsewhere, with a file that must remain."""
    folder = tmp_path_factory.mktemp("other")
    (folder / "kept").write_text("1")
    return folder


def test_the_scratch_folder_is_made_for_its_user_alone_and_used_again(temporary: Path) -> None:
    folder = scratch()
    assert folder.parent == temporary
    assert folder.stat().st_mode & 0o777 == 0o700
    assert scratch() == folder


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("ln -s {other} {place}", "symbolic link"),
        ("touch {place}", "not a folder"),
        ("mkdir -m 777 {place}", "other users"),
        pytest.param("install -d -m 700 -o 12345 {place}", "another user", marks=pytest.mark.root),
    ],
)
def test_what_is_not_this_user_s_own_scratch_folder_is_refused(
    command: str, problem: str, temporary: Path, other: Path
) -> None:
    execute(*command.format(place=temporary / f"emmclab-{os.geteuid()}", other=other).split())
    with pytest.raises(InputError, match=problem) as caught:
        scratch()
    assert "TMPDIR" in str(caught.value.hint)
    assert (other / "kept").exists()


def test_a_planted_link_to_a_folder_is_no_folder_that_a_killed_process_left(temporary: Path, other: Path) -> None:
    (temporary / ".emmclab-tmp-planted").symlink_to(other)
    (temporary / ".emmclab-tmp-left").mkdir()
    assert [path.name for path in stale_folders(temporary)] == [".emmclab-tmp-left"]
    remove_stale(temporary)
    assert (other / "kept").exists()
    assert not (temporary / ".emmclab-tmp-left").exists()


def work(parent: str) -> None:
    for _ in range(100):
        with folder_aside(Path(parent)) as folder:
            (folder / "kept").write_text("1", encoding="utf-8")
            sweep(Path(parent))
            assert (folder / "kept").read_text(encoding="utf-8") == "1"


def test_processes_that_sweep_each_others_parent_keep_their_folders(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=work, args=(str(tmp_path),)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert list(tmp_path.iterdir()) == []
