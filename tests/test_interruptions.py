"""Ctrl-C ends every command at once; the command states what is kept, and nothing finished is lost."""

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import PATIENCE_S, begin, emmclab, environment, kept_cells, wait_until
from emmclab.runtime import files

#: Work that takes far longer than the timeout below on any machine, within one call of the core or of a
#: library: only a command that checks for the signal during this work can end in time.
ENDLESS_PRECONDITION = ("--precondition", "steady:1000", "--wrap-addresses")
#: A device whose blocks endure any number of erases never ends a run.
UNWORN = [f"--set=geometry.block_groups.{group}.erase_limit=0" for group in (0, 1)]


def started(command: list[str], folder: Path, **env: str) -> subprocess.Popen[str]:
    return begin(*command, cwd=folder, env=environment(**env))


def busy_s(process: subprocess.Popen[str]) -> float:
    """Return the processor time that a process has used so far."""
    fields = Path("/proc", str(process.pid), "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def interrupted(command: list[str], folder: Path, after_s: float = 1.5) -> tuple[str, float]:
    """Interrupt a command after some processor time; return its output, and how long it continued to work."""
    process = started(command, folder)
    deadline = time.monotonic() + PATIENCE_S
    used = 0.0
    while process.poll() is None and used < after_s and time.monotonic() < deadline:
        used = busy_s(process)
        time.sleep(0.01)
    assert process.poll() is None, "the command ended before it could be interrupted"
    # It is stopped while the signal is sent, because this process may have to wait for a processor.
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
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    return said, last - used


def slowly(*command: str) -> Any:
    """Mark a case as slow: it uses 1.5 s of a processor, and others interrupt the same work of the core."""
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
        ["serve", "emmc51-tlc", "--precondition", "steady:1000", "--nbd", "x.sock", "--image", "x.img"],
    ],
    ids=["precondition", "images", "compare", "events", "precondition-by-trace", "synth", "serve"],
)
def test_a_command_ends_within_a_second_of_work_and_leaves_nothing(
    command: list[str], trace: Path, long_trace: Path, tmp_path: Path
) -> None:
    """Processor time is measured, so that other load on the machine does not matter."""
    words = [word.format(trace=trace, long=long_trace) for word in command]
    said, more_s = interrupted(words, tmp_path)
    assert "interrupted; no file was written" in said
    assert "Traceback" not in said
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
        found = []
        for path in Path("/proc", str(process.pid), "task").glob("*/children"):
            # A thread may end between the listing of its name and the reading of its file.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += [int(number) for number in path.read_text().split()]
        return found

    deadline = time.monotonic() + PATIENCE_S
    drawing: list[int] = []
    while not drawing and process.poll() is None and time.monotonic() < deadline:
        drawing = children()
        time.sleep(0.001)
    assert drawing, "nothing was drawn"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    assert said.strip().endswith("interrupted; no file was written")
    wait_until(lambda: not any(Path("/proc", str(number)).exists() for number in drawing))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_was_written_before_the_interruption_is_named(trace: Path, tmp_path: Path) -> None:
    process = started(["profile", str(trace), "--html", "page.html", "--figures", "figures"], tmp_path)
    wait_until((tmp_path / "page.html").exists)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    if process.returncode == 0:
        pytest.skip("the command ended before the signal came")
    assert "interrupted; complete: page.html" in said


def test_a_file_in_place_is_named_though_the_interruption_comes_before_its_writing_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130, said
        found = re.search(r"interrupted; aged: (\d) of 2 cells are stored in \S+; the same command", said)
        assert found is not None, said
        assert int(found[1]) == kept_cells(tmp_path)
    (tmp_path / "aged.toml").write_text(study.format(trace, "small-1gb", "sequential:10"))
    assert emmclab("run", "aged.toml", "--jobs", 2, cwd=tmp_path).returncode == 0
    left = [path.name for path in tmp_path.rglob("*") if path.suffix == ".lock" or path.name[0] == "."]
    assert left == []
