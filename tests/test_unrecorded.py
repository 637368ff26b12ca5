"""Unrecorded figures are a dash with the reason; clock jumps are detected, and removed on request."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser

import emmclab as lab
from conftest import csv_trace, emmclab, emmclab_json, emmclab_ok, profiled
from emmclab.apps.closed_loop import run_application

CACHED = "emmc51-cache,ufs31"


@pytest.fixture
def writes(tmp_path: Path) -> Path:
    """Writes in the format of SSDsim, which has no flushes."""
    path = tmp_path / "writes.ssdsim"
    path.write_text("".join(f"{at * 10_000_000} 0 {at * 8} 8 0\n" for at in range(60)))
    return path


@pytest.fixture
def coarse(tmp_path: Path) -> Path:
    """Requests of 0.3 ms that end at whole milliseconds."""
    rows = [f"{at // 4},300000,write,{at * 4096},4096" for at in range(60)]
    return csv_trace(tmp_path / "lat.csv", "complete_ms,response_ns,op,offset_bytes,size_bytes", rows)


def test_a_comparison_warns_once_that_durability_is_free_and_counts_no_flushes(writes: Path) -> None:
    done = emmclab_ok("compare", writes, "--devices", f"emmc51-tlc,{CACHED}")
    (warning,) = [line for line in done.stdout.splitlines() if line.startswith("warning: ")]
    assert "emmc51-cache, ufs31" in warning and "emmc51-tlc" not in warning
    assert "flushes, preflushes and FUA" in warning and "--flush-every" in warning
    done = emmclab("compare", writes, "--devices", CACHED, "--flush-every", 8)
    assert "warning" not in done.stdout


def test_a_profile_keeps_through_conversions_what_the_format_records(writes: Path, tmp_path: Path) -> None:
    stored = tmp_path / "stored.parquet"
    assert emmclab("convert", writes, stored).returncode == 0
    for trace in (writes, stored):
        profile = lab.read(trace).profile()
        assert [row["requests"] for row in profile.figure("flags")] == [None] * len(profile.figure("flags"))
    assert "Not recorded: " in " ".join(emmclab("profile", writes).stdout.split())
    flushed = lab.read(lab.bundled()[0]).profile()
    counts = {row["flag"]: row["requests"] for row in flushed.figure("flags")}
    assert counts["flush"] is not None and counts["packed"] is None


def test_a_study_adds_flushes_as_an_axis(writes: Path, tmp_path: Path) -> None:
    study = tmp_path / "s.toml"
    study.write_text(
        f'name = "s"\ninputs = ["{writes}"]\n[[grid]]\nname = "g"\ndevices = ["ufs31"]\nmodes = ["open"]\n'
        "[grid.axes]\nflush_every = [0, 6]\n"
    )
    emmclab_ok("run", study, "--results", tmp_path / "results", "--jobs", 1)
    query = ("query", "select requests_other from runs order by 1", "--csv", "--results", tmp_path / "results")
    assert emmclab(*query).stdout.split() == ["requests_other", "10", '""']


def test_advice_says_that_a_write_buffer_gains_what_durability_costs(writes: Path) -> None:
    command = ("advise", writes, "--device", "emmc51-tlc", "--new")
    assert "durability is free" in emmclab(*command).stdout
    assert "durability is free" not in emmclab(*command, "--flush-every", 8).stdout


def test_with_a_coarse_clock_waits_are_dashes_and_a_replay_says_so(coarse: Path) -> None:
    profile = lab.read(coarse).profile()
    assert profile["header"]["coarse_clock"] == "1ms"
    assert (profile["no_wait_pct"], profile["queue"], profile["idle_gc"]) == (None, None, None)
    assert "Clock: steps of 1ms" in " ".join(emmclab("profile", coarse).stdout.split())
    done = emmclab("simulate", coarse, "--device", "nexus5")
    assert "warning: the arrivals are coarse" in done.stdout
    closed = emmclab("simulate", coarse, "--device", "nexus5", "--mode", "closed")
    assert "warning: the think times are coarse" in closed.stdout
    result = emmclab_json("simulate", coarse, "--device", "nexus5")
    assert result["recorded"]["no_wait"]["all"]["recorded_pct"] is None
    assert result["recorded"]["response"]["all"]["recorded_ms"] == pytest.approx(0.3)


def test_reads_of_data_that_nobody_wrote_are_named_with_the_remedy(tmp_path: Path) -> None:
    reads = tmp_path / "reads.ssdsim"
    reads.write_text("0 0 0 8 0\n10000000 0 0 8 1\n20000000 0 8 24 1\n")
    done = emmclab("simulate", reads, "--device", "nexus5")
    assert "note: 75 % of the bytes read" in done.stdout
    result = emmclab_json("simulate", reads, "--device", "nexus5", "--precondition", "sequential:100")
    assert result["map"]["unwritten_read_pct"] == 0


def test_a_host_that_flushes_is_the_default_for_devices_with_a_cache() -> None:
    runs = [run_application("email", name, precondition="none") for name in ("sdcard", "emmc51-cache")]
    assert [run.app["host"] for run in runs] == ["nexusone", "phone-2020"]
    done = emmclab("apps", "compare", "email", "--devices", "sdcard,emmc51-cache", "--precondition", "none")
    assert "host phone-2020" in done.stdout and "warning" not in done.stdout
    old = ("apps", "run", "email", "--device", "emmc51-cache", "--host", "nexusone", "--precondition", "none")
    assert "warning: this host never flushes the cache of emmc51-cache" in emmclab(*old).stdout
    result = emmclab_json(*old)
    assert len(result["warnings"]) == 1


@pytest.mark.parametrize(
    ("words", "unknown"),
    [
        (("fit",), "the times between its requests are unknown"),
        (("calibrate",), "its service times, and which requests overlapped are unknown"),
    ],
)
def test_models_and_presets_are_no_finer_than_the_clock(words: tuple[str, ...], unknown: str, tmp_path: Path) -> None:
    out = tmp_path / "out.toml"
    rows = [f"{at // 4},{at // 4},{(at + at % 2) // 4},write,{at * 4096},{4096 << at % 3}" for at in range(400)]
    path = csv_trace(tmp_path / "steps.csv", "arrival_ms,start_ms,complete_ms,op,offset_bytes,size_bytes", rows)
    done = emmclab(*words, path, "-o", out)
    assert done.returncode == 2 and not out.exists()
    assert "the clock has steps of 1ms, longer than a usual response" in done.stderr
    assert unknown in done.stderr and "finer time stamps" in done.stderr


_WAL = next(str(path) for path in lab.bundled() if Path(path).stem == "messages-wal")


def test_a_headline_says_that_the_order_of_the_real_devices_is_not_known() -> None:
    output = emmclab("compare", _WAL, "--devices", "emmc51-cache,nexus5").stdout.splitlines()[0]
    assert "is the fastest in the simulation; the order of the real devices is not known: " in output


def test_the_first_rows_of_a_trace_show_nanoseconds_that_tell_requests_apart(tmp_path: Path) -> None:
    rows = [f"{time},read,0,8" for time in (0, 31, 62)]
    fast = csv_trace(tmp_path / "fast.csv", "arrival_ns,op,sector,sectors", rows)
    output = emmclab("head", fast).stdout
    assert "0.000000031" in output and "0.000000062" in output


def test_an_empty_table_of_fsyncs_says_that_the_recording_has_totals_only() -> None:
    done = emmclab("query", "--trace", _WAL, "--csv", "select count(*) as rows from fsyncs")
    assert done.stdout == "rows\n0\n"
    assert "note: the table `fsyncs` is empty" in done.stderr and "447 calls" in done.stderr


def test_a_result_without_changes_says_that_its_settings_are_those_of_the_preset(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(emmclab("simulate", _WAL, "--device", "nexus5", "--json").stdout)
    output = " ".join(emmclab("explain", tmp_path / "one.json").stdout.split())
    assert "as in the preset (`emmclab explain nexus5`)" in output


DAY_S = 86_400


def stretch(start_s: float, requests: int) -> list[float]:
    """Return arrivals every 60 ms with a little jitter, some in close pairs, as in recorded traces."""
    times = [start_s + number * 0.06 + number % 7 * 0.001 for number in range(requests)]
    for number in range(5, requests, 10):
        times[number] = times[number - 1] + 0.0005
    return times


def written(path: Path, times_s: list[float]) -> Path:
    """Write a generic CSV of writes at these times, in this order."""
    lines = [f"{round(time * 1e9)},write,{8 * (place % 90)},8" for place, time in enumerate(times_s)]
    return csv_trace(path, "arrival_ns,op,sector,sectors", lines)


@pytest.fixture(scope="module")
def forward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two minutes of requests with a clock jump of five days in between."""
    times = stretch(100, 1000) + stretch(160 + 5 * DAY_S, 1000)
    return written(tmp_path_factory.mktemp("clock") / "forward.csv", times)


