"""A trace in parts has the profile of the whole: sums are exact, and estimates are named."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import pytest

import emmclab as package
from conftest import PATIENCE_S, ROOT, assert_refused, begin, emmclab, emmclab_json, wait_until
from emmclab.errors import ConfigError, FormatError
from emmclab.traces import parallel_profile as parts_module
from emmclab.traces.parallel_profile import profile_parts, slices_of
from emmclab.traces.profile import Profile
from emmclab.traces.profile_notes import notes
from emmclab.traces.reading import read
from emmclab.traces.workload import Workload

#: Figures that do not depend on unfinished requests or earlier accesses at the start of a part.
EXACT = (
    "throughput_by_size",
    "size_distribution",
    "response_distribution",
    "response_by_size",
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
    """Write a trace in parts of equal length, as other tools do; their names do not show the order."""
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
    """A trace whose requests often overlap, and access pages again."""
    path = tmp_path_factory.mktemp("whole") / "chat.parquet"
    Workload.preset("Messaging").trace(3, requests=6_000).write(path)
    return path


@pytest.fixture(scope="module")
def parts(whole: Path) -> Path:
    """The same trace in seven parts."""
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
    assert {name: merged["ledger"][name] for name in counted} == {name: exact["ledger"][name] for name in counted}


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
    for one, other in zip(exact.figure("reuse_distance")[:-1], merged.figure("reuse_distance")[:-1], strict=False):
        assert abs(one["hit_pct"] - other["hit_pct"]) <= error_pct + 1e-9
    # Only a request that follows an unfinished one at a cut can be misjudged; there are six cuts.
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


def grouped(trace: Path, copy: Path, rows: int) -> Path:
    """Return a copy of a trace, made by another tool, in row groups of `rows` requests."""
    with duckdb.connect() as database:
        database.execute(f"copy (from '{trace}') to '{copy}' (format parquet, row_group_size {rows})")
    return copy


@pytest.fixture
def file(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The trace as one file of three row groups, each of which is a slice."""
    monkeypatch.setattr(parts_module, "_SLICE_REQUESTS", 1_000)
    path = grouped(whole, tmp_path / "chat.parquet", 2_048)
    assert slices_of(path) == [(0, 1), (1, 2), (2, 3)]
    return path


def same_but_estimates(merged: Any, exact: Any) -> None:
    """Check that sums, ledger, header and digest are equal."""
    for name, value in exact.items():
        if isinstance(value, int | float | str) and name != "no_wait_pct":
            assert merged[name] == value, name
    for group in ("by_operation", "working_set", "ledger", "header", "clock_jumps"):
        assert merged[group] == exact[group], group
    for name in EXACT:
        assert merged.figure(name) == exact.figure(name), name


def test_slices_of_a_file_give_what_one_pass_does_for_any_number_of_threads(file: Path) -> None:
    exact = package.profile(file)
    found = [profile_parts(file, jobs) for jobs in (1, 2, 5)]
    assert found[0].to_dict() == found[1].to_dict() == found[2].to_dict()
    same_but_estimates(found[0], exact)
    assert found[0]["parts"] == 3
    named = {one["figure"]: one["error_pct"] for one in found[0]["estimates"]}
    assert named.keys() == {"reuse_distance", "update_interval", "working_set", "queue_depth"}
    assert 0 < named["reuse_distance"] < 25


@pytest.mark.parametrize(
    "reading", [{"only": "op=write"}, {"only": "from=10s,to=60s"}, {"only": "from=1s,op=read"}, {"drop_reissued": True}]
)
def test_conditions_hold_for_the_whole_whatever_its_parts(
    file: Path, whole: Path, parts: Path, reading: dict[str, Any]
) -> None:
    """Times count from the first arrival of the whole trace, and a part may contain no selected request."""
    exact = package.read(file, **reading).profile()
    assert 0 < exact["requests"] < 6_000 or "drop_reissued" in reading
    same_but_estimates(profile_parts(file, 2, reading=reading), exact)
    merged = profile_parts(parts, 2, reading=reading)
    assert merged["by_operation"] == package.read(whole, **reading).profile()["by_operation"]


