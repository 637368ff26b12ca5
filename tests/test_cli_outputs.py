"""Outputs: `-` for stdout, compression by extension, closed streams, and names with control characters."""

import gzip
import json
import lzma
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import emmclab as package
from conftest import COMMAND, PATIENCE_S, assert_refused, begin, biotracer, emmclab, emmclab_ok, environment

MODEL = "Messaging"


def unzstd(path: Path) -> bytes:
    """Read a Zstandard file with emmclab, as CSV."""
    out = path.with_name("plain.csv")
    package.convert(path, out, format="csv")
    return out.read_bytes()


@pytest.mark.parametrize(
    ("ending", "opened"),
    [
        ("gz", lambda path: gzip.decompress(path.read_bytes())),
        ("xz", lambda path: lzma.decompress(path.read_bytes())),
        ("zst", unzstd),
    ],
)
def test_ending_compresses_text(ending: str, opened: Callable[[Path], bytes], trace: Path, tmp_path: Path) -> None:
    plain, packed = tmp_path / "x.csv", tmp_path / f"x.csv.{ending}"
    for out in (plain, packed):
        assert emmclab("convert", trace, out).returncode == 0
    assert opened(packed) == plain.read_bytes()
    assert packed.stat().st_size < plain.stat().st_size / 2
    assert package.read(packed).rows() == package.read(plain).rows()
    repacked = tmp_path / f"again.csv.{ending}"
    assert emmclab("convert", trace, repacked).returncode == 0
    assert repacked.read_bytes() == packed.read_bytes()


def test_every_text_format_can_be_compressed(trace: Path, tmp_path: Path) -> None:
    writable = {entry["name"] for entry in package._core.formats() if entry["writes"]} - {"parquet"}
    assert writable
    for name in sorted(writable):
        plain, packed = tmp_path / f"x.{name}", tmp_path / f"y.{name}.gz"
        for out in (plain, packed):
            emmclab_ok("convert", trace, out, "--to", name)
        assert gzip.decompress(packed.read_bytes()) == plain.read_bytes(), name


def test_outputs_have_permissions_of_the_umask_or_of_a_former_file(trace: Path, tmp_path: Path) -> None:
    """Each way of writing files is checked: by the core, in pieces, by DuckDB, as pages."""
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    package.convert(trace, fleet / "one.parquet")
    runs = {
        "x.parquet": ("convert", trace),
        "x.csv": ("convert", trace),
        "asked.csv": ("query", "select count(*) from trace", "--trace", trace, "-o"),
        "asked.parquet": ("query", "select count(*) from trace", "--trace", trace, "-o"),
        "rows.parquet": ("simulate", trace, "--wrap-addresses", "--events"),
        "page.html": ("profile", trace, "--html"),
        "table.parquet": ("fleet", fleet, "-o"),
    }
    for name, words in runs.items():
        for umask, mode in ((0o077, 0o600), (0o027, 0o640)):
            output = tmp_path / f"{umask:o}-{name}"
            emmclab_ok(*words, output, umask=umask)
            assert (name, output.stat().st_mode & 0o777) == (name, mode)
            output.chmod(0o604)
            emmclab_ok(*words, output, umask=umask)
            assert (name, output.stat().st_mode & 0o777) == (name, 0o604)


