"""Names of files and in traces may contain any character: none breaks a row, a message or the terminal."""

import json
import os
import subprocess
from pathlib import Path

import duckdb
import pytest
from rich.text import Text

import emmclab as package
from conftest import COMMAND, PATIENCE_S, csv_trace, emmclab_ok, environment
from emmclab.cli.console import one_line
from emmclab.cli.tables import framed
from emmclab.errors import ConfigError, EmmclabError, FormatError
from emmclab.studies import Serial, Study, run_study

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
