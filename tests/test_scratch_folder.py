"""Temporary folders: links of other users are not followed, and no process removes the files of another one."""

import multiprocessing
import os
import tempfile
from pathlib import Path

import pytest

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


def test_a_link_in_place_of_the_scratch_folder_is_refused(temporary: Path, other: Path) -> None:
    (temporary / f"emmclab-{os.geteuid()}").symlink_to(other)
    with pytest.raises(InputError, match="symbolic link") as caught:
        scratch()
    assert "TMPDIR" in str(caught.value.hint)
    assert (other / "kept").exists()


def test_a_file_in_place_of_the_scratch_folder_is_refused(temporary: Path) -> None:
    (temporary / f"emmclab-{os.geteuid()}").write_text("")
    with pytest.raises(InputError, match="not a folder"):
        scratch()


def test_a_scratch_folder_that_others_can_write_to_is_refused(temporary: Path) -> None:
    folder = temporary / f"emmclab-{os.geteuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(InputError, match="other users"):
        scratch()


@pytest.mark.root
def test_a_scratch_folder_of_another_user_is_refused(temporary: Path) -> None:
    folder = temporary / "emmclab-0"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    with pytest.raises(InputError, match="another user"):
        scratch()


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
