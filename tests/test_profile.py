"""Profiles: additional percentiles, figures over time and by process, also for a trace in parts."""

import csv
import json
import math
import signal
from pathlib import Path
from typing import Any

import duckdb
import pytest

import emmclab as package
from conftest import (
    PATIENCE_S,
    ROOT,
    assert_refused,
    begin,
    busy_s,
    csv_trace,
    emmclab,
    emmclab_json,
    emmclab_ok,
    wait_until,
)
from emmclab.errors import ConfigError, FormatError
from emmclab.traces import parallel_profile as parts_module
from emmclab.traces.parallel_profile import profile_parts, slices_of
from emmclab.traces.profile import Profile
from emmclab.traces.profile_notes import notes
from emmclab.traces.reading import read
from emmclab.traces.workload import Workload

#: Figures that do not depend on requests before the start of a part.
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
    """Write a trace in parts of equal length, like other tools; the names of the parts do not show their order."""
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


def same_figures(merged: Any, exact: Any) -> None:
    """Check that two profiles of the same requests have the same figures, except for estimates."""
    for name, value in exact.items():
        if (isinstance(value, int | float) and name != "no_wait_pct") or name in ("by_operation", "working_set"):
            assert merged[name] == value, name
    for name in EXACT:
        assert merged.figure(name) == exact.figure(name), name


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace whose requests often overlap, and access pages again."""
    path = tmp_path_factory.mktemp("whole") / "chat.parquet"
    Workload.preset("Messaging").trace(3, requests=6_000).write(path)
    return path


@pytest.fixture(scope="module")
def parts(recording: Path) -> Path:
    """The same trace in seven parts."""
    folder = recording.parent / "parts"
    cut(recording, folder, 7)
    return folder


def test_what_adds_up_is_exact_for_any_number_of_threads(recording: Path, parts: Path) -> None:
    exact = package.profile(recording)
    results = [profile_parts(parts, jobs) for jobs in (1, 3)]
    assert results[0].to_dict() == results[1].to_dict()
    merged = results[0]
    assert merged["parts"] == 7
    same_figures(merged, exact)
    counted = {"seen", "kept", "skipped", "reordered", "clock_jumps"}
    assert {name: merged["ledger"][name] for name in counted} == {name: exact["ledger"][name] for name in counted}


def test_what_begins_anew_in_each_part_is_named_with_its_error(recording: Path, parts: Path) -> None:
    exact, merged = package.profile(recording), profile_parts(parts, 2)
    named = {item["figure"]: item for item in merged["estimates"]}
    assert named.keys() == {"reuse_distance", "update_interval", "working_set", "queue_depth"}

    def first_touches(profile: Any) -> int:
        return sum(row["accesses"] for row in profile.figure("reuse_distance") if row["high_kb"] is None)

    touches = sum(row["accesses"] for row in exact.figure("reuse_distance"))
    assert touches == sum(row["accesses"] for row in merged.figure("reuse_distance"))
    assert exact["locality"]["reuse_sampling"] == 1
    error_pct = 100 * (first_touches(merged) - first_touches(exact)) / touches
    assert named["reuse_distance"]["error_pct"] == pytest.approx(error_pct)
    assert 0 < error_pct < 25
    for item, other in zip(exact.figure("reuse_distance")[:-1], merged.figure("reuse_distance")[:-1], strict=False):
        assert abs(item["hit_pct"] - other["hit_pct"]) <= error_pct + 1e-9
    # Only a request after a cut that follows an unfinished one can be counted wrongly; there are six cuts.
    assert abs(merged["no_wait_pct"] - exact["no_wait_pct"]) <= 100 * 6 * 20 / exact["requests"]
    assert merged["queue"]["busy_pct"] == pytest.approx(exact["queue"]["busy_pct"], abs=0.5)
    assert merged.figure("working_set")[-1]["unique_kb"] == exact.figure("working_set")[-1]["unique_kb"]


def test_the_command_takes_a_folder_as_one_trace_and_names_the_estimates(parts: Path, tmp_path: Path) -> None:
    (output,) = emmclab_json("profile", parts, "--jobs", 2, "--html", tmp_path / "page.html")
    assert output["name"] == "parts"
    assert output["header"]["source"] == "parts"
    assert output["requests"] == 6_000
    assert "parts were profiled separately" in (tmp_path / "page.html").read_text()
    text = emmclab("profile", parts).stdout
    assert "Estimates: reuse_distance" in " ".join(text.split())


def grouped(trace: Path, copy: Path, rows: int) -> Path:
    """Write a copy of a trace with another tool, in row groups of `rows` requests, and return its path."""
    with duckdb.connect() as database:
        database.execute(f"copy (from '{trace}') to '{copy}' (format parquet, row_group_size {rows})")
    return copy


@pytest.fixture
def file(recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The trace as one file of three row groups, each of which is a slice."""
    monkeypatch.setattr(parts_module, "_SLICE_REQUESTS", 1_000)
    path = grouped(recording, tmp_path / "chat.parquet", 2_048)
    assert slices_of(path) == [(0, 1), (1, 2), (2, 3)]
    return path


