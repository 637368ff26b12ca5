"""Damaged or changed files are detected when read: none leads to a wrong figure or a crash."""

import errno
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import emmclab as api
from conftest import assert_refused, cases, emmclab, emmclab_ok
from emmclab import _core
from emmclab.crash import Workload, record_run
from emmclab.crash.explore import Exploration
from emmclab.crash.stored_log import Session, _stored_share, as_json
from emmclab.errors import ConfigError, EmmclabError, InputError, UnsupportedError
from emmclab.fleet import Table, profile_fleet, summarise
from emmclab.fleet.table_state import state_of
from emmclab.runtime import checksummed
from emmclab.runtime.checksummed import from_checked_json, to_checked_json
from emmclab.runtime.parquet import write_parquet
from emmclab.runtime.result_storage import Folder, place_of
from emmclab.simulation.device import Device
from emmclab.studies import Results, Serial, Study, run
from emmclab.studies.query import query_one_trace, query_studies
from emmclab.studies.run import changes, collect, collected, run_cells
from emmclab.studies.store import Store
from emmclab.traces.workload import Workload as Synthetic

STUDY = """
name = "small"
inputs = ["Idle", "Movie"]

[[grid]]
name = "pages"
devices = ["iiswc15-4ps"]
modes = ["open", "closed"]
"""
QUESTION = "select * from runs order by all"
#: Bits that are flipped, each in a separate copy.
FLIPS = cases(32)


def flip(path: Path, draw: random.Random) -> int:
    """Flip a bit of a file, and return the number of its byte."""
    content = bytearray(path.read_bytes())
    place = draw.randrange(len(content))
    content[place] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    return place


@pytest.fixture(scope="module")
def study() -> Study:
    return Study.parse(STUDY, "small.toml")


@pytest.fixture
def whole(study: Study, finished: Path, tmp_path: Path) -> Path:
    """The finished results, collected in one file."""
    path = tmp_path / "whole.parquet"
    collect(study, study.cells(), [Folder(finished)], path)
    return path


