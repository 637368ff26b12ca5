"""Folders that exist only while a process works on them: no other process removes them."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

from emmclab.runtime.files import folder_aside, sweep


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
