"""Names in traces may contain any character: none breaks a row, a message or the terminal."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from rich.text import Text

import emmclab as package
from conftest import emmclab
from emmclab.cli.console import one_line
from emmclab.cli.show_profile import framed
from emmclab.errors import ConfigError, EmmclabError, InputError

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


def test_a_process_whose_name_has_a_line_break_is_one_row(tmp_path: Path) -> None:
    trace = tmp_path / "chat.parquet"
    package.read(package.bundled()[0]).write(trace)
    named = tmp_path / "named.parquet"
    with duckdb.connect() as database:
        name = "'one' || chr(10) || 'two'"
        database.execute(f"copy (select * replace ({name} as process) from '{trace}') to '{named}'")
    done = emmclab("profile", named)
    assert done.returncode == 0, done.stderr
    assert "one␊two" in done.stdout


def test_pages_hold_no_marks_of_direction_and_no_control_characters(tmp_path: Path) -> None:
    trace = tmp_path / "chat.parquet"
    package.read(package.bundled()[0]).write(trace)
    named, page = tmp_path / "a\u202eb\x9bc.parquet", tmp_path / "page.html"
    with duckdb.connect() as database:
        name = "'d' || chr(8238) || 'e' || chr(133) || chr(8207) || 'f'"
        query = (
            f"copy (select * replace ({name} as process) from '{trace}') to '{tmp_path / 'named.parquet'}'"
        )
        database.execute(query)
    (tmp_path / "named.parquet").rename(named)
    done = emmclab("profile", named, "--html", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    mark = "\N{REPLACEMENT CHARACTER}"
    assert f"d{mark}e{mark}{mark}f" in text
    assert f"a{mark}b{mark}c" in text
    assert not {"\u202e", "\u200f", "\x85", "\x9b"} & set(text)


@pytest.mark.parametrize("kind", [EmmclabError, ConfigError, InputError])
def test_messages_hold_no_control_characters(kind: type[EmmclabError]) -> None:
    error = kind(f"{CLEARED}: no such device", file=CLEARED, hint=f"not {CLEARED}")
    assert str(error) == "a␛[2J␇\N{REPLACEMENT CHARACTER}: no such device"
    assert error.hint == "not a␛[2J␇\N{REPLACEMENT CHARACTER}"
    # Programs open the file by its name.
    assert error.file == CLEARED


def test_a_message_of_a_long_name_is_short_and_ends_with_what_is_wrong() -> None:
    error = EmmclabError(f"{'x' * 2_000_000}: no such device")
    assert len(str(error)) < 10_000
    assert str(error).endswith(": no such device")
    assert "…" in str(error)


def test_a_refusal_of_the_core_is_printable_too(tmp_path: Path) -> None:
    with pytest.raises(EmmclabError) as caught:
        package.Device.preset("small-1gb").set({f"gc.{CLEARED}": "1"})
    assert str(caught.value).isprintable()
    with pytest.raises(EmmclabError) as caught:
        package.read(tmp_path / f"{CLEARED}.csv").profile()
    assert str(caught.value).isprintable()