def test_a_failed_compression_leaves_nothing(tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text(biotracer(30) + "1\t\t2\n")
    assert emmclab("convert", bad, tmp_path / "x.csv.zst").returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["bad.txt"]


@pytest.mark.parametrize("to", ["csv", "fio", "parquet", "csv.gz"])
def test_convert_writes_to_stdout(to: str, trace: Path, tmp_path: Path) -> None:
    ending = {"parquet": "parquet"}.get(to, f"x.{to}")
    file = tmp_path / f"x.{ending}"
    assert emmclab("convert", trace, file, "--to", to).returncode == 0
    done = subprocess.run(
        [*COMMAND, "convert", str(trace), "-", "--to", to], capture_output=True, env=environment(), check=False
    )
    assert done.returncode == 0
    assert done.stdout == file.read_bytes()
    assert b"400 seen" in done.stderr


def test_stdout_is_appended_to_where_the_shell_says_so(trace: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("before\n")
    command = f"{' '.join(COMMAND)} convert {trace} - --to csv >> {log}"
    subprocess.run(command, shell=True, env=environment(), check=True, capture_output=True)
    assert log.read_text().startswith("before\narrival_ns,")


def test_a_pipe_goes_through_convert(trace: Path) -> None:
    first = subprocess.run(
        [*COMMAND, "convert", str(trace), "-", "--to", "csv"], capture_output=True, env=environment(), check=True
    )
    second = subprocess.run(
        [*COMMAND, "profile", "-", "--json"], input=first.stdout, capture_output=True, env=environment(), check=True
    )
    assert json.loads(second.stdout)[0]["requests"] == 400


def test_stdout_needs_a_format_and_no_second_use(trace: Path) -> None:
    assert_refused(emmclab("convert", trace, "-"), "--to")
    assert_refused(emmclab("convert", trace, "-", "--to", "csv", "--json"), "would both go to stdout")


def test_synth_and_fit_write_to_stdout(trace: Path) -> None:
    output = emmclab_ok("synth", MODEL, "-", "--to", "csv", "--requests", 20)
    assert len(output.stdout.splitlines()) == 21
    fitted, plain = emmclab("fit", trace, "-o", "-"), emmclab("fit", trace)
    assert fitted.returncode == 0 and fitted.stdout == plain.stdout != ""


COMMANDS = [
    ["--help"],
    ["--version"],
    ["profile", "TRACE"],
    ["profile", "TRACE", "--json"],
    ["profile", "TRACE", "--help"],
    ["convert", "TRACE", "OUT"],
    ["convert", "TRACE", "-", "--to", "csv"],
    ["head", "TRACE"],
    ["explain", "TRACE"],
    ["explain", "nexus5"],
    ["formats"],
    ["simulate", "TRACE", "--device", "iiswc15-hps"],
    ["compare", "TRACE", "--devices", "iiswc15-hps,iiswc15-4ps"],
    ["advise", "TRACE", "--device", "iiswc15-hps"],
    ["validate", "TRACE"],
    ["devices"],
    ["layers"],
    ["papers", "tables"],
    ["synth"],
    ["fit", "TRACE"],
    ["profile", "TRACE", "--against", "TRACE"],
    ["papers"],
]


#: Commands that `make test` runs with each stream closed. It runs other commands only with a full stream; slow
#: tests also run those with closed streams.
CLOSED = (["--help"], ["profile", "TRACE"], ["profile", "TRACE", "--json"], ["convert", "TRACE", "OUT"])


@pytest.mark.parametrize(
    ("words", "closing"),
    [
        pytest.param(
            words,
            closing,
            id=f"{closing}-{' '.join(words)}",
            marks=[] if closing == "> /dev/full" or words in CLOSED else pytest.mark.slow,
        )
        for closing in (">&-", "2>&-", ">&- 2>&-", "<&- >&-", "> /dev/full")
        for words in COMMANDS
    ],
)
def test_closed_or_full_streams_give_no_traceback(words: list[str], closing: str, trace: Path, tmp_path: Path) -> None:
    places = {"TRACE": str(trace), "OUT": str(tmp_path / "out.csv")}
    line = " ".join([*COMMAND, *(places.get(word, f"'{word}'") for word in words), closing])
    if closing == "2>&-":
        line += " > /dev/null"
    done = subprocess.run(
        ["sh", "-c", line],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=tmp_path,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "Traceback" not in done.stderr and "bug in emmclab" not in done.stderr
    assert done.stdout == ""
    if closing == "2>&-":
        assert done.returncode == 0
    else:
        assert done.returncode in (0, 1, 2)
        assert done.returncode != 0 or not done.stderr.startswith("error")
    if words[0] == "convert" and words[2] == "OUT":
        assert (tmp_path / "out.csv").read_text().startswith("arrival_ns,")


def without_reader(words: list[str], folder: Path, places: dict[str, str]) -> tuple[int, str]:
    """Run a command whose stdout nobody reads; return its status and messages."""
    read, write = os.pipe()
    os.close(read)
    process = begin(*(places.get(word, word) for word in words), stdout=write, cwd=folder)
    os.close(write)
    _, messages = process.communicate(timeout=PATIENCE_S)
    return process.returncode, messages


@pytest.mark.parametrize("words", [words for words in COMMANDS if "OUT" not in words], ids=" ".join)
def test_a_reader_that_has_gone_ends_a_command_quietly(words: list[str], trace: Path, tmp_path: Path) -> None:
    status, messages = without_reader(words, tmp_path, {"TRACE": str(trace)})
    assert "Traceback" not in messages and "error:" not in messages
    assert status in (0, 141)


#: Commands that write files besides their output, each with the files.
WITH_FILES = {
    "profile TRACE --html OUT.html --figures FIGURES --over-time OUT.csv": ["OUT.html", "OUT.csv", "FIGURES"],
    "simulate TRACE --device iiswc15-hps --html OUT.html --over-time OUT.csv": ["OUT.html", "OUT.csv"],
    "compare TRACE --devices iiswc15-hps --html OUT.html --over-time OUT.csv": ["OUT.html", "OUT.csv"],
    "advise TRACE --device iiswc15-hps --new --html OUT.html": ["OUT.html"],
    "validate TRACE --html OUT.html": ["OUT.html"],
    "journal TRACE --html OUT.html": ["OUT.html"],
    "fleet FOLDER -o OUT.parquet --jobs 1 --html OUT.html": ["OUT.html", "OUT.parquet"],
    "probe galaxys2 --span-mb 32 --html OUT.html": ["OUT.html"],
    "apps run email --html OUT.html --events OUT.parquet": ["OUT.html", "OUT.parquet"],
    "apps solutions email --solution no-sync --html OUT.html": ["OUT.html"],
}


@pytest.mark.parametrize("line", WITH_FILES)
def test_files_are_written_though_the_reader_of_stdout_has_gone(line: str, trace: Path, tmp_path: Path) -> None:
    """A requested file is written even if nobody reads the output, as with `| head`."""
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "chat.txt").write_bytes(trace.read_bytes())
    status, messages = without_reader(line.split(), tmp_path, {"TRACE": str(trace), "FOLDER": "traces"})
    assert status == 141, messages
    for name in WITH_FILES[line]:
        assert (tmp_path / name).exists(), messages


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace whose names would move the cursor, set the title and reverse the text."""
    folder = tmp_path_factory.mktemp("hostile")
    name = "\x1b[31mred\x1b]0;title\x07\x9b2J\u202e"
    rows = [f"{at * 1_000_000},{8 * at},8,write,{name},dev\x1b[2J" for at in range(50)]
    path = folder / "evil\x1b[5m.csv"
    path.write_text("\n".join(["arrival_ns,sector,sectors,op,process,device", *rows, ""]))
    return path


@pytest.mark.parametrize("command", ["head", "profile", "explain", "simulate", "convert"])
def test_names_in_a_trace_do_not_reach_the_terminal_as_commands(command: str, hostile: Path, tmp_path: Path) -> None:
    more = {
        "profile": ["--against", hostile],
        "convert": [tmp_path / "out.parquet"],
        "simulate": ["--device", "iiswc15-hps"],
    }
    done = emmclab_ok(command, hostile, *more.get(command, []))
    for text in (done.stdout, done.stderr):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text), command


def test_errors_and_json_hold_no_control_characters_either(hostile: Path) -> None:
    wrong = emmclab("profile", "no\x1b[31m such\x9b file")
    assert wrong.returncode == 2
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", wrong.stderr)
    exact = emmclab("head", hostile, "--json")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", exact.stdout)
    assert json.loads(exact.stdout)[0]["process"] == "\x1b[31mred\x1b]0;title\x07\x9b2J\u202e"


TELLING = "Alice-2024-03-05-oncology"


@pytest.mark.parametrize("kind", ["text", "csv", "parquet", "combined"])
def test_a_fitted_model_does_not_name_its_trace(kind: str, tmp_path: Path) -> None:
    source = tmp_path / f"{TELLING}.txt"
    source.write_text(biotracer(300))
    if kind in ("csv", "parquet"):
        package.convert(source, tmp_path / f"{TELLING}.{kind}")
        source = tmp_path / f"{TELLING}.{kind}"
    if kind == "combined":
        both = package.combine([package.read(source), package.read(source)])
        both.write(tmp_path / "both.parquet")
        assert TELLING in both.name
        from emmclab.traces.workload import fit

        texts = [fit(both).to_toml()]
        source = tmp_path / "both.parquet"
    else:
        texts = []
    model, synthetic = tmp_path / "model.toml", tmp_path / "made.parquet"
    emmclab_ok("fit", source, "-o", model)
    emmclab_ok("synth", model, synthetic)
    texts += [model.read_text(), json.dumps(package.read(synthetic).header), emmclab("fit", synthetic).stdout]
    for text in texts:
        assert not re.search("alice|2024-03|oncology", text.casefold())
    assert 'name = "fitted"' in model.read_text()
    named = emmclab("fit", source, "--name", "chat")
    assert 'name = "chat"' in named.stdout
