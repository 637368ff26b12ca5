"""What a trace does not record is a dash with its reason, in every command that shows a figure of it."""

from pathlib import Path

import pytest

import emmclab as lab
from conftest import emmclab, emmclab_json, emmclab_ok
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
    """Requests that end at whole milliseconds after 0.3 ms each."""
    path = tmp_path / "lat.csv"
    rows = "".join(f"{at // 4},300000,write,{at * 4096},4096\n" for at in range(60))
    path.write_text(f"complete_ms,response_ns,op,offset_bytes,size_bytes\n{rows}")
    return path


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
        found = lab.read(trace).profile()
        assert [row["requests"] for row in found.figure("flags")] == [None] * len(found.figure("flags"))
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
    found = emmclab_json("simulate", coarse, "--device", "nexus5")
    assert found["recorded"]["no_wait"]["all"]["recorded_pct"] is None
    assert found["recorded"]["response"]["all"]["recorded_ms"] == pytest.approx(0.3)


def test_reads_of_data_that_nobody_wrote_are_named_with_the_remedy(tmp_path: Path) -> None:
    reads = tmp_path / "reads.ssdsim"
    reads.write_text("0 0 0 8 0\n10000000 0 0 8 1\n20000000 0 8 24 1\n")
    done = emmclab("simulate", reads, "--device", "nexus5")
    assert "note: 75 % of the bytes read" in done.stdout
    found = emmclab_json("simulate", reads, "--device", "nexus5", "--precondition", "sequential:100")
    assert found["map"]["unwritten_read_pct"] == 0


def test_a_host_that_flushes_is_the_default_for_devices_with_a_cache() -> None:
    runs = [run_application("email", name, precondition="none") for name in ("sdcard", "emmc51-cache")]
    assert [run.app["host"] for run in runs] == ["nexusone", "phone-2020"]
    done = emmclab("apps", "compare", "email", "--devices", "sdcard,emmc51-cache", "--precondition", "none")
    assert "host phone-2020" in done.stdout and "warning" not in done.stdout
    old = ("apps", "run", "email", "--device", "emmc51-cache", "--host", "nexusone", "--precondition", "none")
    assert "warning: this host never flushes the cache of emmc51-cache" in emmclab(*old).stdout
    found = emmclab_json(*old)
    assert len(found["warnings"]) == 1


@pytest.mark.parametrize(
    ("words", "unknown"),
    [
        (("fit",), "the times between its requests are unknown"),
        (("calibrate",), "its service times, and which requests overlapped are unknown"),
    ],
)
def test_a_model_or_a_preset_has_no_figure_that_is_finer_than_the_clock(
    words: tuple[str, ...], unknown: str, tmp_path: Path
) -> None:
    path, out = tmp_path / "steps.csv", tmp_path / "out.toml"
    rows = "".join(
        f"{at // 4},{at // 4},{(at + at % 2) // 4},write,{at * 4096},{4096 << at % 3}\n" for at in range(400)
    )
    path.write_text(f"arrival_ms,start_ms,complete_ms,op,offset_bytes,size_bytes\n{rows}")
    done = emmclab(*words, path, "-o", out)
    assert done.returncode == 2 and not out.exists()
    assert "the clock has steps of 1ms, longer than a usual response" in done.stderr
    assert unknown in done.stderr and "finer stamps" in done.stderr


_WAL = next(str(path) for path in lab.bundled() if Path(path).stem == "messages-wal")


def test_a_headline_says_that_the_order_of_the_real_devices_is_not_known() -> None:
    said = emmclab("compare", _WAL, "--devices", "emmc51-cache,nexus5").stdout.splitlines()[0]
    assert "is the fastest in the simulation; the order of the real devices is not known: " in said


def test_the_first_rows_of_a_trace_show_nanoseconds_that_tell_requests_apart(tmp_path: Path) -> None:
    lines = ["arrival_ns,op,sector,sectors", *(f"{time},read,0,8" for time in (0, 31, 62))]
    (tmp_path / "fast.csv").write_text("\n".join(lines))
    said = emmclab("head", tmp_path / "fast.csv").stdout
    assert "0.000000031" in said and "0.000000062" in said


def test_an_empty_table_of_fsyncs_says_that_the_recording_has_totals_only() -> None:
    done = emmclab("query", "--trace", _WAL, "--csv", "select count(*) as rows from fsyncs")
    assert done.stdout == "rows\n0\n"
    assert "note: the table `fsyncs` is empty" in done.stderr and "447 calls" in done.stderr


def test_a_result_without_changes_says_that_its_settings_are_those_of_the_preset(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(emmclab("simulate", _WAL, "--device", "nexus5", "--json").stdout)
    said = " ".join(emmclab("explain", tmp_path / "one.json").stdout.split())
    assert "as in the preset (`emmclab explain nexus5`)" in said
