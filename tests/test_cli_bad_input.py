"""Bad input results in one clear error with a hint and exit code 2; never a traceback or a partial output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import PATIENCE_S, ROOT, biotracer, emmclab, emmclab_json, environment


def assert_refused(done: subprocess.CompletedProcess[str], *words: str, code: int = 2) -> None:
    """Check that there is one `error:` line with these words, then a `hint:`, and nothing on stdout."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert lines[0].startswith("error: "), done.stderr
    assert lines[1].startswith("hint: "), done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def profiled(trace: Path) -> dict[str, Any]:
    """Return the profile without the fields that describe the file and its bytes."""
    (profile,) = emmclab_json("profile", trace)
    return {name: value for name, value in profile.items() if name not in ("trace_digest", "provenance")}


@pytest.fixture
def line() -> list[str]:
    """Return the fields of one valid line."""
    return biotracer(1).split()


@pytest.mark.parametrize("command", ["profile", "head", "explain"])
def test_missing_file(command: str, tmp_path: Path) -> None:
    assert_refused(emmclab(command, tmp_path / "nothing.txt"), "nothing.txt")


@pytest.mark.parametrize("command", ["profile", "head", "explain"])
def test_directory(command: str, tmp_path: Path) -> None:
    assert_refused(emmclab(command, tmp_path), "directory")