def same_but_estimates(merged: Any, exact: Any) -> None:
    """Check that two profiles of one file are equal, except for estimates."""
    same_figures(merged, exact)
    for name, value in exact.items():
        if isinstance(value, str) or name in ("ledger", "header", "clock_jumps"):
            assert merged[name] == value, name


def test_slices_of_a_file_give_what_one_pass_does_for_any_number_of_threads(file: Path) -> None:
    exact = package.profile(file)
    results = [profile_parts(file, jobs) for jobs in (1, 2, 5)]
    assert results[0].to_dict() == results[1].to_dict() == results[2].to_dict()
    same_but_estimates(results[0], exact)
    assert results[0]["parts"] == 3
    named = {row["figure"]: row["error_pct"] for row in results[0]["estimates"]}
    assert named.keys() == {"reuse_distance", "update_interval", "working_set", "queue_depth"}
    assert 0 < named["reuse_distance"] < 25


@pytest.mark.parametrize(
    "reading", [{"only": "op=write"}, {"only": "from=10s,to=60s"}, {"only": "from=1s,op=read"}, {"drop_reissued": True}]
)
def test_conditions_hold_for_the_whole_trace(file: Path, recording: Path, parts: Path, reading: dict[str, Any]) -> None:
    """Times are relative to the first arrival of the whole trace, and a part may contain no selected request."""
    exact = package.read(file, **reading).profile()
    assert 0 < exact["requests"] < 6_000 or "drop_reissued" in reading
    same_but_estimates(profile_parts(file, 2, reading=reading), exact)
    merged = profile_parts(parts, 2, reading=reading)
    assert merged["by_operation"] == package.read(recording, **reading).profile()["by_operation"]


def test_conditions_that_nothing_meets_and_mending_in_parts_are_refused(file: Path, parts: Path) -> None:
    for place in (file, parts):
        with pytest.raises(ConfigError, match="no request satisfies all conditions") as refused:
            profile_parts(place, 2, reading={"only": "from=1000h"})
        assert refused.value.field == "--only"
        with pytest.raises(ConfigError, match="mended only in one pass") as refused:
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
    recording: Path, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = grouped(recording, tmp_path / "small.parquet", 2_048)
    assert slices_of(small) == [(0, 3)], "a small file is one slice"
    assert slices_of(trace) == []
    monkeypatch.setattr(parts_module, "_SLICE_REQUESTS", 1)
    monkeypatch.setattr(parts_module, "_MOST_SLICES", 2)
    assert slices_of(small) == [(0, 2), (2, 3)]
    done = emmclab("profile", trace, "--jobs", 2, "--json")
    assert (done.returncode, "read in one pass; --jobs is for Parquet" in done.stderr) == (0, True)


def test_a_single_part_has_no_estimates(recording: Path, tmp_path: Path) -> None:
    cut(recording, tmp_path / "one", 1)
    result = profile_parts(tmp_path / "one", 2)
    assert result["estimates"] == []
    assert result["no_wait_pct"] == package.profile(recording)["no_wait_pct"]


