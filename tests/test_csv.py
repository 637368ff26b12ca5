"""CSV of other tools: any of three separators; an unknown heading is an error that names the column."""

from pathlib import Path

import pytest

import emmclab as package
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


def test_the_reference_lists_every_column_name() -> None:
    page = reference("trace-formats.md")
    columns = package._core.csv_columns()
    assert len(columns) > 10
    for column in columns:
        assert f"| `{column['name']}` |" in page
        for unit in column["units"]:
            assert f"`{column['name']}{unit}`" in page
