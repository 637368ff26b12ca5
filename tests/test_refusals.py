"""Bad input and system errors cause one clear error with a hint that works, never a traceback or partial output."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import emmclab as api
from conftest import PATIENCE_S, ROOT, assert_refused, biotracer, emmclab, emmclab_ok, environment, execute
from emmclab.errors import FormatError, InputError
from emmclab.runtime.files import read_text


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
        assert_refused(emmclab(*arguments, pipe), "pipe", "write the trace to a file first")
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
    assert_refused(emmclab("profile", wrong), "wrong.parquet", "implausible", "multiply")


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

    command = (sys.executable, "-c", program, "head", trace)
    done = execute(*command, env=environment(), status=1)
    assert_refused(done, "bug in emmclab", "planted", "EMMCLAB_DEBUG=1", code=1)
    assert "Traceback" in execute(*command, env=environment(EMMCLAB_DEBUG="1"), status=1).stderr


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        (("simulate", "chat", "--used", "1"), "`1` is not an age", "90d, 8w, 18mo or 2y"),
        (("simulate", "chat", "--rate", "fast"), "'fast' is not a number", "--help"),
        (("simulate", "chat", "--device", "notes.txt"), "notes.txt is not a TOML file", "or give a TOML file"),
        (("simulate", "chat", "--device", "shelf"), "shelf is a folder", "or give a TOML file"),
        (("simulate", "chat", "--events", "rows.csv"), "rows.csv", "ends in .parquet"),
        (("simulate", "chat", "--precondition", "steady:0"), "0 capacities is impossible", "more than 0"),
        (("profile", "chat", "--bin", "1s"), "--bin has no effect without", "--over-time"),
        (("profile", "bare.csv"), "field `heading` (column 1): `arrival`", "arrival_us"),
        (("profile", "shelf"), "shelf: a folder is read as one trace in parts: ", "emmclab fleet"),
        (("simulate", "own.csv", "--device", "zufs"), "own.csv: ", "--layer lfs"),
        (("compare", "own.csv", "--devices", "ufs31,zufs"), "zone 20 is written in order", "--layer lfs"),
        (("fleet", "nowhere"), "nowhere: folder not found", "check the path"),
        (("crash", "--device", "emmc51-cache"), "no workload is given", "sqlite"),
    ],
)
def test_a_refusal_names_value_and_remedy(words: tuple[str, ...], problem: str, hint: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no device")
    (tmp_path / "bare.csv").write_text("arrival,op,sector,sectors\n1,R,0,8\n")
    (tmp_path / "own.csv").write_text("arrival_us,op,sector,sectors\n1,W,8000000,8\n")
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "app.toml").write_text('name = "app"\n')
    done = emmclab(*words, cwd=tmp_path)
    assert done.returncode == 2
    error, _, advice = done.stderr.partition("\nhint: ")
    assert problem in error and hint in advice, done.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--mount", "nowhere/mnt"), "nowhere/mnt: the parent folder was not found"),
        (("--nbd", "nowhere/s.sock"), "folder not found"),
        (("--nbd", "s.sock", "--", "no-such-command"), "no-such-command: command not found"),
    ],
)
def test_serve_refuses_options_before_making_a_device(words: tuple[str, ...], problem: str, tmp_path: Path) -> None:
    done = emmclab("serve", "small-1gb", *words, cwd=tmp_path)
    assert done.returncode == 2 and problem in done.stderr
    assert "ready" not in done.stderr


@pytest.mark.parametrize("name", ["x" * 300, "x" * 100_000])
def test_a_name_that_no_file_can_have_is_a_named_error(name: str) -> None:
    device = api.Device.preset("small-1gb")
    trace = api.read(api.bundled()[0])
    for use in (api.read, api.registers, api.Device.preset, lambda text: device.simulate(trace, precondition=text)):
        with pytest.raises(api.EmmclabError):
            use(name)


LATIN_1 = "name = 'Küche'\n".encode("latin-1")


@pytest.fixture
def latin(tmp_path: Path) -> Path:
    path = tmp_path / "latin.toml"
    path.write_bytes(LATIN_1)
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "{latin}"],
        ["explain", "{latin}"],
        ["simulate", "{trace}", "--device", "{latin}"],
        ["synth", "{latin}", "out.parquet"],
        ["profile", "{trace}", "--against", "{latin}"],
        ["probe", "{latin}"],
    ],
    ids=lambda words: words[0],
)
def test_a_text_that_is_no_utf8(arguments: list[str], latin: Path, trace: Path) -> None:
    words = (word.format(latin=latin, trace=trace) for word in arguments)
    assert_refused(emmclab(*words, cwd=latin.parent), "latin.toml", "UTF-8")
    assert not (latin.parent / "out.parquet").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "advil12", "--results", "{file}"],
        ["claims", "--results", "{file}"],
        ["reproduce", "iiswc15", "--results", "{file}"],
        ["profile", "{trace}", "--figures", "{file}"],
        ["profile", "{trace}", "--html", "{file}/page.html"],
        ["convert", "{trace}", "{file}/out.csv"],
        ["simulate", "{trace}", "--images", "{file}", "--precondition", "random:1", "--wrap-addresses"],
    ],
    ids=lambda words: f"{words[0]} {words[-2]}",
)
def test_a_file_where_a_folder_is_expected(arguments: list[str], trace: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("as it was")
    done = emmclab(*(word.format(file=file, trace=trace) for word in arguments), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.splitlines()
    assert lines[-2].startswith(f"error: {file}"), done.stderr
    assert lines[-1].startswith("hint: "), done.stderr
    assert file.read_text() == "as it was"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


#: Commands that write the file OUT.
WRITING = ("profile TRACE --html OUT", "convert TRACE OUT --to csv")


@pytest.mark.parametrize("command", WRITING)
def test_an_output_through_a_link_leaves_the_link(command: str, trace: Path, tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("as it was")
    link.symlink_to(file)
    emmclab_ok(*({"TRACE": trace, "OUT": link}.get(word, word) for word in command.split()))
    assert link.is_symlink()
    assert len(file.read_text()) > len("as it was")


@pytest.mark.parametrize("command", WRITING)
def test_a_folder_where_a_file_is_expected(command: str, trace: Path, tmp_path: Path) -> None:
    done = emmclab(*({"TRACE": trace, "OUT": tmp_path}.get(word, word) for word in command.split()))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("hint: name a file"), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_too_long(trace: Path, tmp_path: Path) -> None:
    for arguments in (["head", "x" * 300], ["convert", trace, tmp_path / ("x" * 300 + ".csv")]):
        assert_refused(emmclab(*arguments), "shorter name")
    assert list(tmp_path.iterdir()) == []


def test_every_refusal_has_a_hint(tmp_path: Path) -> None:
    for number in (*range(1, 40), 95, 122):
        refusal = InputError.of(OSError(number, os.strerror(number), "some.file"))
        assert refusal.hint
        assert str(refusal).startswith("some.file: ")
    with pytest.raises(InputError, match="file not found") as missing:
        read_text(tmp_path / "none.toml", "run it first")
    assert missing.value.hint == "run it first"
    with pytest.raises(FormatError, match="byte 9: this is not UTF-8"):
        (tmp_path / "latin.toml").write_bytes(LATIN_1)
        read_text(tmp_path / "latin.toml")


#: The time to which a clock that begins at 0 is set, in seconds.
SET = 1_270_000_000
#: Rejected files, each with a hint whose command or options make it readable; FILE is the file.
REFUSED = {
    "a log of fio": "0, 309742, 0, 4096, 249856, 0\n2, 94538, 1, 4096, 3104768, 0\n",
    "a log of fio without priorities": "1, 309742, 0, 4096, 249856\n2, 94538, 1, 4096, 3104768\n",
    "block numbers": "100\n200\n100\n300\n",
    "xperf": (
        "BeginHeader\n    DiskRead,  TimeStamp, Process Name ( PID), ThreadID, IrpPtr\nEndHeader\n"
        "    DiskRead, 125340, System (   4), 188, 0xff, 0x00120a3000, 0x00001000, 451, 0, 0x00060043, 445, "
        'Normal, Original, 0xff, "C:\\a, b"\n'
        "    DiskWrite, 125840, System (   4), 188, 0xff, 0x00120a4000, 0x00001000, 51, 0, 0x00060043, 45, "
        "Normal, Original, 0xff, x\n"
    ),
    "a table with decimal commas": "0,000000 0 4220896 8 0\n3,773000 0 49592384 8 1\n",
    "events with decimal commas": "  8,0    3        1     0,000000000   697  Q   W 223490 + 8 [kjournald]\n",
    "a recording that is there twice": (
        "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n1.0 fio 7 sda W 8 4096 0.75\n2.0 fio 7 sda W 8 4096 0.7\n"
    )
    * 2,
    "usual names": "time_s op lba size seq\n0.000000 read 2048 8 rand\n0.000112 read 2056 8 seq\n",
    "a bad line": "arrival_us,op,sector,sectors\n1,R,8,8\nx,R,8,8\n",
    "numbers of operations": "arrival_us,op,sector,sectors\n1,0,8,8\n",
    "nanoseconds of fio": "fio version 3 iolog\n"
    + "".join(f"{1_000_000 * at} /f read {4096 * at} 4096\n" for at in range(300)),
    "times without a unit": "arrival,op,sector,sectors\n" + "".join(f"{at // 40},R,8,8\n" for at in range(3000)),
    "a clock that was set": "arrival_s,complete_s,op,sector,sectors\n"
    + "".join(
        f"{SET * (at > 149) + at / 100:.3f},{SET * (at > 148) + at / 100 + 0.001:.3f},R,8,8\n" for at in range(300)
    ),
    "bytes": "arrival_us,op,sector,sectors\n"
    + "".join(f"{at}000,W,{40960 * at},{4096 << at % 4}\n" for at in range(200)),
}


def cures(hint: str) -> list[tuple[list[str], list[str]]]:
    """Return the proposals of a hint: lines for a shell, and options to read the file that they write."""
    quoted = re.findall(r"`([^`]*)`", hint)
    lines = [line for line in quoted if re.match(r"(sed|grep|head|tail) ", line)]
    options: list[str] = []
    if match := re.search(r"--columns ((?:[\w-]+,)+[\w-]+|offset)", hint):
        options += ["--columns", match[1]]
    elif "--columns and --size-unit byte" in hint:
        options += ["--columns", "arrival_us,op,offset,size", "--size-unit", "byte"]
    elif "op_read0" in hint:
        options += ["--columns", "arrival_us,op_read0,sector,sectors"]
    options += ["--size-unit", "page"] if "--size-unit page" in hint else []
    options += ["--size-unit", "sector"] if "--size-unit UNIT" in hint else []
    if match := re.search(r"--time-unit (\w+)", hint):
        options += ["--time-unit", match[1]]
    options += ["--mend-clock"] if "--mend-clock" in hint else []
    options += ["--lenient"] if "--lenient" in hint and "op_read0" not in hint else []
    if not lines:
        return [([], options)]
    return [([line], options) for line in lines]


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_is_read_after_the_cure_that_its_refusal_proposes(name: str, tmp_path: Path) -> None:
    path = tmp_path / "FILE"
    path.write_text(REFUSED[name])
    refused = emmclab("profile", path)
    assert refused.returncode == 2, refused.stdout
    hint = refused.stderr.partition("\nhint: ")[2]
    result = cures(hint)
    assert result != [([], [])], hint
    for lines, options in result:
        read = path
        for line in lines:
            subprocess.run(["bash", "-c", line], cwd=tmp_path, check=True)
            read = tmp_path / line.rsplit(" ", 1)[1]
        if name == "a log of fio":
            assert "one more `,-` where it has a sixth column" in hint
            options = [option + ",-" if "," in option else option for option in options]
        if name == "bytes":
            read.write_text(REFUSED[name].split("\n", 1)[1])
        emmclab_ok("profile", read, *options)
