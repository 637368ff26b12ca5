"""A sweep in shards and on crashing workers: no cell is lost or doubled, and missing cells are reported."""

import json
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import assert_refused, emmclab, emmclab_json, emmclab_ok, kept_cells
from emmclab.cli import main
from emmclab.errors import ConfigError, EmmclabError
from emmclab.papers.claims import judge_study
from emmclab.runtime.executors import Crash, each
from emmclab.runtime.result_storage import Folder
from emmclab.studies import Pool, Results, Serial, Study, result_rows, store
from emmclab.studies.cell import Cell
from emmclab.studies.cell_scheduler import CRASHES, Outcome, Sweep
from emmclab.studies.result_rows import StoredCell
from emmclab.studies.run import Shard, run_cells, run_part
from emmclab.studies.store import Store

STUDY = """
name = "small"
inputs = ["Messaging", "Movie"]
seeds = [1, 2, 3]

[[grid]]
name = "pages"
devices = ["iiswc15-4ps", "iiswc15-hps"]
[grid.axes]
"timing.parallelism" = ["none", "both"]
"""
CELLS = 2 * 3 * (1 + 4)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "small.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def whole_run(study: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes that `collect` writes after a run in one process."""
    folder = tmp_path_factory.mktemp("whole")
    assert emmclab("run", study, "--jobs", 1, "--results", folder).returncode == 0
    return collected(study, folder)


def collected(study: Path, *results: object) -> bytes:
    """Return the bytes that `collect` writes from these results."""
    output = Path(str(results[0])) / "all.parquet"
    emmclab_ok("collect", study, *results, "-o", output)
    return output.read_bytes()


def test_sixteen_shards_in_any_order_collect_the_bytes_of_one_run(
    study: Path, whole_run: bytes, tmp_path: Path
) -> None:
    """First each shard has its own folder, as on machines that share nothing; then all are in one folder."""
    numbers = list(range(1, 17))
    random.Random(5).shuffle(numbers)
    cells = Study.named(str(study)).cells()
    assert sorted(cell.key for number in numbers for cell in Shard(number, 16).share(cells)) == sorted(
        cell.key for cell in cells
    )
    for number in numbers:
        words = ("run", study, "--shard", f"{number}/16", "--jobs", 1, "--results", tmp_path / str(number))
        assert main(list(map(str, words))) == 0
    assert collected(study, *(tmp_path / str(number) for number in numbers)) == whole_run


def test_a_cell_that_is_in_several_places_is_collected_once(study: Path, whole_run: bytes, tmp_path: Path) -> None:
    for name in ("one", "other"):
        words = ("run", study, "--jobs", 1, "--results", tmp_path / name)
        assert emmclab(*words, "--shard", "1/2").returncode == 0
    words = ("run", study, "--jobs", 1, "--results", tmp_path / "other", "--shard", "2/2")
    assert emmclab(*words).returncode == 0
    assert collected(study, tmp_path / "one", tmp_path / "other") == whole_run


def test_what_is_missing_is_said_on_top_and_nothing_is_judged(study: Path, tmp_path: Path) -> None:
    assert emmclab("run", study, "--shard", "1/3", "--jobs", 1, "--results", tmp_path).returncode == 0
    part = tmp_path / "part.parquet"
    done = emmclab("collect", study, tmp_path, "-o", part)
    assert done.returncode == 1
    assert done.stdout.startswith(f"incomplete: 20 of {CELLS} cells have no result (66.7 %)\n")
    page = tmp_path / "page.html"
    done = emmclab_ok("report", study, "--results", part, "--html", page)
    assert "incomplete: 20 of 30" in done.stderr
    text = page.read_text()
    first = text.index("have no result and are not included below")
    assert text.index("<h1") < first < text.index("<h2"), "the missing cells are said before every figure"


def test_claims_refuse_an_incomplete_study() -> None:
    study = Study.named("iiswc15")
    results = Results({"name": study.name, "cells": 10, "missing": 3, "missing_grids": ["hybrid"]}, {}, [], "")
    with pytest.raises(EmmclabError, match="3 of 10 cells have no result; no claim is checked"):
        judge_study(results)