def test_conditions_that_nothing_meets_and_mending_in_parts_are_refused(file: Path, parts: Path) -> None:
    for place in (file, parts):
        with pytest.raises(ConfigError, match="no request meets all conditions") as refused:
            profile_parts(place, 2, reading={"only": "from=1000h"})
        assert refused.value.field == "--only"
        with pytest.raises(ConfigError, match="mended in one pass") as refused:
            profile_parts(place, 2, reading={"mend_clock": True})
        assert refused.value.field == "--mend-clock"


def test_a_file_that_is_out_of_order_is_refused_in_slices_as_in_one_pass(file: Path, tmp_path: Path) -> None:
    with duckdb.connect() as database:
        database.execute(
            f"copy (from (from '{file}' offset 3000) union all from (from '{file}' limit 3000)) "
            f"to '{tmp_path / 'turned.parquet'}' (format parquet, row_group_size 2048)"
        )
    with pytest.raises(FormatError):
        package.profile(tmp_path / "turned.parquet")
    with pytest.raises(FormatError, match="row"):
        profile_parts(tmp_path / "turned.parquet", 2)


def test_slices_depend_on_the_file_alone_and_other_formats_have_none(
    whole: Path, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = grouped(whole, tmp_path / "small.parquet", 2_048)
    assert slices_of(small) == [(0, 3)], "a small file is one slice"
    assert slices_of(trace) == []
    monkeypatch.setattr(parts_module, "_SLICE_REQUESTS", 1)
    monkeypatch.setattr(parts_module, "_MOST_SLICES", 2)
    assert slices_of(small) == [(0, 2), (2, 3)]
    done = emmclab("profile", trace, "--jobs", 2, "--json")
    assert (done.returncode, "read in one pass; --jobs is for Parquet" in done.stderr) == (0, True)


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
    assert_refused(emmclab("profile", folder), "profile recordings that are not parts of one trace each by itself")


def test_a_folder_without_requests_and_a_part_that_is_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert_refused(emmclab("profile", tmp_path / "empty"), "there is no part of a trace")
    (tmp_path / "empty/part.parquet").write_bytes(b"PAR1 but no more")
    assert_refused(emmclab("profile", tmp_path / "empty"), "part.parquet")


def is_at_work(process: subprocess.Popen[str]) -> bool:
    """Return whether a process has used the processor for longer than it takes to start."""
    fields = Path("/proc", str(process.pid), "stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) >= 3 * os.sysconf("SC_CLK_TCK")


def test_ctrl_c_ends_the_parts_that_are_under_way(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "first.csv").write_bytes(b"arrival_us,op,sector,sectors\n" + b"0,write,0,8\n" * 12_000_000)
    process = begin("profile", folder, "--jobs", "2")
    wait_until(lambda: is_at_work(process), process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    assert "interrupted; no file was written" in said


def test_files_named_as_parts_are_profiled_one_by_one_with_a_note(whole: Path, parts: Path) -> None:
    pieces = sorted(parts.glob("*.parquet"))
    done = emmclab("profile", *pieces, "--json")
    assert done.returncode == 0 and len(json.loads(done.stdout)) == len(pieces)
    assert f"emmclab profile {parts}" in done.stderr
    assert "named as parts" not in emmclab("profile", whole, "--json").stderr


FIXTURES = ROOT / "crates/trace/tests/fixtures"
FILES = [FIXTURES / "little.blktrace.0.gz", FIXTURES / "little.blktrace.1.gz"]


def kept(*arguments: object) -> list[Any]:
    return [profile["ledger"]["kept"] for profile in emmclab_json("profile", *arguments)]


def test_the_note_of_a_trace_stands_among_those_of_its_profile() -> None:
    profile = read(FILES[0]).profile()
    told = {**profile.to_dict(), "header": {**profile["header"], "note": "processor 1 is missing"}}
    assert ("Recording", "processor 1 is missing") in notes(Profile(told))
