"""CSV of other tools: any of three separators; an unknown heading is an error that names the column."""

from pathlib import Path

import pytest

import emmclab as package
from conftest import emmclab
from reference import reference

HEADING = ["arrival_us", "op", "offset_bytes", "size_kb", "process"]
ROWS = [["1", "write", "4096", "4", "a"], ["5", "read", "8192", "8", '"b;c,d"']]


def written(folder: Path, separator: str, heading: list[str] | None = HEADING) -> Path:
    """Write a file of two requests."""
    path = folder / "other.csv"
    lines = ([heading] if heading else []) + ROWS
    path.write_text("".join(separator.join(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t"], ids=["comma", "semicolon", "tab"])
def test_commas_semicolons_and_tabs_separate_columns(separator: str, tmp_path: Path) -> None:
    trace = package.read(written(tmp_path, separator))
    assert trace.header["format"] == "csv"
    assert [(row["arrival_ns"], row["sector"], row["process"]) for row in trace.rows()] == [
        (1000, 8, "a"),
        (5000, 16, "b;c,d"),
    ]


@pytest.mark.parametrize("separator", [",", ";", "\t"], ids=["comma", "semicolon", "tab"])
def test_named_columns_do_not_depend_on_the_separator(separator: str, tmp_path: Path) -> None:
    trace = package.read(written(tmp_path, separator, None), columns=",".join(HEADING))
    assert [row["sectors"] for row in trace.rows()] == [8, 16]


@pytest.mark.parametrize("separator", [",", ";", "\t"], ids=["comma", "semicolon", "tab"])
def test_an_unknown_heading_names_the_column_and_what_is_accepted(separator: str, tmp_path: Path) -> None:
    path = written(tmp_path, separator, ["arrival_us", "rw", "offset_bytes", "len", "process"])
    done = emmclab("profile", path)
    assert done.returncode == 2
    assert f"{path}:1: field `heading` (column 2): `rw`" in done.stderr
    assert "nor are: len" in done.stderr
    for name in ("--columns", "arrival", "size", "process"):
        assert name in done.stderr.partition("hint:")[2]


def test_a_bad_value_behind_a_semicolon_is_named_by_column(tmp_path: Path) -> None:
    path = written(tmp_path, ";")
    path.write_text(path.read_text().replace("8192", "81x2"))
    with pytest.raises(package.FormatError, match=r"other\.csv:3: .*column 3.*81x2"):
        package.profile(path)


def test_the_reference_lists_every_column_name() -> None:
    page = reference("trace-formats.md")
    columns = package._core.csv_columns()
    assert len(columns) > 10
    for column in columns:
        assert f"| `{column['name']}` |" in page
        for unit in column["units"]:
            assert f"`{column['name']}{unit}`" in page