def test_cells_of_grids_without_claims_may_be_missing() -> None:
    missing = {"missing": 3, "missing_grids": ["phone"]}
    results = Results({"name": "iiswc15", "cells": 10} | missing, {}, [], "")
    assert results.lacks() and not results.lacks(["phone", "eager-gc"])
    assert Results(results.about | {"missing_grids": ["phone", "hybrid"]}, {}, [], "").lacks(["phone"])


@pytest.mark.slow
def test_a_collected_file_is_ordered_by_key_and_holds_every_figure(study: Path, tmp_path: Path) -> None:
    assert emmclab("run", study, "--jobs", 1, "--results", tmp_path).returncode == 0
    collected(study, tmp_path)
    file = tmp_path / "all.parquet"
    query = f"select key, number, kind, mean_response_ms, timing_parallelism, result from '{file}'"
    rows = duckdb.sql(query).fetchall()
    cells = Study.named(str(study)).cells()
    assert [row[0] for row in rows] == sorted(cell.key for cell in cells)
    assert all(cells[row[1]].key == row[0] for row in rows)
    assert all(json.loads(row[5])["cell"]["input"] == cells[row[1]].input.name for row in rows)
    assert sum(row[2] == "runs" and row[3] > 0 and row[4] in ("none", "both") for row in rows) == CELLS - 6
    page, other = tmp_path / "page.html", tmp_path / "other.html"
    assert emmclab("report", study, "--results", file, "--html", page).returncode == 0
    assert emmclab("report", study, "--results", tmp_path, "--html", other).returncode == 0
    assert page.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "1/", "a/b", "-1/3", "1/0"])