@pytest.fixture(scope="module")
def backward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six minutes of requests; in the middle the clock is set back by 500 s."""
    times = stretch(1000, 3000) + stretch(1180 - 500, 3000)
    return written(tmp_path_factory.mktemp("clock") / "backward.csv", times)


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace whose clock runs without a jump."""
    return written(tmp_path_factory.mktemp("clock") / "whole.csv", stretch(100, 2000))


def test_a_jump_is_in_the_json_with_key_figures_with_and_without_it(forward: Path) -> None:
    profile = profiled(forward)
    (jump,) = profile["clock_jumps"]
    assert (jump["direction"], jump["request"], jump["mended"]) == ("forward", 1001, False)
    assert jump["time_s"] == pytest.approx(59.945) and jump["length_s"] == pytest.approx(5 * DAY_S + 0.055)
    assert (profile["ledger"]["clock_jumps"], profile["ledger"]["mended_jumps"]) == (1, 0)
    figures, without = profile["key_figures"], profile["key_figures_without_jumps"]
    assert figures["duration_s"] == profile["duration_s"] > 5 * DAY_S
    assert without["duration_s"] == pytest.approx(119.9, abs=0.1)
    assert without["mean_inter_arrival_ms"] == pytest.approx(60, abs=0.01)
    assert without["arrival_rate_per_s"] == pytest.approx(2000 / without["duration_s"])
    assert without["access_rate_kb_per_s"] == pytest.approx(8000 / without["duration_s"])


