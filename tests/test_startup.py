"""The command line starts fast: modules with a long import are imported only by commands that need them."""

import sys

import pytest

import emmclab
from conftest import execute
from emmclab.cli import COMMANDS

HEAVY = {
    "altair",
    "duckdb",
    "emmclab.crash",
    "emmclab.fleet",
    "emmclab.pages",
    "emmclab.papers",
    "emmclab.studies",
    "jinja2",
    "matplotlib",
    "multiprocessing",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "pydantic",
    "vl_convert",
}

PRINT_MODULES = "import sys; print(*sys.modules, file=sys.stderr)"


def modules_after(code: str) -> set[str]:
    """Return the modules that a new interpreter has loaded after this code."""
    return set(execute(sys.executable, "-c", f"{code}\n{PRINT_MODULES}").stderr.split())


def test_the_names_of_heavy_modules_are_right() -> None:
    assert modules_after("import emmclab.studies, emmclab.pages.assemble, rich") >= {
        "rich",
        "altair",
        "duckdb",
        "jinja2",
    }


#: Commands that must not import the libraries of charts; those that print JSON or one line need no tables either.
LIGHT = [
    ["--help"],
    ["--version"],
    ["formats"],
    ["formats", "--json"],
    ["devices"],
    ["head", str(emmclab.bundled()[0])],
    ["explain", str(emmclab.bundled()[0])],
    ["profile", str(emmclab.bundled()[0]), "--json"],
    ["profile", str(emmclab.bundled()[0])],
    ["simulate", str(emmclab.bundled()[0]), "--wrap-addresses", "--json"],
    ["compare", str(emmclab.bundled()[0]), "--wrap-addresses", "--json"],
]


@pytest.mark.parametrize("arguments", LIGHT, ids=" ".join)
def test_commands_import_only_what_they_need(arguments: list[str]) -> None:
    unwanted = HEAVY | ({"rich"} if {"--json", "--version"} & {*arguments} else set())
    assert not unwanted & modules_after(f"from emmclab.cli import main; assert main({arguments!r}) == 0")


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_no_command_and_no_room_but_errors_and_files(option: str) -> None:
    modules = modules_after(f"from emmclab.cli import main; assert main([{option!r}]) == 0")
    rooms = {".".join(name.split(".")[:2]) for name in modules if name.startswith("emmclab.")}
    assert rooms <= {"emmclab._core", "emmclab.cli", "emmclab.errors", "emmclab.runtime"}
    assert not {f"emmclab.cli.{name}" for name in COMMANDS} & modules


def test_names_and_rooms_of_the_package_load_on_first_use() -> None:
    before = modules_after("import emmclab")
    assert "emmclab.traces" not in before
    assert "emmclab.traces.reading" in modules_after("import emmclab; emmclab.read")
    assert "emmclab.studies" in modules_after("import emmclab; emmclab.studies")
    assert all(getattr(emmclab, name) is not None for name in dir(emmclab))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        emmclab.nothing  # noqa: B018


def test_a_run_waits_for_nothing_that_only_notebooks_need() -> None:
    words = ["simulate", str(emmclab.bundled()[0]), "--wrap-addresses", "--json"]
    modules = modules_after(f"from emmclab.cli import main; assert main({words!r}) == 0")
    assert not {"html", "random", "tempfile"} & (modules - modules_after("import typer"))


def test_memory_is_collected_again_once_everything_is_imported() -> None:
    code = (
        "import gc, sys; sys.argv[1:] = ['formats', '--json']; from emmclab.__main__ import main; "
        "assert main() == 0 and gc.isenabled() and gc.get_freeze_count() > 0"
    )
    execute(sys.executable, "-c", code)


def test_a_command_does_not_import_another() -> None:
    modules = modules_after("from emmclab.cli import main; main(['formats', '--json'])")
    assert {name for name in modules if name.startswith("emmclab.cli.")} == {
        "emmclab.cli.command",
        "emmclab.cli.console",
        "emmclab.cli.options",
        "emmclab.cli.failures",
        "emmclab.cli.formats",
        "emmclab.cli.name_completion",
    }
