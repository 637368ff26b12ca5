"""`emmclab validate`: compares simulated with recorded times of the second half of a recording."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

import emmclab as lab
from conftest import assert_fails, assert_refused, biotracer, csv_trace, emmclab, emmclab_json, emmclab_ok
from emmclab.calibration.validation import LEAST_REQUESTS
from emmclab.calibration.validation_groups import Recording
from emmclab.runtime.parquet import memory_database

#: A device without randomness, whose replay can match exactly, and a very different device.
KNOWN, OTHER = "iiswc15-hps", "ufs31"


def recorded_on(device: str, folder: Path, requests: int = 600) -> Path:
    """Write a trace with the times of a simulated device, as if recorded on it."""
    source, rows, target = folder / "source.txt", folder / "rows.parquet", folder / f"on-{device}.csv"
    source.write_text(biotracer(requests))
    lab.Device.preset(device).simulate(lab.read(source), events=rows, mode="open")
    duckdb.sql(
        "copy (select arrival_ns, start_ns, start_ns as issue_ns, complete_ns, sector, sectors, op "
        f"from read_parquet('{rows}', file_row_number = true) order by file_row_number) to '{target}' (header)"
    )
    return target


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded_on(KNOWN, tmp_path_factory.mktemp("known"))


@pytest.fixture(scope="module")
def models(recording: Path) -> dict[str, Any]:
    """The result of `emmclab validate` for the recording, with both devices."""
    output = emmclab_json("validate", recording, "--devices", f"{KNOWN},{OTHER}")
    return {"all": output, **{model["name"]: model for model in output["recordings"][0]["models"]}}


def test_a_recording_made_on_a_device_validates_with_small_errors_on_that_very_device(models: dict[str, Any]) -> None:
    response = models[KNOWN]["response"]
    assert response["requests"] == 300
    assert response["within_10_pct"] > 95
    assert all(abs(error) < 2 for error in response["error"].values()), response["error"]


def test_it_validates_with_large_errors_on_a_quite_different_device(models: dict[str, Any]) -> None:
    response = models[OTHER]["response"]
    assert response["within_50_pct"] < 5
    assert all(error < -80 for error in response["error"].values()), response["error"]


def test_the_calibrated_device_lies_between_them(models: dict[str, Any]) -> None:
    shares = [models[name]["response"]["within_25_pct"] for name in (OTHER, "calibrated", KNOWN)]
    assert shares == sorted(shares) and shares[1] > 50


def test_the_groups_of_each_kind_hold_every_request_and_all_of_the_error(models: dict[str, Any]) -> None:
    for name in ("calibrated", KNOWN, OTHER, "table of medians"):
        model = models[name]
        for groups in (*model["by"].values(), model["together"]):
            assert sum(row["requests"] for row in groups) == 300
            assert sum(row["share_of_error_pct"] for row in groups) == pytest.approx(100)
            assert all(row["few"] == (row["requests"] < 20) for row in groups)
        assert [row["group"] for row in model["by"]["operation"]] == ["read", "write"]
        assert not model["worst"]["few"]


def test_the_calibration_knows_nothing_of_the_second_half(recording: Path, tmp_path: Path) -> None:
    (output,) = emmclab_json("validate", recording)["recordings"]
    heading, *rows = recording.read_text().splitlines()
    first, second = rows[: output["cut"]["first"]], rows[output["cut"]["first"] :]
    slower = []
    for row in second:
        arrival, start, issue, complete, *rest = row.split(",")
        slower.append(",".join([arrival, start, issue, str(int(complete) + 100_000), *rest]))
    path = csv_trace(tmp_path / recording.name, heading, [*first, *slower])
    (other,) = emmclab_json("validate", path)["recordings"]
    assert other["calibration"] == output["calibration"]
    assert other["recorded"]["second_half"] != output["recorded"]["second_half"]
    half = csv_trace(tmp_path / "first.csv", heading, first)
    assert output["calibration"]["figures"] == lab.calibrate(half, name="calibrated")["figures"]


def test_the_same_recording_gives_the_same_bytes(recording: Path, tmp_path: Path) -> None:
    outputs = []
    for number in range(2):
        page = tmp_path / f"{number}" / "page.html"
        page.parent.mkdir()
        done = emmclab_ok("validate", recording, "--device", KNOWN, "--json", "--html", "page.html", cwd=page.parent)
        outputs.append((done.stdout, page.read_bytes()))
        assert [path.name for path in page.parent.iterdir()] == ["page.html"]
    assert outputs[0] == outputs[1]


def test_the_first_screen_answers_in_one_sentence_and_names_the_worst_group(recording: Path) -> None:
    done = emmclab("validate", recording, "--device", OTHER)
    first = done.stdout.splitlines()[0]
    assert "the calibrated model is within 25 % of the recorded response time for 79 % of 300" in first
    assert "worst: writes of <= 4 KB that find the device busy" in first
    assert f"{recording.stem}: {OTHER}" in done.stdout and "By requests that are unfinished" in done.stdout


def test_the_page_has_a_section_for_each_recording_and_names_those_not_judged(recording: Path, tmp_path: Path) -> None:
    copy, page = tmp_path / "again.csv", tmp_path / "page.html"
    copy.write_text(recording.read_text())
    emmclab_ok("validate", recording, copy, tmp_path / "gone.csv", "--html", page)
    text = page.read_text()
    for word in ('id="recording-1"', 'id="recording-2"', 'id="curves-0"', 'id="curves-1"', 'id="size-1"'):
        assert word in text, word
    assert "1 of 3 recordings cannot be validated" in text and "gone.csv: file not found" in text


def test_a_recording_that_cannot_be_judged_is_named_and_the_others_are_judged(recording: Path, tmp_path: Path) -> None:
    short, bad = tmp_path / "short.csv", tmp_path / "bad.csv"
    lines = recording.read_text().splitlines(keepends=True)
    short.write_text("".join(lines[:LEAST_REQUESTS]))
    bad.write_text("".join(lines[:30]) + "8000000,83\n")
    done = emmclab("validate", short, recording, bad, "--json")
    output = json.loads(done.stdout)
    assert done.returncode == 0 and [row["trace"] for row in output["recordings"]] == [recording.stem]
    assert [Path(row["file"]).name for row in output["refused"]] == ["short.csv", "bad.csv"]
    assert "99, and at least 100" in output["refused"][0]["reason"]
    assert output["refused"][1]["reason"].startswith(f"{bad}:31: column 2")
    assert done.stderr.count("not validated: ") == 2
    assert_fails(emmclab("validate", short), str(short), "99, and at least 100")
    assert_fails(emmclab("validate", short, bad), "none of 2 recordings can be validated")


def test_the_least_number_of_requests_is_judged(recording: Path, tmp_path: Path) -> None:
    path = tmp_path / "least.csv"
    path.write_text("".join(recording.read_text().splitlines(keepends=True)[: LEAST_REQUESTS + 1]))
    (output,) = emmclab_json("validate", path, "--device", KNOWN)["recordings"]
    assert output["cut"]["first"] + output["cut"]["second"] == LEAST_REQUESTS


HEADING = "arrival_ns,start_ns,complete_ns,sector,sectors,op"


def rows_of(requests: int, op: str = "write", took_ns: int = 500_000) -> list[str]:
    """Return requests of one operation, each after the end of the previous one."""
    rows = []
    for number in range(requests):
        at, sectors = number * 5_000_000, (8, 16, 64, 128)[number % 4]
        rows.append(f"{at},{at},{at + took_ns + 1_000 * sectors},{number * 128},{sectors},{op}")
    return rows


def test_a_first_half_that_determines_no_device_is_judged_on_a_given_one_only(tmp_path: Path) -> None:
    path = csv_trace(tmp_path / "reads.csv", HEADING, rows_of(200, "read"))
    assert_refused(emmclab("validate", path), str(path), "calibrated: too few request sizes: 4 in all", "--device")
    (output,) = emmclab_json("validate", path, "--device", OTHER)["recordings"]
    assert [model["name"] for model in output["models"]] == [OTHER, "table of medians"]
    assert "calibrated" in output["refused"] and output["calibration"] is None


def test_a_device_that_the_recording_does_not_fit_is_named_beside_the_others(tmp_path: Path) -> None:
    rows = [*rows_of(200), "1000000000,1000000000,1000500000,99999999,8,write"]
    path = csv_trace(tmp_path / "far.csv", HEADING, rows)
    (output,) = emmclab_json("validate", path, "--device", "small-1gb")["recordings"]
    assert [model["kind"] for model in output["models"]] == ["calibrated", "table"]
    assert output["refused"]["small-1gb"].startswith(f"{path}: 1 of 101 requests end after the last sector")
    (wrapped,) = emmclab_json("validate", path, "--device", "small-1gb", "--wrap-addresses")["recordings"]
    assert "wrapped" in wrapped["models"][1]["note"]


def test_a_device_with_zones_is_refused(tmp_path: Path) -> None:
    rows = [f"{row},{1 << 11}" if number == 7 else f"{row},0" for number, row in enumerate(rows_of(200))]
    path = csv_trace(tmp_path / "zoned.csv", f"{HEADING},flags", rows)
    assert_refused(emmclab("validate", path), f"{path}: the recorded device has zones")


@pytest.mark.parametrize("command", ["validate", "calibrate"])
def test_a_synthesised_trace_has_no_measured_times_in_a_file_either(command: str, tmp_path: Path) -> None:
    path = tmp_path / "made.parquet"
    assert emmclab("synth", "Messaging", path, "--requests", 300).returncode == 0
    assert_refused(emmclab(command, path), "a synthesised trace has no measured")


def test_groups_are_by_what_a_request_found_on_the_device(tmp_path: Path) -> None:
    """The trace has four overlapping requests, of which the last arrives when the first is complete, then pauses."""
    ms = 1_000_000
    times = [(0, 2), (1, 3), (1, 4), (2, 5), (5, 6), (10, 11), (2_000, 2_001)]
    rows = [f"{a * ms},{a * ms},{c * ms},{8 * n},8,write" for n, (a, c) in enumerate(times)]
    lab.read(csv_trace(tmp_path / "few.csv", HEADING, rows)).write(tmp_path / "few.parquet")
    with memory_database() as database:
        Recording(database, tmp_path / "few.parquet")
        result = database.execute("select depth, idle_ns from recorded order by row").fetchall()
    assert [depth for depth, _ in result] == [0, 1, 2, 2, 0, 0, 0]
    assert [idle for _, idle in result] == [None, -ms, -2 * ms, -2 * ms, 0, 4 * ms, 1_989 * ms]


def test_requests_that_ended_with_an_error_are_not_judged(tmp_path: Path) -> None:
    rows = [f"{row},{number % 2 << 10}" for number, row in enumerate(rows_of(400))]
    path = csv_trace(tmp_path / "failed.csv", f"{HEADING},flags", rows)
    (output,) = emmclab_json("validate", path, "--device", OTHER)["recordings"]
    assert output["models"][0]["response"]["requests"] == output["cut"]["second"] // 2


def test_recordings_and_devices_of_one_name_are_numbered(recording: Path, tmp_path: Path) -> None:
    copy, preset = tmp_path / "again" / recording.name, tmp_path / "calibrated.toml"
    copy.parent.mkdir()
    copy.write_text(recording.read_text())
    assert emmclab("calibrate", recording, "-o", preset).returncode == 0
    output = emmclab_json("validate", recording, copy, recording, "--device", f"{preset},{KNOWN},{KNOWN}")
    assert [row["trace"] for row in output["recordings"]] == [recording.stem, f"{recording.stem} (2)"]
    names = [model["name"] for model in output["recordings"][0]["models"]]
    assert names == ["calibrated", "calibrated (2)", KNOWN, "table of medians"]


def test_a_second_half_without_completions_is_refused(tmp_path: Path) -> None:
    rows = rows_of(400)
    open_ended = [",".join([*row.split(",")[:2], "", *row.split(",")[3:]]) for row in rows[200:]]
    path = csv_trace(tmp_path / "half.csv", HEADING, [*rows[:200], *open_ended])
    assert_refused(emmclab("validate", path), f"{path}: too few requests of the second half", "0, and at")
    assert emmclab("validate", path, "--only", "to=1s").returncode == 0


def test_a_recording_of_several_devices_is_refused_under_its_own_name(tmp_path: Path) -> None:
    rows = [f"{row},sd{'ab'[number % 2]}" for number, row in enumerate(rows_of(400))]
    path = csv_trace(tmp_path / "two.csv", f"{HEADING},device", rows)
    assert_refused(emmclab("validate", path), f"{path}: the trace contains requests to 2 devices", "--only device=")
    assert emmclab("validate", path, "--only", "device=sda", "--device", OTHER).returncode == 0
