"""A trace in parts has the profile of the whole: exact where parts add up, and what is estimated is named."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

import emmclab as package
from conftest import COMMAND, PATIENCE_S, emmclab, emmclab_json, environment
from emmclab.errors import FormatError
from emmclab.parts import profile_parts
from emmclab.workload import Workload

#: Figures that do not depend on what is unfinished, or on an earlier touch, where a part begins.
EXACT = (
    "throughput_by_size",
    "size_distribution",
    "response_distribution",
    "service_distribution",
    "inter_arrival_distribution",
    "hot_pages",
    "sequential_runs",
    "alignment",
    "process_share",
    "device_share",
    "flags",
)


def cut(trace: Path, folder: Path, parts: int) -> None:
    """Write a trace in parts of equal length, as other tools do; their names say nothing of time."""
    folder.mkdir()
    with duckdb.connect() as database:
        database.execute(f"create table every as select *, row_number() over () - 1 as n from '{trace}'")
        (rows,) = database.execute("select count(*) from every").fetchone() or (0,)
        each = -(-rows // parts)
        for number in range(parts):
            name = folder / f"part-{(7 * number) % parts:03}-{number}.parquet"
            chosen = f"select * exclude n from every where n // {each} = {number} order by n"
            database.execute(f"copy ({chosen}) to '{name}' (format parquet)")
    (folder / "_SUCCESS").write_text("")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace whose requests often overlap, and touch pages again."""
    path = tmp_path_factory.mktemp("whole") / "chat.parquet"
    Workload.preset("Messaging").trace(3, requests=6_000).write(path)
    return path


@pytest.fixture(scope="module")
def parts(whole: Path) -> Path:
    """The same in seven parts."""
    folder = whole.parent / "parts"
    cut(whole, folder, 7)
    return folder


def test_what_adds_up_is_exact_for_any_number_of_threads(whole: Path, parts: Path) -> None:
    exact = package.profile(whole)
    found = [profile_parts(parts, jobs) for jobs in (1, 3)]
    assert found[0].to_dict() == found[1].to_dict()
    merged = found[0]
    assert merged["parts"] == 7
    for name, value in exact.items():
        if isinstance(value, int | float) and name != "no_wait_pct":
            assert merged[name] == value, name
    for group in ("by_operation", "working_set"):
        assert merged[group] == exact[group]
    for name in EXACT:
        assert merged.figure(name) == exact.figure(name), name
    counted = {"seen", "kept", "skipped", "reordered", "clock_jumps"}
    assert {name: merged["ledger"][name] for name in counted} == {
        name: exact["ledger"][name] for name in counted
    }


def test_what_begins_anew_in_each_part_is_named_with_its_error(whole: Path, parts: Path) -> None:
    exact, merged = package.profile(whole), profile_parts(parts, 2)
    named = {one["figure"]: one for one in merged["estimates"]}
    assert named.keys() == {"reuse_distance", "update_interval", "working_set", "queue_depth"}

    def first_touches(profile: Any) -> int:
        return sum(row["accesses"] for row in profile.figure("reuse_distance") if row["high_kb"] is None)

    touches = sum(row["accesses"] for row in exact.figure("reuse_distance"))
    assert touches == sum(row["accesses"] for row in merged.figure("reuse_distance"))
    assert exact["locality"]["reuse_sampling"] == 1
    error_pct = 100 * (first_touches(merged) - first_touches(exact)) / touches
    assert named["reuse_distance"]["error_pct"] == pytest.approx(error_pct)
    assert 0 < error_pct < 25
    for one, other in zip(
        exact.figure("reuse_distance")[:-1], merged.figure("reuse_distance")[:-1], strict=False
    ):
        assert abs(one["hit_pct"] - other["hit_pct"]) <= error_pct + 1e-9
    # A request can be taken for the first at most where one is unfinished at the cut: six cuts.
    assert abs(merged["no_wait_pct"] - exact["no_wait_pct"]) <= 100 * 6 * 20 / exact["requests"]
    assert merged["queue"]["busy_pct"] == pytest.approx(exact["queue"]["busy_pct"], abs=0.5)
    assert merged.figure("working_set")[-1]["unique_kb"] == exact.figure("working_set")[-1]["unique_kb"]


def test_the_command_takes_a_folder_as_one_trace_and_names_the_estimates(parts: Path, tmp_path: Path) -> None:
    (found,) = emmclab_json("profile", parts, "--jobs", 2, "--html", tmp_path / "page.html")
    assert found["name"] == "parts"
    assert found["header"]["source"] == "parts"
    assert found["requests"] == 6_000
    assert "parts were profiled each by itself" in (tmp_path / "page.html").read_text()
    text = emmclab("profile", parts).stdout
    assert "Estimates: reuse_distance" in " ".join(text.split())


def test_a_single_part_has_no_estimates(whole: Path, tmp_path: Path) -> None:
    cut(whole, tmp_path / "one", 1)
    found = profile_parts(tmp_path / "one", 2)
    assert found["estimates"] == []
    assert found["no_wait_pct"] == package.profile(whole)["no_wait_pct"]


def test_recordings_that_overlap_are_no_parts_of_a_trace(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "overlapping"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.parquet").write_bytes(whole.read_bytes())
    with pytest.raises(FormatError, match=r"b\.parquet: .*begins .* before this one ends"):
        profile_parts(folder, 2)
    done = emmclab("profile", folder)
    assert done.returncode == 2
    assert "hint: profile recordings that are no parts of one trace each by itself" in done.stderr


def test_a_folder_without_requests_and_a_part_that_is_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = emmclab("profile", tmp_path / "empty")
    assert (done.returncode, "there is no part of a trace" in done.stderr) == (2, True)
    (tmp_path / "empty/part.parquet").write_bytes(b"PAR1 but no more")
    done = emmclab("profile", tmp_path / "empty")
    assert done.returncode == 2
    assert "part.parquet" in done.stderr


def test_ctrl_c_ends_the_parts_that_are_under_way(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    made = tmp_path / "made.parquet"
    Workload.preset("Messaging").trace(1, requests=3_000_000).write(made)
    (folder / "first.parquet").write_bytes(made.read_bytes())
    command = [*COMMAND, "profile", str(folder), "--jobs", "2", "--cache-policies", "all", "--cache-exact"]
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    time.sleep(3)
    if process.poll() is not None:
        pytest.skip("the command ended before it could be interrupted")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    if process.returncode == 0:
        pytest.skip("the command ended before the signal came")
    assert process.returncode == 130, said
    assert "interrupted; no file was written" in said


def test_json_of_parts_is_json(parts: Path) -> None:
    done = emmclab("profile", parts, "--json")
    assert json.loads(done.stdout)[0]["estimates"][0]["why"]