def test_recordings_that_overlap_are_no_parts_of_a_trace(recording: Path, tmp_path: Path) -> None:
    folder = tmp_path / "overlapping"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.parquet").write_bytes(recording.read_bytes())
    with pytest.raises(FormatError, match=r"b\.parquet: .*begins .* before this one ends"):
        profile_parts(folder, 2)
    assert_refused(emmclab("profile", folder), "recordings that are not parts of one trace: `emmclab fleet")


def test_a_folder_without_requests_and_a_part_that_is_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert_refused(emmclab("profile", tmp_path / "empty"), "there is no part of a trace")
    (tmp_path / "empty/part.parquet").write_bytes(b"PAR1 but no more")
    assert_refused(emmclab("profile", tmp_path / "empty"), "part.parquet")


def test_ctrl_c_ends_the_parts_that_are_under_way(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "first.csv").write_bytes(b"arrival_us,op,sector,sectors\n" + b"0,write,0,8\n" * 12_000_000)
    process = begin("profile", folder, "--jobs", "2")
    # The start needs less processor time.
    wait_until(lambda: busy_s(process) >= 3, process)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, stderr
    assert "interrupted; no file was written" in stderr


def test_files_named_as_parts_are_profiled_one_by_one_with_a_note(recording: Path, parts: Path) -> None:
    pieces = sorted(parts.glob("*.parquet"))
    done = emmclab("profile", *pieces, "--json")
    assert done.returncode == 0 and len(json.loads(done.stdout)) == len(pieces)
    assert f"emmclab profile {parts}" in done.stderr
    assert "have names of parts" not in emmclab("profile", recording, "--json").stderr


def test_the_note_of_a_trace_stands_among_those_of_its_profile() -> None:
    profile = read(ROOT / "crates/trace/tests/fixtures/little.blktrace.0.gz").profile()
    fields = {**profile.to_dict(), "header": {**profile["header"], "note": "processor 1 is missing"}}
    assert ("Recording", "processor 1 is missing") in notes(Profile(fields))


DEVICE = ("--device", "iiswc15-hps")


def _responses_ms(path: Path) -> list[float]:
    """Return the recorded response times in ascending order."""
    rows = package.read(path).rows(10**6)
    return sorted((row["complete_ns"] - row["arrival_ns"]) / 1e6 for row in rows)


def _nearest_rank(times: list[float], percent: float) -> float:
    return times[max(math.ceil(percent / 100 * len(times)), 1) - 1]


def test_chosen_percentiles_of_a_trace_are_its_nearest_ranks_within_a_thousandth(trace: Path) -> None:
    expected = [0.5, 25, 50, 99.5, 99.99, 100]
    (profile,) = emmclab_json("profile", trace, "--percentiles", ",".join(map(str, expected)))
    rows = profile["by_operation"][-1]["percentiles"]
    assert [row["percentile"] for row in rows] == expected
    times = _responses_ms(trace)
    for row in rows:
        exact = _nearest_rank(times, row["percentile"])
        assert row["response_ms"] == pytest.approx(exact, rel=1e-3)
        assert 0 < row["service_ms"] <= row["response_ms"] * 1.001


