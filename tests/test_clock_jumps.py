"""Clock jumps and pauses of the recording on the command line, in Python and on the page."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

import emmclab as lab
from conftest import emmclab, emmclab_json, emmclab_ok

DAY_S = 86_400


def stretch(start_s: float, requests: int) -> list[float]:
    """Return arrivals every 60 ms with a little jitter; some follow another closely, as in real traces."""
    times = [start_s + number * 0.06 + number % 7 * 0.001 for number in range(requests)]
    for number in range(5, requests, 10):
        times[number] = times[number - 1] + 0.0005
    return times


def written(path: Path, times_s: list[float]) -> Path:
    """Write a generic CSV of writes at these times, in this order."""
    lines = [f"{round(time * 1e9)},write,{8 * (place % 90)},8" for place, time in enumerate(times_s)]
    path.write_text("\n".join(["arrival_ns,op,sector,sectors", *lines]) + "\n")
    return path


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
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace whose clock runs without a jump."""
    return written(tmp_path_factory.mktemp("clock") / "whole.csv", stretch(100, 2000))


def profiled(*arguments: object) -> dict[str, Any]:
    (profile,) = emmclab_json("profile", *arguments)
    return profile


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
    assert "? Characteristic 6" in text and "rests on the 10 longest gaps" in text
    assert "Clock jumps" in emmclab("profile", forward, "--compare").stdout
    assert "Without them" in lab.profile(forward).table()


def test_a_clock_that_runs_evenly_prints_nothing_of_jumps(whole: Path) -> None:
    profile = profiled(whole)
    assert (profile["clock_jumps"], profile["key_figures_without_jumps"]) == ([], None)
    done = emmclab("profile", whole)
    assert "lock jump" not in done.stdout and "jump" not in done.stderr


@pytest.mark.parametrize("given", [["--mend-clock"], ["--mend-clock", "1h"], ["--mend-clock=auto"]])
def test_a_mended_trace_lasts_as_long_as_its_requests(given: list[str], forward: Path, backward: Path) -> None:
    for path, duration_s in ((forward, 120), (backward, 360)):
        profile = profiled(*given, path)
        assert profile["duration_s"] == pytest.approx(duration_s, abs=0.5)
        assert (profile["ledger"]["clock_jumps"], profile["ledger"]["mended_jumps"]) == (1, 1)
        assert [jump["mended"] for jump in profile["clock_jumps"]] == [True]
        assert profile["key_figures_without_jumps"] is None
        assert [one["shown"] for one in profile["findings"] if one["id"] == "characteristic-6"] == ["no"]


def test_mending_is_said_on_stderr(forward: Path, whole: Path, tmp_path: Path) -> None:
    done = emmclab("profile", forward, "--mend-clock", "--json")
    assert "note: forward: 1 clock jump or pause of the recording removed (--mend-clock)" in done.stderr
    done = emmclab("profile", whole, "--mend-clock", "--json")
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
    told = emmclab_json("convert", backward, out, "--mend-clock")
    mended, original = profiled(out), profiled(backward, "--mend-clock")
    assert told["clock_jumps"] == original["clock_jumps"]
    assert mended["ledger"] == original["ledger"]
    for field in ("clock_jumps", "key_figures", "key_figures_without_jumps", "figures", "findings"):
        assert mended[field] == original[field], field


def test_a_simulation_of_a_mended_trace_ends_with_it(forward: Path) -> None:
    lasted = [
        emmclab_json("simulate", forward, "--device", "small-1gb", *given)["run"]["simulated_s"]
        for given in ([], ["--mend-clock"])
    ]
    assert lasted[0] > 5 * DAY_S and lasted[1] == pytest.approx(120, abs=1)


@pytest.mark.parametrize("value", ["1w", "-1h", "0s", "5parsec", "", "never"])
def test_a_length_that_is_none_is_refused(value: str, forward: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    for command in (["profile", forward], ["simulate", forward], ["convert", forward, out]):
        done = emmclab(*command, f"--mend-clock={value}")
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        named = f"`--mend-clock`: `{value}`: is not" if value else "`--mend-clock`: is not"
        assert named in done.stderr
        assert "hint: give 1ms or more, for example 90s, 30min, 1h or 2d" in done.stderr
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
    for given in (True, "1h", "auto"):
        mended = lab.read(forward, mend_clock=given)
        assert mended.ledger["mended_jumps"] == 1
        assert mended.profile()["duration_s"] < 121
        assert [one["mended"] for one in mended.clock_jumps] == [True]
    assert lab.profile(forward, mend_clock=True)["requests"] == 2000
    assert lab.combine([lab.read(forward, mend_clock=True)] * 2).profile()["duration_s"] < 121
    with pytest.raises(lab.errors.ConfigError, match="1w"):
        lab.read(forward, mend_clock="1w")


def test_the_page_shows_the_jump_and_the_figures_without_it(
    forward: Path, whole: Path, tmp_path: Path, browser: Browser
) -> None:
    page_file = tmp_path / "page.html"
    assert emmclab("profile", forward, whole, "--html", page_file).returncode == 0
    page = browser.new_page()
    page.goto(page_file.as_uri())
    assert "1 clock jump or pause of the recording" in page.inner_text("#answer .notice")
    table = page.locator("h3#clock + div table")
    assert "432,000.1" in table.inner_text() and "forward" in table.inner_text()
    assert "without the jumps" in page.inner_text("#tables")
    assert page.locator("#answer .notice .badge").count() == 1
    page.close()
    assert emmclab("profile", whole, "--html", page_file).returncode == 0
    assert 'id="clock"' not in page_file.read_text()


def test_a_file_on_stdin_can_be_read_twice(forward: Path) -> None:
    with forward.open() as file:
        done = emmclab("profile", "-", "--mend-clock", "--json", stdin=file)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["ledger"]["mended_jumps"] == 1


def test_profiles_are_compared_without_clock_jumps_and_the_comparison_says_so(forward: Path, whole: Path) -> None:
    done = emmclab("profile", whole, "--against", forward)
    assert "warning: forward: 1 clock jump or pause of the recording, 5 d together" in done.stderr
    compared = emmclab_json("profile", whole, "--against", forward)
    (warning,) = compared["warnings"]
    assert "compared without it" in warning
    rows = {row["field"]: row for row in compared["fields"]}
    without = profiled(forward)["key_figures_without_jumps"]
    for name in ("duration_s", "arrival_rate_per_s", "access_rate_kb_per_s"):
        assert rows[name]["second"] == without[name]
        assert abs(rows[name]["difference_pct"]) < 5


def test_a_model_is_not_fitted_to_a_clock_jump_without_a_warning(forward: Path, whole: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.toml"
    done = emmclab("fit", forward, "-o", model)
    assert done.returncode == 0 and model.exists()
    assert "warning: forward: 1 clock jump or pause of the recording" in done.stderr
    for quiet in (("fit", forward, "--mend-clock", "-o", model), ("fit", whole, "-o", model)):
        assert "warning" not in emmclab(*quiet).stderr