@pytest.mark.parametrize("command", ["profile", "head", "explain"])
def test_empty_file(command: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.touch()
    assert_refused(emmclab(command, empty), "empty.txt")


@pytest.mark.parametrize("command", ["profile", "head", "explain"])
def test_an_assertion_of_the_parquet_decoder_is_one_error(command: str) -> None:
    damaged = ROOT / "fuzz/corpus/parquet/damaged-schema.parquet"
    assert_refused(emmclab(command, damaged, env={"RUST_BACKTRACE": "1"}), damaged.name)


def test_binary_garbage(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.bin"
    garbage.write_bytes(bytes(range(256)) * 64)
    assert_refused(emmclab("profile", garbage), "garbage.bin")


def test_truncated_line_names_its_number(tmp_path: Path) -> None:
    cut = tmp_path / "cut.txt"
    cut.write_text(biotracer(5)[:-40])
    assert_refused(emmclab("profile", cut), "cut.txt:5")


def test_truncated_parquet(trace: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    assert emmclab("convert", trace, whole).returncode == 0
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(whole.read_bytes()[:-100])
    assert_refused(emmclab("profile", cut), "cut.parquet")


def test_bad_field_is_named_with_its_value(line: list[str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    fields = [line[0], "twelve", *line[2:]]
    bad.write_text(biotracer(3) + "\t\t".join(fields) + "\n")
    assert_refused(emmclab("profile", bad), "bad.txt:4", "twelve")


def test_lenient_counts_what_it_skips(line: list[str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text(biotracer(3) + "\t\t".join([line[0], "twelve", *line[2:]]) + "\n")
    (profile,) = emmclab_json("profile", bad, "--lenient")
    assert profile["ledger"]["skipped"] == 1
    assert profile["requests"] == 3


def test_carriage_returns_change_nothing(trace: Path, tmp_path: Path) -> None:
    other = tmp_path / "chat.txt"
    other.write_bytes(trace.read_bytes().replace(b"\n", b"\r\n"))
    assert profiled(other) == profiled(trace)


def test_missing_last_newline_changes_nothing(trace: Path, tmp_path: Path) -> None:
    other = tmp_path / "chat.txt"
    other.write_bytes(trace.read_bytes().rstrip(b"\n"))
    assert profiled(other) == profiled(trace)


@pytest.mark.parametrize(
    "arguments",
    [["profile", "{}", "--json"], ["head", "{}"], ["explain", "{}"], ["convert", "{}", "{}.csv"]],
    ids=lambda words: words[0],
)
def test_a_pipe_is_read_as_a_file_is(arguments: list[str], trace: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    feeder = subprocess.Popen(["cp", str(trace), str(pipe)])
    done = emmclab(*(word.format(pipe) for word in arguments))
    assert feeder.wait(PATIENCE_S) == 0
    assert done.returncode == 0, done.stderr


def test_a_dash_is_stdin(trace: Path) -> None:
    with trace.open("rb") as file:
        done = emmclab("profile", "-", "--json", stdin=file)
    (profile,) = json.loads(done.stdout)
    assert (profile["name"], profile["requests"]) == ("stdin", 400)


def test_a_pipe_is_not_read_twice(trace: Path, tmp_path: Path) -> None:
    for number, arguments in enumerate(
        (["compare"], ["profile", trace, "--combine"], ["simulate", "--passes", "2"])
    ):
        pipe = tmp_path / f"pipe{number}"
        os.mkfifo(pipe)
        feeder = subprocess.Popen(["cp", str(trace), str(pipe)])
        assert_refused(emmclab(*arguments, pipe), "pipe", "write it to a file first")
        feeder.wait(PATIENCE_S)


@pytest.mark.parametrize("rate", ["nan", "inf", "0", "-1", "1e9"])
def test_an_impossible_rate_is_named(trace: Path, rate: str) -> None:
    done = emmclab("simulate", trace, "--device", "small-1gb", "--rate", rate)
    assert_refused(done, "`rate` cannot be", "0.000001 to 1000000")
    assert "column" not in done.stderr


def test_a_trace_out_of_order_names_the_option_that_helps(tmp_path: Path) -> None:
    late = tmp_path / "late.csv"
    rows = [f"{number * 1_000_000},write,{number * 8},8" for number in range(70_000, 0, -1)]
    late.write_text("arrival_ns,op,sector,sectors\n" + "\n".join([*rows, *rows]) + "\n")
    assert_refused(emmclab("profile", late), "--reorder-window")
    assert emmclab("profile", late, "--reorder-window", "200000").returncode == 0


def test_a_parquet_trace_in_another_unit_is_refused(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    count = 5_000
    columns = {
        "arrival_ns": arrow.array(range(count), arrow.int64()),  # These are really microseconds.
        "sector": arrow.array([number * 8 for number in range(count)], arrow.uint64()),
        "sectors": arrow.array([8] * count, arrow.uint32()),
        "op": arrow.array(["write"] * count).dictionary_encode(),
        "flags": arrow.array([0] * count, arrow.uint16()),
    }
    wrong = tmp_path / "wrong.parquet"
    parquet.write_table(arrow.table(columns), wrong)
    assert_refused(emmclab("profile", wrong), "wrong.parquet", "absurd", "multiply")


def test_wrong_time_unit_is_refused_with_the_likely_one(tmp_path: Path) -> None:
    table = tmp_path / "requests.csv"
    rows = [f"{number * 2_000_000},write,{number * 8},8" for number in range(200)]
    table.write_text("arrival,op,sector,sectors\n" + "\n".join(rows) + "\n")
    options = ["--format", "csv", "--columns", "arrival,op,sector,sectors"]
    assert_refused(emmclab("profile", table, *options, "--time-unit", "s"), "time-unit")
    assert emmclab("profile", table, *options, "--time-unit", "ns").returncode == 0


def test_unknown_option(trace: Path) -> None:
    assert_refused(emmclab("profile", trace, "--jsno"), "--jsno", "emmclab profile --help")


@pytest.mark.parametrize("value", ["many", "1.5", "0"])
def test_an_option_that_is_no_such_number_is_named_with_its_value(trace: Path, value: str) -> None:
    assert_refused(emmclab("head", trace, "--requests", value), "--requests", value)


def test_unknown_command() -> None:
    assert_refused(emmclab("profil"), "profil")


def test_missing_argument() -> None:
    assert_refused(emmclab("head"), "TRACE")


def test_unknown_format_lists_the_known(trace: Path) -> None:
    assert_refused(emmclab("profile", trace, "--format", "biotracr"), "biotracr", "biotracer")


def test_unknown_output_ending(trace: Path, tmp_path: Path) -> None:
    assert_refused(emmclab("convert", trace, tmp_path / "out.xyz"), "out.xyz", "parquet")
    assert not list(tmp_path.iterdir())


def test_output_is_not_the_input(trace: Path) -> None:
    before = trace.read_bytes()
    assert_refused(emmclab("convert", trace, trace, "--to", "csv"), "input itself")
    assert trace.read_bytes() == before


def test_an_empty_word_is_not_the_current_folder(trace: Path) -> None:
    assert_refused(emmclab("profile", ""), "argument 2 after `profile` is empty", "variable of the shell")
    assert_refused(emmclab("profile", trace, "--html", ""), "argument 4 after `--html` is empty")
    assert_refused(emmclab(""), "argument 1 is empty")


def test_one_trace_cannot_be_combined(trace: Path) -> None:
    assert_refused(emmclab("profile", trace, "--combine"), "combine")


def test_report_into_a_missing_folder(trace: Path, tmp_path: Path) -> None:
    done = emmclab("profile", trace, "--html", tmp_path / "no" / "report.html")
    assert done.returncode == 2
    assert "error: " in done.stderr
    assert "report.html" in done.stderr
    assert "Traceback" not in done.stderr


def test_bad_trace_leaves_the_old_output_alone(tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text(biotracer(3) + "1\t\t2\n")
    out = tmp_path / "out.parquet"
    out.write_bytes(b"as it was")
    assert_refused(emmclab("convert", bad, out), "bad.txt:4")
    assert out.read_bytes() == b"as it was"
    assert {path.name for path in tmp_path.iterdir()} == {"bad.txt", "out.parquet"}


def test_bug_is_one_line_and_shows_its_traceback_only_when_asked(trace: Path) -> None:
    program = (
        "import sys, emmclab.traces.trace, emmclab.__main__\n"
        "def broken(self, limit): raise ZeroDivisionError('planted')\n"
        "emmclab.traces.trace.Trace.rows = broken\n"
        "sys.exit(emmclab.__main__.main())\n"
    )

    def head(**more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, "head", str(trace)]
        return subprocess.run(command, capture_output=True, text=True, env=environment(**more), check=False)

    assert_refused(head(), "bug in emmclab", "planted", "EMMCLAB_DEBUG=1", code=1)
    assert "Traceback" in head(EMMCLAB_DEBUG="1").stderr


def test_a_near_setting_is_named_by_its_whole_key(trace: Path) -> None:
    done = emmclab("simulate", trace, "--device", "small-1gb", "--set", "gc.polcy=fifo")
    assert done.returncode == 2
    assert "did you mean `gc.policy`?" in done.stderr


def test_a_wrong_amount_of_preconditioning_is_answered_for_its_kind(trace: Path) -> None:
    for what, hint in (("steady:abc", "steady:4"), ("random:x", "random:90")):
        done = emmclab("simulate", trace, "--device", "nexus5", "--precondition", what)
        assert done.returncode == 2
        assert f"`{hint}`" in done.stderr


def test_ranges_are_written_for_people(trace: Path) -> None:
    done = emmclab("simulate", trace, "--device", "nexus5", "--set", "geometry.channels=-1")
    assert done.returncode == 2
    assert "must be 0 to 4,294,967,295" in done.stderr


def test_a_missing_file_or_folder_is_called_so(trace: Path, tmp_path: Path) -> None:
    assert "nothing.txt: file not found" in emmclab("profile", tmp_path / "nothing.txt").stderr
    assert "folder not found" in emmclab("convert", trace, tmp_path / "gone" / "x.csv").stderr
    assert "unrecognised trace format" in emmclab("profile", ROOT / "LICENSE").stderr