def test_a_shard_that_is_none_is_refused(study: Path, text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        Shard.parse(text)
    assert_refused(emmclab("run", study, f"--shard={text}", "--results", tmp_path), "for example 3/16")


def test_an_estimate_runs_a_few_cells_and_keeps_them(study: Path, tmp_path: Path) -> None:
    estimate = emmclab_json("run", study, "--estimate", "--jobs", 1, "--results", tmp_path)
    assert estimate["total"] == CELLS and estimate["done"] == 8
    assert estimate["left_s"] > 0 and estimate["cells_s"] > 0
    assert kept_cells(tmp_path) == 8


class Crashing(Cell):
    """A cell that crashes its process."""

    def outcome(self, images=None):  # type: ignore[no-untyped-def]
        del images
        os.kill(os.getpid(), signal.SIGKILL)


def with_crashing(study: Path) -> list[Cell]:
    """Return the cells of the study, one of which crashes."""
    cells = Study.named(str(study)).cells()
    bad = cells[7]
    cells[7] = Crashing(**{name: getattr(bad, name) for name in Cell.__dataclass_fields__})  # type: ignore[arg-type]
    assert cells[7].key == bad.key
    return cells


@pytest.mark.slow
def test_a_cell_that_crashes_is_set_apart_and_the_rest_goes_on(study: Path, whole_run: bytes, tmp_path: Path) -> None:
    chosen, cells = Study.named(str(study)), with_crashing(study)
    outcome = run_cells(chosen, Folder(tmp_path / "small"), Pool(2), cells=cells)
    (missing,) = outcome.missing
    assert (missing["key"], missing["seed"]) == (cells[7].key, cells[7].input.seed)
    assert missing["reason"] == f"it crashed its process {CRASHES} times: its process was ended by SIGKILL"
    assert outcome.about["missing"] == 1
    assert Results.load(tmp_path / "small").missing == 1
    assert kept_cells(tmp_path) == CELLS - 1
    # The study is complete when the cell does not crash any more.
    assert emmclab("run", study, "--cell", missing.key[:12], "--results", tmp_path).returncode == 0
    assert emmclab("run", study, "--jobs", 1, "--results", tmp_path).returncode == 0
    assert collected(study, tmp_path) == whole_run


def test_the_command_line_names_what_repeats_a_crash(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = with_crashing(study)
    monkeypatch.setattr(Study, "cells", lambda _: cells)
    status = main(["run", str(study), "--jobs", "2", "--results", str(tmp_path)])
    captured = capsys.readouterr()
    assert status == 1
    assert captured.out.startswith("incomplete: 1 of 30 cells has no result (3.3 %)\n")
    command = f"emmclab run {study} --results {tmp_path} --cell {cells[7].key[:12]}"
    assert f"repeat it: {command}" in captured.err
    assert "Messaging" in captured.err and "seed 2" in captured.err


def fall(number: int) -> int:
    """Work that kills its process for one particular number."""
    if number == 3:
        os.kill(os.getpid(), signal.SIGSEGV)
    return number * number


def test_a_pool_names_the_task_that_crashed_and_does_the_others() -> None:
    outcomes = dict(Pool(2).run(fall, each(range(20))))
    assert outcomes.pop(3) == Crash("its process was ended by SIGSEGV")
    assert outcomes == {number: number * number for number in range(20) if number != 3}


class Unreadable:
    """A task that only the process that created it can unpickle."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return read_elsewhere, (str(os.getpid()),)


def read_elsewhere(maker: str) -> str:
    """Raise an exception in all processes except the maker."""
    if maker != str(os.getpid()):
        raise LookupError("it cannot be read here")
    return maker


def test_a_task_that_a_worker_cannot_read_is_an_error_and_no_wait_without_end() -> None:
    with pytest.raises(LookupError, match="cannot be read here"):
        list(Pool(1).run(str, each([Unreadable()])))


def refuse(number: int) -> int:
    """Work that raises an exception."""
    raise ConfigError(f"no {number}", field="number", hint="take another")


def test_a_pool_raises_what_the_work_raises() -> None:
    with pytest.raises(ConfigError, match="no 0") as caught:
        list(Pool(2).run(refuse, each([0])))
    assert (caught.value.field, caught.value.hint) == ("number", "take another")


class Fatal:
    """Work that ends the process that receives it."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (7,)

    def __call__(self, number: int) -> int:
        raise NotImplementedError


def test_a_pool_whose_processes_cannot_begin_says_so_and_ends() -> None:
    with pytest.raises(EmmclabError, match=r"3 worker processes in a row .* ended with status 7") as caught:
        list(Pool(2).run(Fatal(), each(range(1_000))))
    assert "--jobs 1" in str(caught.value.hint)


def big(number: int) -> bytes:
    """Work whose result is larger than the buffer of any pipe."""
    return bytes((1 << 20) * (number > 0))


def test_tasks_and_outcomes_larger_than_a_pipe_do_not_wait_for_each_other() -> None:
    # An integer of a megabyte is sent, and the result has the same size.
    tasks = [(1 << (8 << 20)) + number for number in range(6)]
    outcomes = list(Pool(2).run(big, each(tasks)))
    assert sorted(task for task, _ in outcomes) == tasks
    assert all(len(outcome) == 1 << 20 for _, outcome in outcomes if isinstance(outcome, bytes))


def test_cells_are_put_into_tasks_of_about_a_second(study: Path) -> None:
    cells = Study.named(str(study)).cells()
    many = [replace(cell, options=f'{{"number": {number}}}') for cell in cells for number in range(100)]
    sweep = Sweep(many, len(many))
    sizes: list[int] = []

    class Counting(Serial):
        """An executor whose cells take 10 ms for profiles, and 200 ms for simulations."""

        def run(self, work, next_task, files=()):  # type: ignore[no-untyped-def]
            del work, files
            while (task := next_task(None)) is not None:
                sizes.append(len(task.cells))
                times = [0.01 if cell.grid == "profile" else 0.2 for cell in task.cells]
                yield task, [Outcome(StoredCell.of("", "", ""), time_s) for time_s in times]

    for _ in sweep.run(Counting(), Store(Path("nowhere")).images, ()):
        pass
    assert sum(sizes) == len(many)
    assert sizes[0] == 1, "no time is known"
    assert 80 <= max(sizes) <= 101
    assert sorted(sizes)[len(sizes) // 2] in (4, 5)
    progress = sweep.progress
    assert (progress.done, progress.left_s) == (len(many), 0.0)
    assert progress.cells_s == pytest.approx(0.01 * len(many) / 5 + 0.2 * len(many) * 4 / 5)


def test_a_worker_goes_on_with_the_device_that_it_has_made_ready(study: Path) -> None:
    """The second worker prepares the same device only at the end, when the last group is divided."""
    cells = Study.named(str(study)).cells()
    used = [
        replace(cell, device=f"d{number}", grid="used", options='{"precondition": "sequential:90"}')
        for number in range(6)
        for cell in cells
    ]
    sweep = Sweep(used, len(used))
    prepared: list[set[object]] = [set(), set()]

    class TwoWorkers(Serial):
        """An executor with two workers that take turns; each cell takes a second."""

        jobs = 2

        def run(self, work, next_task, files=()):  # type: ignore[no-untyped-def]
            del work, files
            last = [None, None]
            turn = 0
            while (task := next_task(last[turn])) is not None:
                last[turn] = task
                prepared[turn].update(cell.preparation_key for cell in task.cells)
                turn = 1 - turn
                yield task, [Outcome(StoredCell.of("", "", ""), 1.0) for _ in task.cells]

    for _ in sweep.run(TwoWorkers(), Store(Path("nowhere")).images, ()):
        pass
    assert sweep.progress.done == len(used)
    assert len(prepared[0] & prepared[1]) <= 1


@pytest.mark.parametrize(("most", "is_joined"), [(1_000, False), (1, True)])
def test_parts_of_many_cells_stay_until_there_are_too_many(
    study: Path, whole_run: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, is_joined: bool
) -> None:
    monkeypatch.setattr(store, "_MANY_CELLS", CELLS - 1)
    monkeypatch.setattr(store, "_MANY_PARTS", most)
    chosen, place = Study.named(str(study)), Folder(tmp_path / "small")
    cells = chosen.cells()
    for number in range(1, 4):
        run_part(place, Serial(), f"{number}-of-3", Shard(number, 3).share(cells))
    # One cell is in two parts, as after a killed run.
    stored = Store(place)
    stored.add([StoredCell(*row) for row in stored.ask([cells[0].key], "result", "rows")])
    names = place.names("cells")
    outcome = run_cells(chosen, place, Serial(), cells=cells)
    assert place.names("cells") == (["cells/all.parquet"] if is_joined else names)
    assert (outcome.counts["runs"], outcome.counts["profiles"], outcome.missing) == (CELLS - 6, 6, [])
    assert outcome.digest == Results.load(place).digest
    assert collected(study, tmp_path) == whole_run


@given(places=st.permutations(range(40)), size=st.integers(1, 400), twice=st.integers(0, 39), each=st.integers(1, 42))
def test_rows_come_in_order_whatever_fits_into_memory(
    places: list[int], size: int, twice: int, each: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = [(place, "x" * place, None) for place in [*places, twice]]
    batches = [rows[begin : begin + each] for begin in range(0, len(rows), each)]
    batches.sort(key=min)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(result_rows, "_HELD_BYTES", size)
        folder = tmp_path_factory.mktemp("aside")
        ordered = result_rows.in_ranges(((min(batch)[0], batch) for batch in batches), 40, folder)
        assert list(ordered) == sorted(rows)
        assert list(folder.iterdir()) == []


def test_rows_of_parts_in_order_go_out_before_the_next_part_is_read(tmp_path: Path) -> None:
    """Cells run in the order of the study, so that parts overlap little, and even a large study needs no file."""
    read: list[int] = []

    def batches() -> Iterator[tuple[int, list[tuple[int, str]]]]:
        for number in range(100):
            read.append(number)
            # The last rows of a part overlap with the first rows of the next part.
            yield 100 * number, [(100 * number + (row * 7) % 110, "") for row in range(110)]

    rows = result_rows.in_ranges(batches(), 10_010, tmp_path)
    for expected in range(5_000):
        place, _ = next(rows)
        assert place <= expected
    assert len(read) < 60