def test_chosen_percentiles_of_a_run_are_those_of_its_requests(trace: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.parquet"
    expected = "10,95,99.9"
    result = emmclab_json("simulate", trace, *DEVICE, "--percentiles", expected, "--events", rows)
    query = f"select (complete_ns - arrival_ns) / 1e6 from '{rows}' where op in ('read', 'write')"
    times = sorted(float(row[0]) for row in duckdb.sql(query).fetchall())
    percentiles = {row["percentile"]: row["response_ms"] for row in result["percentiles"] if row["op"] == "all"}
    assert list(percentiles) == [10, 95, 99.9]
    for percent, time in percentiles.items():
        assert time == pytest.approx(_nearest_rank(times, percent), rel=1e-3)
    assert {row["op"] for row in result["percentiles"]} == {"all", "read", "write"}


@pytest.mark.parametrize("command", [("profile",), ("simulate", *DEVICE), ("compare", "--devices", "iiswc15-4ps")])
def test_chosen_percentiles_stand_in_the_tables(trace: Path, command: tuple[str, ...]) -> None:
    words = emmclab_ok(command[0], trace, *command[1:], "--percentiles", "99.5,42", env={"COLUMNS": "200"})
    assert "p42" in words.stdout and "p99.5" in words.stdout and "p90" not in words.stdout


@pytest.mark.parametrize("value", ["0", "101", "-1", "p99", "", "nan", "50 90"])
def test_what_is_no_percentile_is_refused_with_the_value_and_a_hint(trace: Path, value: str) -> None:
    for command in (("profile",), ("simulate", *DEVICE)):
        assert_refused(
            emmclab(command[0], trace, *command[1:], f"--percentiles={value}"),
            "is not a percentile",
            "hint: give percentiles above 0",
        )


def test_without_a_choice_a_result_has_no_percentiles_of_its_own(trace: Path) -> None:
    assert "percentiles" not in emmclab_json("simulate", trace, *DEVICE)
    (profile,) = emmclab_json("profile", trace)
    assert all("percentiles" not in row for row in profile["by_operation"])


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_bins_of_a_trace_add_up_to_it(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "load.csv"
    (profile,) = emmclab_json("profile", trace, "--over-time", path, "--bin", "250ms")
    rows = _rows(path)
    assert sum(int(row["reads"]) + int(row["writes"]) for row in rows) == profile["requests"] == 400
    assert sum(float(row["read_kb"]) + float(row["write_kb"]) for row in rows) == profile["data_size_kb"]
    assert {row["width_s"] for row in rows[1:]} == {"0.25"}
    for row in rows:
        requests = int(row["reads"]) + int(row["writes"])
        assert float(row["iops"]) == pytest.approx(requests / float(row["width_s"]))
        assert float(row["response_mean_ms"]) <= float(row["response_max_ms"])
        assert float(row["response_p99_ms"]) <= float(row["response_max_ms"])
    mean = sum(float(row["response_mean_ms"]) * (int(row["reads"]) + int(row["writes"])) for row in rows) / len(
        _responses_ms(trace)
    )
    assert mean == pytest.approx(profile["mean_response_ms"])


def test_bins_of_a_run_add_up_to_it_with_collections_and_wake_ups(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    settings = ("--set", "power.sleep_after_us=1000", "--set", "power.wake_us=5000", "--precondition", "steady:1")
    small = ("--device", "small-1gb", "--wrap-addresses", "--set", "geometry.block_groups.0.blocks=32")
    result = emmclab_json("simulate", trace, *small, *settings, "--over-time", path)
    rows = duckdb.sql(f"select * from '{path}'")
    names = rows.columns
    bins = [dict(zip(names, row, strict=True)) for row in rows.fetchall()]
    assert bins[0]["trace"] == "chat" and bins[0]["device"] == "small-1gb"
    total = sum(row["reads"] + row["writes"] for row in bins)
    assert total == result["requests"]["read"] + result["requests"]["write"]
    mean = sum((row["response_mean_ms"] or 0) * (row["reads"] + row["writes"]) for row in bins) / total
    assert mean == pytest.approx(result["response"]["mean_response_ms"])
    gc = sum((row["gc_ms"] or 0) * (row["reads"] + row["writes"]) for row in bins) / total
    assert gc == pytest.approx(result["waits"]["gc_ms"])
    assert sum(row["wake_ups"] for row in bins) > 0
    assert sum(row["collections"] for row in bins) >= result["gc"]["blocks"] > 0


def test_asking_for_a_run_over_time_does_not_change_the_run(trace: Path) -> None:
    device, source = package.Device.preset("iiswc15-hps"), package.read(trace)
    plain = device.simulate(source).deterministic()
    over_time = device.simulate(source, over_time="1s", distribution=True, percentiles=[99.9]).deterministic()
    extra = {"over_time", "response_distribution", "percentiles"}
    assert set(over_time) - set(plain) == extra
    assert {name: over_time[name] for name in plain} == plain


def test_a_comparison_over_time_names_trace_and_device(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "compared.csv"
    emmclab_ok("compare", trace, "--devices", "iiswc15-4ps,iiswc15-hps", "--over-time", path)
    assert {(row["trace"], row["device"]) for row in _rows(path)} == {("chat", "iiswc15-4ps"), ("chat", "iiswc15-hps")}


def test_bins_become_wider_where_there_would_be_too_many_and_a_note_says_so(tmp_path: Path) -> None:
    path, out = tmp_path / "far.csv", tmp_path / "load.csv"
    path.write_text("arrival_ns,op,sector,sectors\n0,read,0,8\n40000000000,read,8,8\n")
    done = emmclab_ok("profile", path, "--over-time", out, "--bin", "1ms")
    assert "note: bins of 0.004 s, because those of 1ms would be more than 16,384" in done.stderr
    assert [row["response_mean_ms"] for row in _rows(out)] == ["", ""]


@pytest.mark.parametrize("width", ["0", "0s", "1", "-1s", "1 week", "1.2.3s", "2000h"])
def test_what_is_no_width_of_a_bin_is_refused(trace: Path, tmp_path: Path, width: str) -> None:
    path = tmp_path / "load.csv"
    done = emmclab("profile", trace, "--over-time", path, f"--bin={width}")
    assert done.returncode == 2 and "is not the width of a bin" in done.stderr and not path.exists()


def test_the_finding_on_a_large_buffer_says_what_it_would_hit(trace: Path) -> None:
    (profile,) = emmclab_json("profile", trace)
    finding = next(item for item in profile["findings"] if item["id"] == "implication-3")
    hits = [row["hit_pct"] for row in profile["figures"]["reuse_distance"] if (row["high_kb"] or 1 << 60) <= 16_384]
    assert finding["meaning"].startswith(f"a 16 MB buffer would hit {hits[-1]:.0f} % of page touches (LRU)")


def _of_processes(path: Path, names: int, each: int) -> Path:
    """Write a trace of this many processes; process N waits N + 1 ms."""
    lines = []
    for number in range(names * each):
        process = number % names
        arrival = 10_000 * number
        op = "read" if number % 3 == 0 else "write"
        lines.append(f"{arrival},{arrival + 1000 * (process + 1)},{op},{8 * number},8,{process + 100},app-{process}")
    return csv_trace(path, "arrival_us,complete_us,op,sector,sectors,pid,process", lines)


def test_each_process_has_its_requests_data_and_response_times(tmp_path: Path) -> None:
    path = _of_processes(tmp_path / "apps.csv", names=3, each=10)
    (profile,) = emmclab_json("profile", path)
    rows = {row["process"]: row for row in profile["figures"]["process_share"]}
    for process in range(3):
        row = rows[f"app-{process}"]
        assert row["reads"] + row["writes"] == 10 and row["read_kb"] + row["write_kb"] == 40
        assert row["pid"] == 100 + process
        assert row["response_mean_ms"] == row["response_max_ms"] == process + 1
        assert row["response_p99_ms"] == pytest.approx(process + 1, rel=1 / 32)
    words = emmclab("profile", path)
    assert "By process" in words.stdout and "app-2" in words.stdout


def test_processes_beyond_64_are_one_row_and_none_is_lost(tmp_path: Path) -> None:
    path = _of_processes(tmp_path / "many.csv", names=1500, each=2)
    (profile,) = emmclab_json("profile", path)
    rows = profile["figures"]["process_share"]
    assert len(rows) == 64 and rows[-1]["process"] == "(others)"
    assert sum(row["reads"] + row["writes"] for row in rows) == 3000
    assert rows[-1]["response_max_ms"] == 1500


def test_python_takes_numbers_where_the_command_line_takes_text(trace: Path) -> None:
    source = package.read(trace)
    profile = source.profile(percentiles=(99, 50), bin=0.5)
    assert [row["percentile"] for row in profile["by_operation"][-1]["percentiles"]] == [50, 99]
    assert profile.figure("io_over_time")[1]["width_s"] == 0.5
    with pytest.raises(ConfigError, match="`0` is not a percentile"):
        source.profile(percentiles=[0])
    with pytest.raises(ConfigError, match="is not the width"):
        package.Device.preset("iiswc15-hps").simulate(source, over_time="soon")


def test_a_trace_without_requests_gives_nothing_over_time(tmp_path: Path) -> None:
    path, out = csv_trace(tmp_path / "empty.csv", "arrival_us,op,sector,sectors", []), tmp_path / "load.csv"
    assert_refused(emmclab("profile", path, "--over-time", out, "--json"), "the trace contains no request")
    assert not out.exists()
