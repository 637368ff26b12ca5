"""Re-issues, selected requests and several devices, on the command line, in Python, studies and pages."""

import json
from pathlib import Path

import pytest

import emmclab as lab
from conftest import csv_trace, emmclab, emmclab_json, emmclab_ok, profiled
from emmclab.studies.results import Results

HEADING = "arrival_ns,start_ns,issue_ns,complete_ns,op,sector,sectors,pid,process,device"


def written(path: Path, rows: list[tuple[float, str, int, int, str, str]]) -> Path:
    """Write a generic CSV; each row has arrival in ms, operation, sector, process id, process and device."""
    lines = []
    for ms, op, sector, pid, process, device in rows:
        start = round(ms * 1e6)
        times = (start, start + 1_000, start + 2_000, start + 50_000_000)
        lines.append(",".join(map(str, (*times, op, sector, 8, pid, process, device))))
    return csv_trace(path, HEADING, lines)


@pytest.fixture(scope="module")
def reissued(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Requests after gaps of 20 ms or 2 ms; a kernel worker re-issues those after 20 ms 1 ms later."""
    rows = []
    now = 0.0
    for number in range(400):
        now += 20 if number % 2 else 2
        rows.append((now, "write", 8 * number, 7, "app", "sda"))
        if number % 2:
            rows.append((now + 1, "write", 8 * number, 9, "kworker/u17:1", "sda"))
    return written(tmp_path_factory.mktemp("screen") / "reissued.csv", rows)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of ten seconds of two processes on two devices; three quarters of the requests are on sda."""
    rows = [
        (
            25.0 * number,
            "read" if number % 5 else "write",
            8 * number,
            7 if number % 2 else 9,
            "app" if number % 2 else "kworker/0:1",
            "sdb" if number % 4 == 3 else "sda",
        )
        for number in range(400)
    ]
    return written(tmp_path_factory.mktemp("screen") / "two.csv", rows)


def test_reissues_are_counted_with_figures_of_both_and_the_curve_by_idle_time(reissued: Path) -> None:
    profile = profiled(reissued)
    assert (profile["ledger"]["reissued"], profile["ledger"]["dropped_reissues"]) == (200, 0)
    reissues = profile["reissues"]
    assert reissues["reissued_pct"] == pytest.approx(100 * 200 / 600)
    assert reissues["figures"]["requests"] == 600 and reissues["figures_without"]["requests"] == 400
    assert reissues["figures"]["temporal_locality_pct"] == pytest.approx(100 / 3)
    assert reissues["figures_without"]["temporal_locality_pct"] == 0
    assert reissues["median_until_again_ms"] == pytest.approx(1.05)
    rows = {row["bin"]: row for row in profile["figures"]["reissue_by_idle"]}
    assert rows["15 - 30 ms"]["pct"] == 100 and rows["15 - 30 ms"]["requests"] == 200
    assert sum(row["reissued"] for row in rows.values()) == 200
    assert reissues["awake_up_to_ms"] < reissues["asleep_from_ms"] <= 15
    stdout = emmclab("profile", reissued).stdout
    assert "with and without suspected re-issues" in stdout and "200 suspected re-issues" in stdout


def test_dropped_reissues_are_out_of_every_command_that_reads_a_trace(reissued: Path, tmp_path: Path) -> None:
    profile = profiled(reissued, "--drop-reissued")
    assert profile["requests"] == 400 and profile["figures"]["reissue_by_idle"] == []
    assert (profile["ledger"]["dropped_reissues"], profile["reissues"]["figures_without"]) == (200, None)
    simulated = emmclab_json("simulate", reissued, "--drop-reissued", "--device", "small-1gb")
    assert simulated["requests"]["total"] == 400
    stored = tmp_path / "kept.parquet"
    done = emmclab("convert", reissued, stored, "--drop-reissued")
    assert "200 suspected re-issues dropped" in done.stderr
    # The file stores the marks, and nothing is counted twice.
    for options in ([], ["--drop-reissued"]):
        ledger = profiled(stored, *options)["ledger"]
        assert (ledger["kept"], ledger["reissued"], ledger["dropped_reissues"]) == (400, 200, 200)
    explained = emmclab_json("explain", reissued, "--drop-reissued")
    assert explained["ledger"]["kept"] == 400
    trace = lab.read(reissued, drop_reissued=True)
    assert trace.ledger["dropped_reissues"] == 200
    assert lab.combine([trace, lab.read(reissued)]).ledger["kept"] == 1000


def test_a_trace_that_cannot_be_judged_has_no_count_of_reissues(tmp_path: Path) -> None:
    path = tmp_path / "bare.csv"
    path.write_text("arrival_ns,op,sector,sectors\n0,read,0,8\n1000000,read,0,8\n")
    profile = profiled(path)
    assert profile["ledger"]["reissued"] is None and profile["reissues"] is None
    stdout = emmclab("explain", path).stdout
    assert any("–" in line and "suspected re-issues" in line for line in stdout.splitlines())
    assert "are unknown" in emmclab("profile", path, "--drop-reissued").stderr


def test_a_trace_of_several_devices_is_listed_with_shares(two: Path, tmp_path: Path) -> None:
    profile = profiled(two)
    rows = [(row["device"], row["requests_pct"]) for row in profile["figures"]["device_share"]]
    assert rows == [("sda", 75.0), ("sdb", 25.0)]
    stdout = emmclab("profile", two).stdout
    assert "Devices of the trace" in stdout and "sdb" in stdout
    page = tmp_path / "page.html"
    lab.profile(two).write_html(page)
    assert "Devices of the trace" in page.read_text()
    explained = emmclab_json("explain", two)
    assert [(row["device"], row["requests"]) for row in explained["devices"]] == [("sda", 300), ("sdb", 100)]
    assert "sda (300 requests, 75.0 %)" in " ".join(emmclab("explain", two).stdout.split())


@pytest.mark.parametrize("command", ["simulate", "compare", "advise", "calibrate", "validate", "fit"])
def test_a_command_that_needs_one_address_space_refuses_several_devices(command: str, two: Path) -> None:
    done = emmclab(command, two)
    assert done.returncode == 2, done.stderr
    words = " ".join(done.stderr.split())
    assert "sda (75.0 %), sdb (25.0 %)" in words and "--only device=sda" in words


def test_one_device_of_several_is_simulated_alone(two: Path, tmp_path: Path) -> None:
    result = emmclab_json("simulate", two, "--only", "device=sdb", "--device", "small-1gb")
    assert (result["requests"]["total"], result["ledger"]["filtered"]) == (100, 300)
    # The footer of a Parquet file shows its addresses, but not its devices.
    stored = tmp_path / "two.parquet"
    assert emmclab("convert", two, stored).returncode == 0
    done = emmclab("simulate", stored, "--precondition", "steady", "--device", "small-1gb")
    assert done.returncode == 2 and "--only device=sda" in " ".join(done.stderr.split())
    with pytest.raises(lab.ConfigError, match="2 devices"):
        lab.Device.preset("small-1gb").simulate(lab.read(two))


def test_an_input_of_a_study_with_several_devices_is_refused_and_can_choose_one(two: Path, tmp_path: Path) -> None:
    study = tmp_path / "mine.toml"
    grid = '[[grid]]\nname = "g"\ndevices = ["small-1gb"]\n'
    study.write_text(f'name = "mine"\ninputs = ["{two}"]\n{grid}')
    done = emmclab("run", study, "--results", tmp_path / "results", "--jobs", 1)
    assert done.returncode != 0 and "--only device=sda" in " ".join(done.stderr.split())
    chosen = ", ".join(f'"{two} --only device={name}"' for name in ("sda", "sdb"))
    study.write_text(f'name = "mine"\ninputs = [{chosen}]\n{grid}')
    emmclab_ok("run", study, "--results", tmp_path / "results", "--jobs", 1)
    runs = Results.load(tmp_path / "results" / "mine").runs
    assert sorted(run["requests"]["total"] for run in runs) == [100, 300]


@pytest.mark.parametrize(
    ("conditions", "requests"),
    [
        (["device=sdb"], 100),
        (["process=kworker/*"], 200),
        (["process=app|kworker/*"], 400),
        (["pid=9"], 200),
        (["op=write"], 80),
        (["from=5s"], 200),
        (["from=2.5s,to=0m5s"], 100),
        (["device=sda", "process=kworker/*", "op=read"], 160),
    ],
)
def test_only_the_requests_that_are_wanted_are_kept(conditions: list[str], requests: int, two: Path) -> None:
    options = [word for text in conditions for word in ("--only", text)]
    profile = profiled(two, *options)
    count = sum(row["requests"] for row in profile["by_operation"] if row["op"] != "all")
    assert (count, profile["ledger"]["filtered"]) == (requests, 400 - requests)
    assert lab.read(two, only=conditions).ledger["kept"] == requests


def test_what_was_left_out_when_the_file_was_made_is_counted_apart(two: Path, tmp_path: Path) -> None:
    stored = tmp_path / "one.parquet"
    assert emmclab("convert", two, stored, "--only", "device=sda").returncode == 0
    ledger = profiled(stored)["ledger"]
    assert (ledger["filtered"], ledger["filtered_before"]) == (0, 100)
    ledger = profiled(stored, "--only", "op=write")["ledger"]
    assert ledger["filtered"] > 0 and ledger["filtered_before"] == 100
    stdout = emmclab("profile", stored).stdout
    assert "100 left out when the file was made" in " ".join(stdout.split()) and "--only" not in stdout


def test_only_is_taken_in_python_as_text_texts_or_a_mapping(two: Path) -> None:
    for only in (
        "device=sda,process=app|kworker/*,to=5s",
        ["device=sda", "process=app|kworker/*", "to=5s"],
        {"device": "sda", "process": ["app", "kworker/*"], "to": "5s"},
    ):
        assert lab.read(two, only=only).ledger["kept"] == 150


def test_compared_profiles_take_the_options_of_reading(two: Path) -> None:
    output = emmclab_json("profile", two, "--against", "Messaging", "--only", "device=sdb")
    assert next(row["first"] for row in output["fields"] if row["field"] == "requests") == 100


def test_many_wrapped_requests_are_warned_of_before_the_figures(tmp_path: Path) -> None:
    far = [(5.0 * number, "write", number << 22, 7, "app", "sda") for number in range(100)]
    path = written(tmp_path / "far.csv", far)
    options = (path, "--wrap-addresses")
    result = emmclab_json("simulate", *options, "--device", "small-1gb")
    assert result["requests"]["wrapped_pct"] == 99
    page = tmp_path / "page.html"
    for command in (
        ("simulate", *options, "--device", "small-1gb", "--html", page),
        ("compare", *options, "--devices", "small-1gb", "--html", page),
        ("advise", *options, "--device", "small-1gb", "--html", page),
    ):
        run = emmclab(*command)
        assert "99.0 % of the requests lie beyond" in " ".join(run.stdout.split()[:80]), run.stderr
        assert "99.0 % of the requests lie beyond" in page.read_text()
    few = emmclab_json("simulate", path, "--wrap-addresses", "--device", "small-1gb", "--only", "to=4ms")
    assert few["requests"]["wrapped_pct"] == 0
    assert "warning" not in emmclab("simulate", *options, "--device", "small-1gb", "--only", "to=4ms").stdout


def test_the_page_of_a_recording_shows_what_was_recorded_beside_the_requests(tmp_path: Path) -> None:
    profile = lab.profile(lab.bundled()[0]).to_dict()
    command = {"kind": "write", "count": 4, "bytes": 8192, "packed": 1, "reliable": 0, "retries": 2, "errors": 0}
    sync = {"process": "sqlite3", "file_system": "ext4"}
    activity = {
        "hosts": [{"host": "mmc0", "busy_ns": 9e6, "commands": [{**command, "time_ns": 8e6, "longest_ns": 3_250_000}]}],
        "syncs": [{**sync, "calls": 4, "errors": 0, "time_ns": 10e6, "longest_ns": 7_125_000}],
        "journals": [{"device": "vda", "commits": 12, "blocks": 345, "handles": 67}],
    }
    profile["header"] = {**profile["header"], "activity": json.dumps(activity)}
    page = tmp_path / "page.html"
    lab.Profile(profile).write_html(page)
    text = page.read_text()
    assert "Waits for durability (fsync)" in text and "sqlite3" in text and "7.125" in text
    assert "Commands of mmc0" in text and "3.250" in text
    assert "Commits of journals" in text and ">345<" in text


def test_the_longest_waits_for_durability_stand_on_the_time_line_of_the_page(tmp_path: Path) -> None:
    lines = ["# tracer: nop"]
    for number in range(3):
        at = 100 + number
        for seconds, event in (
            (at, "ext4_sync_file_enter: dev 259,3 ino 77 parent 12 datasync 1 "),
            (at + 0.01, f"block_rq_issue: 259,0 WS 4096 () {8 * number} + 8 [app]"),
            (at + 0.02, f"block_rq_complete: 259,0 WS () {8 * number} + 8 [0]"),
            (at + 0.25 * (number + 1), "ext4_sync_file_exit: dev 259,3 ino 77 ret 0"),
        ):
            lines.append(f"   app-1240  [001] ...1   {seconds:.6f}: {event}")
    (tmp_path / "trace.txt").write_text("\n".join(lines) + "\n")
    profile = profiled(tmp_path / "trace.txt", "--html", tmp_path / "page.html")
    rows = profile["figures"]["sync_stalls"]
    # The first wait began 10 ms before the first arrival.
    assert [row["start_s"] for row in rows] == pytest.approx([-0.01, 0.99, 1.99])
    assert [row["wait_ms"] for row in rows] == pytest.approx([250, 500, 750])
    assert {(row["process"], row["file_system"]) for row in rows} == {("app", "ext4")}
    assert 'id="sync_stalls"' in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_recorded_traces_of_papers_are_read_with_the_options_given(reissued: Path, tmp_path: Path) -> None:
    options = ("--trace", reissued, "--drop-reissued", "--jobs", 2, "--results", "results", "--json")
    done = json.loads(emmclab("reproduce", "iiswc15", *options, "--html", "page.html", cwd=tmp_path).stdout)
    assert done["reading"] == {"drop_reissued": True}
    results = Results.load(tmp_path / "results" / "iiswc15")
    ledger = results.profiles["reissued"]["ledger"]
    assert (ledger["dropped_reissues"], ledger["kept"]) == (200, 400)
    assert "drop_reissued = True" in (tmp_path / "page.html").read_text()
    # `emmclab claims` uses the same cells.
    before = {path.name for path in (tmp_path / "results" / "iiswc15" / "cells").glob("*.json")}
    emmclab_ok("claims", "--paper", "iiswc15", *options, cwd=tmp_path)
    assert {path.name for path in (tmp_path / "results" / "iiswc15" / "cells").glob("*.json")} == before
    none = emmclab("claims", "--only", "op=read", "--paper", "iiswc15", "--results", "results", cwd=tmp_path)
    assert "options for reading have no effect" in none.stderr
