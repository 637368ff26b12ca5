"""Bad input results in one clear error with a hint and exit code 2; never a traceback or a partial output."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import PATIENCE_S, ROOT, assert_refused, biotracer, emmclab, environment


@pytest.mark.parametrize("command", ["profile", "head", "explain"])
def test_an_assertion_of_the_parquet_decoder_is_one_error(command: str) -> None:
    damaged = ROOT / "fuzz/corpus/parquet/damaged-schema.parquet"
    assert_refused(emmclab(command, damaged, env={"RUST_BACKTRACE": "1"}), damaged.name)


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
    for number, arguments in enumerate((["compare"], ["profile", trace, "--combine"], ["simulate", "--passes", "2"])):
        pipe = tmp_path / f"pipe{number}"
        os.mkfifo(pipe)
        feeder = subprocess.Popen(["cp", str(trace), str(pipe)])
        assert_refused(emmclab(*arguments, pipe), "pipe", "write it to a file first")
        feeder.wait(PATIENCE_S)


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


def test_an_empty_word_is_not_the_current_folder(trace: Path) -> None:
    assert_refused(emmclab("profile", ""), "argument 2 after `profile` is empty", "variables of the shell")
    assert_refused(emmclab("profile", trace, "--html", ""), "argument 4 after `--html` is empty")
    assert_refused(emmclab(""), "argument 1 is empty")


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
