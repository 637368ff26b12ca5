"""The command line starts at once: what takes long to import is imported by the command that needs it."""

import subprocess
import sys

import pytest

import emmclab

HEAVY = {
    "altair",
    "duckdb",
    "emmclab.claims",
    "emmclab.plots",
    "emmclab.report",
    "emmclab.study",
    "jinja2",
    "matplotlib",
    "multiprocessing",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "vl_convert",
}

PRINT_MODULES = "import sys; print(*sys.modules, file=sys.stderr)"


def heavy_modules(code: str) -> set[str]:
    """Give the heavy modules that a new interpreter holds after this code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{PRINT_MODULES}"], capture_output=True, text=True, check=True
    )
    return HEAVY & set(done.stderr.split())


def test_the_names_of_heavy_modules_are_right() -> None:
    assert heavy_modules("import emmclab.study, emmclab.report") >= {"altair", "duckdb", "jinja2"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["formats"],
        ["devices", "--json"],
        ["head", str(emmclab.bundled()[0])],
        ["explain", str(emmclab.bundled()[0])],
        ["profile", str(emmclab.bundled()[0]), "--json"],
        ["profile", str(emmclab.bundled()[0])],
        ["simulate", str(emmclab.bundled()[0]), "--fold", "--json"],
    ],
    ids=" ".join,
)
def test_commands_without_charts_import_nothing_heavy(arguments: list[str]) -> None:
    assert not heavy_modules(f"from emmclab.cli import main; assert main({arguments!r}) == 0")
