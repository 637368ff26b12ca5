"""Temporary folders: links of other users are not followed, and no process removes the files of another one."""

import multiprocessing
import os
import tempfile
from pathlib import Path

import pytest

from conftest import execute
from emmclab.crash.scratch_folders import remove_stale
from emmclab.errors import InputError
from emmclab.runtime.files import folder_aside, stale_folders, sweep
from emmclab.runtime.local_copies import scratch


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
