"""A bit that changed in a stored file since it was written is an error, or changes no figure."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import emmclab
from conftest import assert_refused
from conftest import emmclab as run
from emmclab import _core
from emmclab.crash import Workload, record_run
from emmclab.errors import EmmclabError
from emmclab.studies.query import query_one_trace
from emmclab.traces.workload import Workload as Synthetic


def trace(path: Path) -> None:
    Synthetic.preset("Messaging").trace().write(path)


def events(path: Path) -> None:
    trace(path.with_name("input.parquet"))
    emmclab.Device.preset("nexus5").simulate(
        emmclab.read(path.with_name("input.parquet")), events=path, wrap_addresses=True
    )


def crash_log(path: Path) -> None:
    record_run("emmc51-cache", Workload("append-log", operations=30), path)


def profile(path: Path) -> Any:
    return emmclab.read(path).profile()


def waits(path: Path) -> Any:
    sums = "sum(wait_queue_ns), sum(wait_controller_ns), sum(wait_bus_ns), sum(wait_array_ns), sum(pid)"
    with query_one_trace(emmclab.read(path), f"select {sums}, count(*) from events") as answer:
        return list(answer.rows)


def run_of(path: Path) -> Any:
    found = _core.CrashRun(str(path))
    return found.facts(), found.acknowledgements(), found.commands(0, 1 << 40)


#: Each stored form: the ending of its name, what writes it, and what reads figures from it.
FORMS: dict[str, tuple[str, Callable[[Path], None], Callable[[Path], Any]]] = {
    "trace": (".parquet", trace, profile),
    "compressed text": (".csv.zst", trace, profile),
    "events": (".parquet", events, waits),
    "crash log": (".log", crash_log, run_of),
}


@pytest.mark.parametrize("flips", [20, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", FORMS)
def test_a_changed_bit_changes_no_figure_in_silence(tmp_path: Path, form: str, flips: int) -> None:
    ending, write, figures = FORMS[form]
    if form == "crash log" and os.geteuid() != 0:
        pytest.skip("mounts a served device")
    path = tmp_path / f"stored{ending}"
    write(path)
    whole, expected = path.read_bytes(), json.dumps(figures(path), default=str)
    dice = random.Random(flips)
    refused = 0
    for _ in range(flips):
        changed, place = bytearray(whole), dice.randrange(len(whole))
        changed[place] ^= 1 << dice.randrange(8)
        path.write_bytes(changed)
        try:
            found = json.dumps(figures(path), default=str)
        except EmmclabError as error:
            refused += 1
            assert str(path) in str(error), place
        else:
            assert found == expected, f"byte {place} of {len(whole)}"
    assert refused > flips * 0.9


def test_damage_is_named_by_file_and_place_and_ends_with_exit_code_2(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    trace(path)
    changed = bytearray(path.read_bytes())
    changed[20_000] ^= 1
    path.write_bytes(changed)
    for command in ("profile", "explain", "head"):
        assert_refused(run(command, path), f"{path}: byte 16384: the file is damaged since it was written")


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