def test_a_jump_is_in_the_table_and_the_verdict_on_distance_is_unknown(forward: Path) -> None:
    done = emmclab_ok("profile", forward)
    text = " ".join(done.stdout.split())
    assert "1 clock jumps or pauses" in text
    assert "Clock jumps or pauses of the recording" in text and "432,000.1" in text
    assert "Key figures with and without the jumps" in text and "without the jumps" in text
    assert "? Characteristic 6" in text and "depends on the 10 longest gaps" in text
    assert "Clock jumps" in emmclab("profile", forward, "--compare").stdout
    assert "Without them" in lab.profile(forward).table()


def test_a_clock_that_runs_evenly_prints_nothing_of_jumps(steady: Path) -> None:
    profile = profiled(steady)
    assert (profile["clock_jumps"], profile["key_figures_without_jumps"]) == ([], None)
    done = emmclab("profile", steady)
    assert "lock jump" not in done.stdout and "jump" not in done.stderr


@pytest.mark.parametrize("options", [["--mend-clock"], ["--mend-clock", "1h"], ["--mend-clock=auto"]])
def test_a_mended_trace_lasts_as_long_as_its_requests(options: list[str], forward: Path, backward: Path) -> None:
    for path, duration_s in ((forward, 120), (backward, 360)):
        profile = profiled(*options, path)
        assert profile["duration_s"] == pytest.approx(duration_s, abs=0.5)
        assert (profile["ledger"]["clock_jumps"], profile["ledger"]["mended_jumps"]) == (1, 1)
        assert [jump["mended"] for jump in profile["clock_jumps"]] == [True]
        assert profile["key_figures_without_jumps"] is None
        assert [finding["shown"] for finding in profile["findings"] if finding["id"] == "characteristic-6"] == ["no"]


def test_mending_is_said_on_stderr(forward: Path, steady: Path, tmp_path: Path) -> None:
    done = emmclab("profile", forward, "--mend-clock", "--json")
    assert "note: forward: 1 clock jump or pause of the recording removed (--mend-clock)" in done.stderr
    done = emmclab("profile", steady, "--mend-clock", "--json")
    assert "note: whole: 0 clock jumps or pauses of the recording removed" in done.stderr
    for command in (
        ["convert", forward, tmp_path / "out.csv"],
        ["simulate", forward, "--device", "small-1gb"],
        ["compare", forward, "--devices", "small-1gb,iiswc15-4ps"],
        ["fit", forward, "-o", tmp_path / "model.toml"],
        ["explain", forward],
    ):
        done = emmclab_ok(*command, "--mend-clock")
        assert done.stderr.count("1 clock jump or pause of the recording removed") == 1, command


def test_a_converted_trace_keeps_its_mended_times_and_its_ledger(backward: Path, tmp_path: Path) -> None:
    out = tmp_path / "mended.parquet"
    done = emmclab("convert", backward, out, "--mend-clock")
    assert done.returncode == 0 and "1 of them mended" in done.stdout, done.stderr
    converted = emmclab_json("convert", backward, out, "--mend-clock")
    mended, original = profiled(out), profiled(backward, "--mend-clock")
    assert converted["clock_jumps"] == original["clock_jumps"]
    assert mended["ledger"] == original["ledger"]
    for field in ("clock_jumps", "key_figures", "key_figures_without_jumps", "figures", "findings"):
        assert mended[field] == original[field], field


