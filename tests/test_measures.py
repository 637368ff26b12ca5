"""Chosen percentiles, figures over time, and processes, on the command line and in Python."""

import csv
import math
from pathlib import Path

import duckdb
import pytest

import emmclab as api
from conftest import assert_refused, emmclab, emmclab_json, emmclab_ok
from emmclab.errors import ConfigError

DEVICE = ("--device", "iiswc15-hps")


def _responses_ms(path: Path) -> list[float]:
    """Return the recorded response times in ascending order."""
    rows = api.read(path).rows(10**6)
    return sorted((row["complete_ns"] - row["arrival_ns"]) / 1e6 for row in rows)


def _nearest_rank(times: list[float], percent: float) -> float:
    return times[max(math.ceil(percent / 100 * len(times)), 1) - 1]


def test_chosen_percentiles_of_a_trace_are_its_nearest_ranks_within_a_thousandth(trace: Path) -> None:
    wanted = [0.5, 25, 50, 99.5, 99.99, 100]
    (profile,) = emmclab_json("profile", trace, "--percentiles", ",".join(map(str, wanted)))
    rows = profile["by_operation"][-1]["percentiles"]
    assert [row["percentile"] for row in rows] == wanted
    times = _responses_ms(trace)
    for row in rows:
        exact = _nearest_rank(times, row["percentile"])
        assert row["response_ms"] == pytest.approx(exact, rel=1e-3)
        assert 0 < row["service_ms"] <= row["response_ms"] * 1.001


def test_chosen_percentiles_of_a_run_are_those_of_its_requests(trace: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.parquet"
    wanted = "10,95,99.9"
    result = emmclab_json("simulate", trace, *DEVICE, "--percentiles", wanted, "--events", rows)
    query = f"select (complete_ns - arrival_ns) / 1e6 from '{rows}' where op in ('read', 'write')"
    times = sorted(float(row[0]) for row in duckdb.sql(query).fetchall())
    found = {row["percentile"]: row["response_ms"] for row in result["percentiles"] if row["op"] == "all"}
    assert list(found) == [10, 95, 99.9]
    for percent, time in found.items():
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
            "hint: give numbers above 0",
        )


def test_an_empty_member_of_the_percentiles_is_refused(trace: Path) -> None:
    assert_refused(emmclab("profile", trace, "--percentiles=50,,99"), "member 2 of 3 of the list `50,,99` is empty")


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
    found = [dict(zip(names, row, strict=True)) for row in rows.fetchall()]
    assert found[0]["trace"] == "chat" and found[0]["device"] == "small-1gb"
    total = sum(row["reads"] + row["writes"] for row in found)
    assert total == result["requests"]["read"] + result["requests"]["write"]
    mean = sum((row["response_mean_ms"] or 0) * (row["reads"] + row["writes"]) for row in found) / total
    assert mean == pytest.approx(result["response"]["mean_response_ms"])
    gc = sum((row["gc_ms"] or 0) * (row["reads"] + row["writes"]) for row in found) / total
    assert gc == pytest.approx(result["waits"]["gc_ms"])
    assert sum(row["wake_ups"] for row in found) > 0
    assert sum(row["collections"] for row in found) >= result["gc"]["blocks"] > 0


def test_asking_for_a_run_over_time_does_not_change_the_run(trace: Path) -> None:
    device, source = api.Device.preset("iiswc15-hps"), api.read(trace)
    plain = device.simulate(source).deterministic()
    asked = device.simulate(source, over_time="1s", distribution=True, percentiles=[99.9]).deterministic()
    extra = {"over_time", "response_distribution", "percentiles"}
    assert set(asked) - set(plain) == extra
    assert {name: asked[name] for name in plain} == plain


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
    finding = next(one for one in profile["findings"] if one["id"] == "implication-3")
    hits = [row["hit_pct"] for row in profile["figures"]["reuse_distance"] if (row["high_kb"] or 1 << 60) <= 16_384]
    assert finding["meaning"].startswith(f"a 16 MB buffer would hit {hits[-1]:.0f} % of page touches (LRU)")


def _of_processes(path: Path, names: int, each: int) -> Path:
    """Write a trace of this many processes; process N waits N + 1 ms."""
    lines = ["arrival_us,complete_us,op,sector,sectors,pid,process"]
    for number in range(names * each):
        process = number % names
        arrival = 10_000 * number
        op = "read" if number % 3 == 0 else "write"
        lines.append(f"{arrival},{arrival + 1000 * (process + 1)},{op},{8 * number},8,{process + 100},app-{process}")
    path.write_text("\n".join(lines) + "\n")
    return path


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
    source = api.read(trace)
    profile = source.profile(percentiles=(99, 50), bin=0.5)
    assert [row["percentile"] for row in profile["by_operation"][-1]["percentiles"]] == [50, 99]
    assert profile.figure("io_over_time")[1]["width_s"] == 0.5
    with pytest.raises(ConfigError, match="`0` is not a percentile"):
        source.profile(percentiles=[0])
    with pytest.raises(ConfigError, match="is not the width"):
        api.Device.preset("iiswc15-hps").simulate(source, over_time="soon")


def test_a_trace_without_requests_gives_nothing_over_time(tmp_path: Path) -> None:
    path, out = tmp_path / "empty.csv", tmp_path / "load.csv"
    path.write_text("arrival_us,op,sector,sectors\n")
    done = emmclab("profile", path, "--over-time", out, "--json")
    if done.returncode == 0:
        assert not out.exists()
        assert "nothing was written" in done.stderr
    else:
        assert done.returncode == 2 and "hint: " in done.stderr