@pytest.fixture(scope="module")
def finished(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored") / "small"
    run_cells(study, Folder(folder), Serial())
    return folder


def read_all(folder: Path) -> tuple[object, ...]:
    """Return everything that a reader reads from results."""
    results = Results.load(folder)
    profiles = [profile.to_dict() for profile in results.profiles.values()]
    with query_studies([folder], QUESTION) as answer:
        return results.digest, results.runs, profiles, results.about, list(answer.rows)


def test_a_flipped_bit_is_refused_and_the_next_run_mends_it(study: Study, finished: Path, tmp_path: Path) -> None:
    draw = random.Random(1)
    expected, names = read_all(finished), [path for path in finished.rglob("*") if path.is_file()]
    cells = study.cells()
    refused = 0
    for number in range(FLIPS):
        copy = tmp_path / str(number) / "small"
        shutil.copytree(finished, copy)
        flip(copy / draw.choice(names).relative_to(finished), draw)
        try:
            assert read_all(copy) == expected
        except InputError as error:
            assert "damaged" in str(error)
            assert "emmclab run" in str(error.hint)
            refused += 1
        notes: list[str] = []
        outcome = run_cells(study, Folder(copy), Serial(), cells=cells, note=notes.append)
        assert outcome.digest == expected[0]
        assert read_all(copy) == expected
        assert all("damaged" in sentence for sentence in notes)
        shutil.rmtree(copy)
    # A flipped bit may turn white space in the index into other white space, which is no damage.
    assert refused > 0.9 * FLIPS


def test_a_run_repeats_only_damaged_cells_and_says_so(study: Study, finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "small"
    shutil.copytree(finished, copy)
    part = copy / "cells" / "all.parquet"
    # A byte of the footer does not belong to a cell.
    content = bytearray(part.read_bytes())
    content[content.rindex(checksummed.KEY.encode())] ^= 1
    part.write_bytes(content)
    notes: list[str] = []
    done: list[int] = []
    run_cells(study, Folder(copy), Serial(), note=notes.append, progress=lambda now: done.append(now.done))
    cells = len(study.cells())
    assert notes == [
        f"{copy}/cells/all.parquet: this part of the results is damaged, or of an earlier version: "
        f"{cells} of its cells are intact, the others are run again; the file is now "
        "cells/all.parquet.damaged"
    ]
    assert part.with_name("all.parquet.damaged").read_bytes() == content
    assert done == []


def test_collected_results_and_parts_are_refused_if_damaged(
    study: Study, finished: Path, whole: Path, tmp_path: Path
) -> None:
    draw = random.Random(2)
    assert collected(whole).digest == Results.load(finished).digest
    for _ in range(20):
        damaged = tmp_path / "damaged.parquet"
        shutil.copy(whole, damaged)
        flip(damaged, draw)
        with pytest.raises(InputError, match="damaged"):
            collected(damaged)
    copy = tmp_path / "small"
    shutil.copytree(finished, copy)
    flip(copy / "cells" / "all.parquet", draw)
    with pytest.raises(InputError, match="damaged") as caught:
        collect(study, study.cells(), [Folder(copy)], tmp_path / "none.parquet")
    assert "emmclab run" in str(caught.value.hint)
    assert not (tmp_path / "none.parquet").exists()


def test_a_damaged_table_of_a_fleet_is_refused_and_made_again_of_its_recordings(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir()
    for seed in range(3):
        Synthetic.preset("Idle").trace(seed, requests=200).write(folder / f"{seed}.csv")
    copied = tmp_path / "whole.parquet"
    profile_fleet(folder, copied, Serial())
    shutil.copy(state_of(copied), tmp_path / "state")
    summary = summarise(Table(copied)).to_dict()
    draw = random.Random(3)
    refused = 0
    for number in range(FLIPS):
        table = tmp_path / f"{number}.parquet"
        shutil.copy(copied, table)
        shutil.copy(tmp_path / "state", state_of(table))
        flip(table if number % 2 else state_of(table), draw)
        try:
            assert summarise(Table(table)).to_dict() == summary
        except EmmclabError as error:
            assert "damaged" in f"{error} {error.hint}"
            refused += 1
        try:
            profiled_table, counts = profile_fleet(folder, table, Serial())
        except EmmclabError as error:
            # A file that is not recognised as the table of a fleet may belong to another program.
            assert "not a fleet table" in str(error)
            continue
        assert profiled_table.path.read_bytes() == copied.read_bytes()
        assert counts.was_damaged == bool(number % 2)
    assert refused == FLIPS // 2


def test_a_damaged_row_that_waits_for_its_table_is_profiled_again(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir()
    Synthetic.preset("Idle").trace(1, requests=200).write(folder / "1.csv")
    table = tmp_path / "fleet.parquet"
    profile_fleet(folder, table, Serial())
    content = table.read_bytes()
    state = state_of(table)
    first, line = state.read_text().splitlines()
    table.unlink()
    # The state is that of a run that was killed before it wrote the table, with one figure changed.
    row = '{"path": "1.csv", "refused": null, "digest": "0", "bytes": 1, "requests": 999}'
    damaged = line.replace('"row": null', f'"row": {row}')
    state.write_text(f"{first}\n{damaged}\n")
    profile_fleet(folder, table, Serial())
    assert table.read_bytes() == content


def test_a_sealed_file_is_told_from_one_with_another_bit_or_length(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    write_parquet(path, [{"name": "a", "value": 1}, {"name": "b", "value": 2}])
    assert checksummed.is_intact(path)
    content = path.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        assert not checksummed.is_intact(path), place
    for length in (*range(16), len(content) - 1):
        path.write_bytes(content[:length])
        assert not checksummed.is_intact(path), length
    path.write_bytes(content + content[-8:])
    assert not checksummed.is_intact(path)


DEVICE_STUDY = """
name = "mine"
inputs = ["chat.csv"]

[[grid]]
name = "pages"
devices = ["mine.toml"]
"""


def test_results_of_a_changed_input_or_device_have_a_warning_and_the_command_to_renew_them(tmp_path: Path) -> None:
    device, trace = tmp_path / "mine.toml", tmp_path / "chat.csv"
    device.write_text(Device.preset("iiswc15-4ps").to_toml())
    Synthetic.preset("Idle").trace(1, requests=100).write(trace)
    (tmp_path / "mine.study.toml").write_text(DEVICE_STUDY)
    query = ("query", "select count(*) from runs", "--study", "mine", "--results", "kept")
    report = ("report", "mine.study.toml", "--results", "kept")
    run = ("run", "mine.study.toml", "--results", "kept", "--jobs", 1)
    assert emmclab(*run, cwd=tmp_path).returncode == 0
    assert "warning" not in emmclab(*query, cwd=tmp_path).stderr
    for changed in (device, trace):
        changed.write_text(changed.read_text() + "\n")
        for command in (report, query):
            done = emmclab_ok(*command, cwd=tmp_path)
            assert f"{changed.name} has changed since" in done.stderr
            assert "`emmclab run mine.study.toml --results kept` updates them" in done.stderr
        assert emmclab(*run, cwd=tmp_path).returncode == 0
        assert "warning" not in emmclab(*report, cwd=tmp_path).stderr


def test_results_of_another_build_are_told_from_those_of_this_one(
    finished: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [whole, finished / "runs.parquet", finished / "profiles.parquet"]
    assert [changes(table) for table in tables] == [[], [], []]
    monkeypatch.setattr(run, "build_digest", lambda: "another")
    assert [changes(table) for table in tables] == [["another build of emmclab wrote them"]] * 3


def test_results_in_a_folder_that_can_only_be_read_are_reported(
    study: Study, finished: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tempfile.mkdtemp

    def elsewhere(*arguments: Any, **options: Any) -> str:
        if Path(options["dir"]) in (finished, tmp_path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(options["dir"]))
        return make(*arguments, **options)

    monkeypatch.setattr(tempfile, "mkdtemp", elsewhere)
    assert Results.load(finished).digest == collected(whole).digest
    with pytest.raises(OSError, match="Read-only"):
        run_cells(study, Folder(finished), Serial())


def test_no_result_is_kept_of_a_device_whose_file_changes_while_the_study_runs(tmp_path: Path) -> None:
    device = tmp_path / "mine.toml"
    device.write_text(Device.preset("iiswc15-4ps").to_toml())
    study = Study.parse(STUDY.replace("iiswc15-4ps", str(device)), "small.toml")
    cells = study.cells()
    device.write_text(Device.preset("iiswc15-hps").to_toml())
    with pytest.raises(InputError, match=r"mine\.toml: this file has changed since"):
        run_cells(study, Folder(tmp_path / "small"), Serial(), cells=cells)
    keys = Store(tmp_path / "small").keys()
    assert not keys & {cell.key for cell in cells if cell.device}


VALUE = {"a": [1, 2.5, None], "b": {"c": "text"}, "check": "sqlite"}


def test_no_flipped_bit_of_kept_json_gives_another_value() -> None:
    text = to_checked_json(VALUE)
    assert from_checked_json(text) == VALUE
    for place in range(len(text)):
        for bit in range(8):
            damaged = bytearray(text)
            damaged[place] ^= 1 << bit
            # A line may end with a different white-space character.
            assert from_checked_json(bytes(damaged)) in (None, VALUE)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "[" * 100_000, json.dumps(VALUE), b"\xff"])
def test_what_has_no_check_was_not_written_so(text: str | bytes) -> None:
    assert from_checked_json(text) is None


def test_a_damaged_share_of_an_exploration_is_explored_again(tmp_path: Path) -> None:
    path = tmp_path / "share.json"
    exploration = Exploration(states=12, finished=True)
    path.write_bytes(to_checked_json(as_json(exploration)))
    share_file = _stored_share(path)
    assert share_file is not None
    assert share_file.states == 12
    path.write_bytes(path.read_bytes().replace(b"12", b"13", 1))
    assert _stored_share(path) is None


def test_a_damaged_description_of_a_log_is_named_with_the_command_that_writes_it(tmp_path: Path) -> None:
    folder = tmp_path / "c3f28812"
    folder.mkdir()
    for name, text in (("run.json", b"{"), ("options-123456.json", b"[")):
        (folder / name).write_bytes(text)
    with pytest.raises(InputError, match=r"run\.json: this file is damaged") as caught:
        Session(tmp_path).find_state("c3f2:8812:17:123456")
    assert f"emmclab crash --log {folder / 'run.log'}" in str(caught.value.hint)
    (folder / "run.json").write_bytes(to_checked_json({"log": "none", "base": None, "made": {}}))
    with pytest.raises(ConfigError, match="not explored with the options 123456"):
        Session(tmp_path).find_state("c3f2:8812:17:123456")


def trace(path: Path) -> None:
    Synthetic.preset("Messaging").trace().write(path)


def events(path: Path) -> None:
    trace(path.with_name("input.parquet"))
    api.Device.preset("nexus5").simulate(api.read(path.with_name("input.parquet")), events=path, wrap_addresses=True)


def profile(path: Path) -> Any:
    return api.read(path).profile()


def waits(path: Path) -> Any:
    sums = "sum(wait_queue_ns), sum(wait_controller_ns), sum(wait_bus_ns), sum(wait_array_ns), sum(pid)"
    with query_one_trace(api.read(path), f"select {sums}, count(*) from events") as answer:
        return list(answer.rows)


def run_of(path: Path) -> Any:
    run = _core.CrashRun(str(path))
    return run.facts(), run.acknowledgements(), run.commands(0, 1 << 40)


#: Each stored form: the extension of its name, a function that writes it, and a function that reads figures from it.
FORMS: dict[str, tuple[str, Callable[[Path], None], Callable[[Path], Any]]] = {
    "trace": (".parquet", trace, profile),
    "compressed text": (".csv.zst", trace, profile),
    "events": (".parquet", events, waits),
    "crash log": (".log", partial(record_run, "emmc51-cache", Workload("append-log", operations=30)), run_of),
}


@pytest.mark.parametrize("flips", [20, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", FORMS)
def test_a_changed_bit_changes_no_figure_in_silence(tmp_path: Path, form: str, flips: int) -> None:
    ending, write, figures = FORMS[form]
    if form == "crash log" and os.geteuid() != 0:
        pytest.skip("mounts a served device")
    path = tmp_path / f"stored{ending}"
    write(path)
    content, expected = path.read_bytes(), json.dumps(figures(path), default=str)
    dice = random.Random(flips)
    refused = 0
    for _ in range(flips):
        path.write_bytes(content)
        place = flip(path, dice)
        try:
            read_figures = json.dumps(figures(path), default=str)
        except EmmclabError as error:
            refused += 1
            assert str(path) in str(error), place
        else:
            assert read_figures == expected, f"byte {place} of {len(content)}"
    assert refused > flips * 0.9


def test_damage_is_named_by_file_and_place_and_ends_with_exit_code_2(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    trace(path)
    changed = bytearray(path.read_bytes())
    changed[20_000] ^= 1
    path.write_bytes(changed)
    for command in ("profile", "explain", "head"):
        assert_refused(emmclab(command, path), f"{path}: byte 16384: the file was damaged after it was written")


@pytest.mark.parametrize("writer", ["duckdb", "pyarrow", "pandas"])
def test_a_file_that_another_tool_rewrote_is_read_as_one_of_that_tool(tmp_path: Path, writer: str) -> None:
    path, copy = tmp_path / "trace.parquet", tmp_path / "copy.parquet"
    trace(path)
    if writer == "duckdb":
        pytest.importorskip("duckdb").sql(f"copy (from '{path}') to '{copy}' (format parquet)")
    elif writer == "pandas":
        pytest.importorskip("pandas").read_parquet(path).to_parquet(copy)
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(parquet.read_table(path), copy)
    ours, theirs = profile(path), profile(copy)
    differing = {name for name in ours if ours[name] != theirs[name]}
    assert differing <= {"header", "name", "trace_digest"}, differing


def test_a_missing_library_is_named_with_the_line_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(UnsupportedError) as refused:
        place_of("s3://sweeps/x", "small")
    assert "pip install 'emmclab[bucket]'" in str(refused.value.hint)
