"""Help and completion: commands by panel and accepted examples; slow modules are imported only where needed."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text
from typer.core import TyperGroup

import emmclab as lab
from conftest import COMMAND, emmclab, environment, executable, execute
from emmclab.cli import COMMANDS, PANELS, application, application_for, insert_default_values, overview
from emmclab.cli.command import READING_PANEL, walk_commands
from emmclab.simulation.device import presets
from emmclab.simulation.layers import layers
from repository import complain, place, tracked

EVERY = dict(walk_commands(application()))
#: Matches a command in a text: after a backtick, a quote, a prompt, or the words before it.
NAMED = re.compile(
    r"(?:[`\"'>]|^ *\$ |^ {4,}|Next: )(?:\.venv/bin/)?emmclab ([a-z][a-z-]*)(?: ([a-z][a-z0-9-]*))?", re.MULTILINE
)
TEXTS = (".py", ".rs", ".md", ".toml", ".j2", ".sh", ".txt")


def examples(command: Any) -> list[str]:
    """Return the command lines of the examples in the help of a command."""
    lines = [Text.from_markup(line).plain for line in (command.epilog or "").split("\n\n")]
    assert lines[0] in ("Example:", "Examples:")
    return [line.partition(" # ")[0] for line in lines[1:]]


def words_of(line: str) -> list[str]:
    """Return the words of a command line up to a pipe."""
    return shlex.split(line.partition(" | ")[0])


def parse(words: list[str]) -> None:
    """Parse a command line as the program does, without executing it."""
    words = insert_default_values(words)
    command: Any = application_for(words)
    name, context = "emmclab", None
    while isinstance(command, TyperGroup):
        context = command.make_context(name, words, parent=context)
        name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
    command.make_context(name, words, parent=context)


def test_every_command_is_in_a_panel_and_has_a_summary() -> None:
    assert [*overview().commands] == [*application().commands] == [*COMMANDS]
    for name, command in overview().commands.items():
        full: Any = application([name]).commands[name]
        assert command.help and full.help.split("\n\n")[0] == command.help, name
        assert name in PANELS[full.rich_help_panel]
    stdout = emmclab("--help", env={"COLUMNS": "100"}).stdout
    places = [stdout.index(f"─ {panel} ─") for panel in PANELS]
    assert places == sorted(places)


@pytest.mark.parametrize("words", EVERY)
def test_the_help_has_examples_that_are_accepted(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [line for line in examples(EVERY[words]) if line.startswith("emmclab ")]
    own = [line for line in lines if f"{line} ".startswith(f"emmclab {words} ")]
    assert own, "no example of the command itself"
    for line in lines:
        parse(words_of(line)[1:])


@pytest.mark.parametrize("words", EVERY)
def test_the_help_of_every_command_fits_a_screen_with_an_example_before_the_options(words: str) -> None:
    stdout = emmclab(*words.split(), "--help", env={"COLUMNS": "100"}).stdout
    assert len(stdout.strip().splitlines()) <= 40
    if not isinstance(EVERY[words], TyperGroup):
        assert f" {examples(EVERY[words])[0][:60]}" in stdout.partition("─ Options ─")[0]


@pytest.mark.parametrize("words", ["simulate", "crash", "serve", "head"])
def test_the_full_help_has_every_option_and_every_example(words: str) -> None:
    stdout = emmclab(words, "--help-all", env={"COLUMNS": "200"}).stdout
    for parameter in EVERY[words].params:
        assert not parameter.opts[0].startswith("-") or f" {parameter.opts[0]}" in stdout, parameter.opts
    for line in examples(EVERY[words]):
        assert line in stdout


def test_the_options_on_reading_are_a_topic_that_the_help_names() -> None:
    stdout = emmclab("simulate", "--help", env={"COLUMNS": "200"}).stdout
    assert "emmclab explain reading" in stdout and "--lenient" not in stdout
    answer = emmclab("explain", "reading", env={"COLUMNS": "200"}).stdout
    panel = [row.opts[0] for row in EVERY["simulate"].params if row.rich_help_panel == READING_PANEL]
    assert len(panel) == 10
    assert all(f"\n{option}" in answer for option in panel)


def test_no_option_says_to_which_other_command_it_belongs() -> None:
    faults = [
        f"emmclab {words}: {parameter.name}: {parameter.help}"
        for words, command in EVERY.items()
        for parameter in command.params
        if re.match(r"(Of|With) `", getattr(parameter, "help", None) or "")
    ]
    complain(faults, "give the command options of its own")


def mentions() -> Iterator[tuple[str, str, str | None]]:
    """Yield each command that a text of the project mentions: its place and one or two words."""
    for path in tracked(*TEXTS):
        # The stored outputs are left out, because some of their command lines are misspelt on purpose.
        if path.name == "CHANGELOG.md" or path == Path(__file__) or "messages" in path.parts:
            continue
        text = path.read_text(errors="replace")
        for match in NAMED.finditer(text):
            yield place(path, text.count("\n", 0, match.start()) + 1), match[1], match[2]


def test_every_command_that_a_text_names_exists() -> None:
    faults, count = [], 0
    # Sentences that begin with the product's name, names of fio jobs, and an example of a command to be
    # added.
    others = {"is", "replays", "wait", "close", "span"}
    for where, name, action in mentions():
        count += 1
        if name in others:
            continue
        if name not in EVERY:
            faults.append(f"{where}: emmclab {name}")
        elif action and isinstance(EVERY[name], TyperGroup) and f"{name} {action}" not in EVERY:
            faults.append(f"{where}: emmclab {name} {action}")
    assert count > 500
    complain(faults, "name a command that exists")


#: Script that loads the completion, then completes the last word like the Tab key.
TYPED = """
eval "$(_EMMCLAB_COMPLETE=source_bash "$0")"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_emmclab_completion "$0"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ([""], [*COMMANDS]),
        (["apps", ""], ["list", "show", "hosts", "schema", "run", "compare", "solutions", "live", "learn"]),
        (["apps", "show", "ema"], ["email"]),
        (["papers", "t"], ["tables"]),
        (["simulate", "--device", ""], presets()),
        (["compare", "--devices", "nexus5,galax"], ["nexus5,galaxys2"]),
        (["simulate", "--layer", ""], [layer["name"] for layer in layers()]),
        (["simulate", "--set", "timing.paral"], ["timing.parallelism="]),
        (["simulate", "--mode", "back"], ["back_to_back"]),
        (["simulate", "--capac"], ["--capacity"]),
    ],
    ids=lambda words: " ".join(words[:3]),
)
def test_bash_offers_commands_options_and_names(words: list[str], offered: list[str], tmp_path: Path) -> None:
    program = executable(tmp_path / "emmclab", f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    done = execute("bash", "-c", TYPED, program, "emmclab", *words, env=environment())
    assert (done.stdout.split(), done.stderr) == (offered, "")


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
    ["head", str(lab.bundled()[0])],
    ["explain", str(lab.bundled()[0])],
    ["profile", str(lab.bundled()[0]), "--json"],
    ["profile", str(lab.bundled()[0])],
    ["simulate", str(lab.bundled()[0]), "--wrap-addresses", "--json"],
    ["compare", str(lab.bundled()[0]), "--wrap-addresses", "--json"],
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
    assert all(getattr(lab, name) is not None for name in dir(lab))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        lab.nothing  # noqa: B018


def test_a_run_waits_for_nothing_that_only_notebooks_need() -> None:
    words = ["simulate", str(lab.bundled()[0]), "--wrap-addresses", "--json"]
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
