"""The command line: one file per command.

Only the module of the command that runs is imported. Slow imports (tables, charts, SQL, studies) are inside
the functions that need them.
"""

import os
import re
from collections.abc import Callable, Collection
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from emmclab import __version__
from emmclab.cli import failures
from emmclab.cli.command import add_commands, examples, summary
from emmclab.cli.console import print_stdout, stdout

#: Commands by panel of the help, in the order of the help. Each command is defined in the module of its name.
PANELS = {
    "Traces": (*("profile", "record", "top", "convert", "head", "formats", "synth", "fit", "journal", "fleet"),),
    "Devices": (
        *("simulate", "compare", "advise", "lifetime", "devices", "layers", "calibrate", "validate", "preset"),
        *("replay", "probe", "explain"),
    ),
    "Live": ("serve", "control", "crash", "durability"),
    "Applications": ("apps",),
    "Studies": ("run", "search", "collect", "query", "report"),
    "Papers": ("papers", "reproduce", "claims"),
}
COMMANDS = tuple(name for names in PANELS.values() for name in names)
#: Environment variable that the scripts of `--show-completion` set when a shell requests completion.
_COMPLETING = "_EMMCLAB_COMPLETE"
#: Matches the word after `--mend-clock` if it is a value of the option, valid or not, and not a file name.
_LENGTH = re.compile(r"auto|[-+]?[0-9]+(\.[0-9]+)?[A-Za-z]*")


def application(commands: Collection[str] = COMMANDS) -> TyperGroup:
    """Create the application with these commands."""
    app = _empty(completion=commands is COMMANDS or _COMPLETING in os.environ)
    add_commands(app, __name__, commands)
    group: Any = typer.main.get_command(app)
    return _in_panels(group)


def overview() -> TyperGroup:
    """Create the application for its help: all commands with their summaries, without importing them."""
    group: Any = typer.main.get_command(_empty(completion=True))
    group.commands = {name: TyperCommand(name, help=summary(__name__, name)) for name in COMMANDS}
    return _in_panels(group)


def _empty(*, completion: bool) -> typer.Typer:
    """Create the application without commands; if `completion` is set, it can install shell completion."""
    app = typer.Typer(
        name="emmclab",
        rich_markup_mode="rich",
        add_completion=completion,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(
        invoke_without_command=True,
        epilog=examples("emmclab profile --demo --html report.html", "emmclab profile trace.txt"),
    )(emmclab)
    return app


def _in_panels(group: TyperGroup) -> TyperGroup:
    """Order the commands, and assign each to its panel."""
    ordered = [(name, panel) for panel, names in PANELS.items() for name in names if name in group.commands]
    group.commands = {name: group.commands[name] for name, _ in ordered}
    for name, panel in ordered:
        command: Any = group.commands[name]
        command.rich_help_panel = panel
    return group


def emmclab(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    """A laboratory for the flash storage of phones and boards: record, characterise and simulate its I/O."""
    if version:
        print_stdout(f"emmclab {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        stdout().print(context.get_help(), end="", markup=False)


def application_for(words: list[str]) -> Callable[..., Any]:
    """Create the application for a command line.

    It contains only the command that the line names. Without a command, it contains the summaries of all commands.
    """
    if _COMPLETING in os.environ:
        words = _words_before()
    words = words[1:] if words[:1] == ["--"] else words
    if words == ["--version"]:
        return application([])
    return application(words[:1]) if words and words[0] in COMMANDS else overview()


def _words_before() -> list[str]:
    """Return the words before the word that a shell completes; the shell passes them in environment variables."""
    if "COMP_WORDS" in os.environ:
        return os.environ["COMP_WORDS"].split()[1 : int(os.environ["COMP_CWORD"])]
    line = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return line.split()[1:] if line.endswith(" ") else line.split()[1:-1]


def insert_default_values(words: list[str]) -> list[str]:
    """Insert the default value of `--mend-clock`, the only option with an optional value, if no value follows it.

    >>> insert_default_values(["profile", "--mend-clock", "trace.txt"])
    ['profile', '--mend-clock=auto', 'trace.txt']
    >>> insert_default_values(["profile", "trace.txt", "--mend-clock", "1h"])
    ['profile', 'trace.txt', '--mend-clock', '1h']
    """
    end = words.index("--") if "--" in words else len(words)
    following = [*words[1:end], "", *words[end + 1 :], ""]
    return [
        f"{word}=auto" if word == "--mend-clock" and position < end and not _LENGTH.fullmatch(next_word) else word
        for position, (word, next_word) in enumerate(zip(words, following, strict=False))
    ]


def main(words: list[str]) -> int:
    """Run the command line; return the exit code (see `failures`)."""
    return failures.run(application_for(words), insert_default_values(words))
