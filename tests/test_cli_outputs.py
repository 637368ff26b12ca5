"""Outputs: `-` for stdout, compression by extension, closed streams, and names that contain any character."""

import gzip
import json
import lzma
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from rich.text import Text

import emmclab as package
from conftest import COMMAND, PATIENCE_S, assert_refused, begin, biotracer, csv_trace, emmclab, emmclab_ok, environment
from emmclab.cli.console import one_line
from emmclab.cli.tables import framed
from emmclab.errors import ConfigError, EmmclabError, FormatError
from emmclab.studies import Serial, Study, run_study

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


CLEARED = "a\x1b[2J\x07\x9b"


def test_a_cell_of_a_table_is_one_line_and_keeps_its_style() -> None:
    table = framed()
    table.add_column("name")
    table.add_row("a\nb")
    table.add_row(Text.assemble(("a\n", "bold"), "b\tc"))
    cells = list(table.columns[0].cells)
    assert [str(cell) for cell in cells] == ["a␊b", "a␊b␉c"]
    assert isinstance(cells[1], Text)
    assert cells[1].spans[0].end == 2
    assert one_line("a\r\nb") == "a␍␊b"


def of_process(name: str, folder: Path) -> Path:
    """Write a trace whose requests are all of one process; the name is an expression in SQL."""
    trace, named = folder / "chat.parquet", folder / "named.parquet"
    package.read(package.bundled()[0]).write(trace)
    with duckdb.connect() as database:
        database.execute(f"copy (select * replace ({name} as process) from '{trace}') to '{named}'")
    return named


def test_a_process_whose_name_has_a_line_break_is_one_row(tmp_path: Path) -> None:
    assert "one␊two" in emmclab_ok("profile", of_process("'one' || chr(10) || 'two'", tmp_path)).stdout


def test_pages_hold_no_marks_of_direction_and_no_control_characters(tmp_path: Path) -> None:
    named, page = tmp_path / "a\u202eb\x9bc.parquet", tmp_path / "page.html"
    of_process("'d' || chr(8238) || 'e' || chr(133) || chr(8207) || 'f'", tmp_path).rename(named)
    emmclab_ok("profile", named, "--html", page)
    text = page.read_text()
    mark = "\N{REPLACEMENT CHARACTER}"
    assert f"d{mark}e{mark}{mark}f" in text
    assert f"a{mark}b{mark}c" in text
    assert not {"\u202e", "\u200f", "\x85", "\x9b"} & set(text)


def test_a_refusal_of_the_core_is_printable_too(tmp_path: Path) -> None:
    with pytest.raises(EmmclabError) as caught:
        package.Device.preset("small-1gb").set({f"gc.{CLEARED}": "1"})
    assert str(caught.value).isprintable()
    with pytest.raises(EmmclabError) as caught:
        package.read(tmp_path / f"{CLEARED}.csv").profile()
    assert str(caught.value).isprintable()


def test_a_message_has_no_control_characters_and_keeps_lines_and_tabs() -> None:
    error = ConfigError("no \x1b[2Jname\x07 and \u202eturned\n\tgoes on", hint="try \x9b31mthis")
    assert str(error) == "no ␛[2Jname␇ and \N{REPLACEMENT CHARACTER}turned\n\tgoes on"
    assert error.hint == "try \N{REPLACEMENT CHARACTER}31mthis"


def test_a_very_long_name_is_cut_and_a_path_is_not() -> None:
    path = "/".join(["folder"] * 580)
    error = FormatError(f"{path}: `{'x' * 10**6}` is no name", hint=f"take {'y' * 10**6}")
    assert str(error).startswith(f"{path}: `xxx") and str(error).endswith("x` is no name")
    assert len(str(error)) < len(path) + 400 and "…" in str(error)
    assert error.hint is not None and len(error.hint) < 400
    many = FormatError("of these: " + ", ".join(f"name-{number}" for number in range(10**5)))
    assert len(str(many)) < 13_000 and " characters … " in str(many)


def test_errors_of_the_core_are_harmless_too(tmp_path: Path) -> None:
    """The error about a trace of several devices contains the name of a device from the trace."""
    names = ("sda\x1b[31m", "y" * 100_000)
    rows = [f"{number},write,{number * 8},8,{name}" for number, name in enumerate(names)]
    trace = csv_trace(tmp_path / "two.csv", "arrival_ns,op,sector,sectors,device", rows)
    with pytest.raises(ConfigError) as caught:
        package.Device.preset("small-1gb").simulate(package.read(trace), wrap_addresses=True)
    messages = str(caught.value) + (caught.value.hint or "")
    assert "sda␛[31m" in messages and "\x1b" not in messages and len(messages) < 2_000


@pytest.fixture
def oddly_named(trace: Path, tmp_path: Path) -> bytes:
    """A copy of the trace whose name is not valid UTF-8 and contains a space."""
    path = os.fsencode(tmp_path) + b"/my K\xfcche.txt"
    Path(os.fsdecode(path)).write_bytes(trace.read_bytes())
    return path


def run(*words: str | bytes, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a command with bytes as arguments."""
    command = [*COMMAND, *words]
    done = subprocess.run(command, capture_output=True, env=environment(), cwd=folder, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_a_name_that_is_no_utf8_is_shown_with_a_replacement(oddly_named: bytes, tmp_path: Path) -> None:
    output = run("profile", oddly_named, "--json", folder=tmp_path).stdout
    assert json.loads(output)[0]["name"] == "my K\N{REPLACEMENT CHARACTER}che"
    for words in (
        ("profile", oddly_named, "--html", "page.html", "--figures", "figures"),
        ("head", oddly_named),
        ("explain", oddly_named, "--json"),
        ("convert", oddly_named, oddly_named + b".parquet", "--json"),
        ("simulate", oddly_named, "--wrap-addresses", "--html", "run.html"),
    ):
        run(*words, folder=tmp_path)


def test_a_study_takes_such_a_name(oddly_named: bytes, tmp_path: Path) -> None:
    study = tmp_path / "small.toml"
    study.write_text('name = "small"\ninputs = ["Idle"]\n')
    named = Study.named(str(study)).with_inputs([os.fsdecode(oddly_named)])
    outcome = run_study(named, tmp_path / "results", Serial())
    assert outcome.about["recorded"] == ["my K\N{REPLACEMENT CHARACTER}che.txt"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_of_any_encoding_takes_the_tables(trace: Path, encoding: str) -> None:
    done = emmclab_ok("profile", trace, env={"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"})
    assert "Table III" in done.stdout