def test_a_simulation_of_a_mended_trace_ends_with_it(forward: Path) -> None:
    lasted = [
        emmclab_json("simulate", forward, "--device", "small-1gb", *options)["run"]["simulated_s"]
        for options in ([], ["--mend-clock"])
    ]
    assert lasted[0] > 5 * DAY_S and lasted[1] == pytest.approx(120, abs=1)


@pytest.mark.parametrize("value", ["1w", "-1h", "0s", "5parsec", "", "never"])
def test_a_length_that_is_none_is_refused(value: str, forward: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    for command in (["profile", forward], ["simulate", forward], ["convert", forward, out]):
        done = emmclab(*command, f"--mend-clock={value}")
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        named = f"`--mend-clock`: `{value}`: the value must be" if value else "`--mend-clock`: the value must be"
        assert named in done.stderr
        assert "hint: give a length of 1ms or more, for example 90s, 30min, 1h or 2d" in done.stderr
    assert not out.exists()
    if value[:1].isdigit():
        assert f"`{value}`" in emmclab("profile", "--mend-clock", value, forward).stderr


def test_stdin_needs_a_length(forward: Path) -> None:
    command = ["profile", "-", "--json"]
    refused = emmclab(*command, "--mend-clock", input=forward.read_text())
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "`--mend-clock 1h`" in refused.stderr.splitlines()[1]
    done = emmclab_ok(*command, "--mend-clock", "1h", input=forward.read_text())
    (profile,) = json.loads(done.stdout)
    assert profile["duration_s"] == pytest.approx(120, abs=0.5)


def test_python_mends_and_lists_jumps(forward: Path) -> None:
    trace = lab.read(forward)
    (jump,) = trace.clock_jumps
    assert jump == trace.profile().clock_jumps[0]
    for mend in (True, "1h", "auto"):
        mended = lab.read(forward, mend_clock=mend)
        assert mended.ledger["mended_jumps"] == 1
        assert mended.profile()["duration_s"] < 121
        assert [entry["mended"] for entry in mended.clock_jumps] == [True]
    assert lab.profile(forward, mend_clock=True)["requests"] == 2000
    assert lab.combine([lab.read(forward, mend_clock=True)] * 2).profile()["duration_s"] < 121
    with pytest.raises(lab.errors.ConfigError, match="1w"):
        lab.read(forward, mend_clock="1w")


def test_the_page_shows_figures_without_the_jump(forward: Path, steady: Path, tmp_path: Path, browser: Browser) -> None:
    page_file = tmp_path / "page.html"
    assert emmclab("profile", forward, steady, "--html", page_file).returncode == 0
    page = browser.new_page()
    page.goto(page_file.as_uri())
    assert "1 clock jump or pause of the recording" in page.inner_text("#answer .notice")
    table = page.locator("h3#clock + div table")
    assert "432,000.1" in table.inner_text() and "forward" in table.inner_text()
    assert "without the jumps" in page.inner_text("#tables")
    assert page.locator("#answer .notice .badge").count() == 1
    page.close()
    assert emmclab("profile", steady, "--html", page_file).returncode == 0
    assert 'id="clock"' not in page_file.read_text()


def test_a_file_on_stdin_can_be_read_twice(forward: Path) -> None:
    with forward.open() as file:
        done = emmclab("profile", "-", "--mend-clock", "--json", stdin=file)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["ledger"]["mended_jumps"] == 1


def test_profiles_are_compared_without_clock_jumps_and_the_comparison_says_so(forward: Path, steady: Path) -> None:
    done = emmclab("profile", steady, "--against", forward)
    assert "warning: forward: 1 clock jump or pause of the recording, 5 d together" in done.stderr
    compared = emmclab_json("profile", steady, "--against", forward)
    (warning,) = compared["warnings"]
    assert "compared without it" in warning
    rows = {row["field"]: row for row in compared["fields"]}
    without = profiled(forward)["key_figures_without_jumps"]
    for name in ("duration_s", "arrival_rate_per_s", "access_rate_kb_per_s"):
        assert rows[name]["second"] == without[name]
        assert abs(rows[name]["difference_pct"]) < 5


def test_a_model_is_not_fitted_to_a_clock_jump_without_a_warning(forward: Path, steady: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.toml"
    done = emmclab("fit", forward, "-o", model)
    assert done.returncode == 0 and model.exists()
    assert "warning: forward: 1 clock jump or pause of the recording" in done.stderr
    for quiet in (("fit", forward, "--mend-clock", "-o", model), ("fit", steady, "-o", model)):
        assert "warning" not in emmclab(*quiet).stderr
