"""What shells complete: the commands with their parameters, and what a value of each may be."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import typer

#: Metavars of values that are folders, and those of values that are files though they are kept as text.
_FOLDERS = {"DIR", "FOLDER"}
_FILES = {"FILE", "TRACE", "DEVICE", "HOST", "STUDY", "IMAGE", "SOCKET", "CMD", "RESULTS"}


@dataclass(frozen=True)
class Value:
    """What completes a value: words, or names of files or folders, or both; else nothing does."""

    name: str
    words: tuple[str, ...] = ()
    files: bool = False
    folders: bool = False
    #: Several of them, with commas between.
    listed: bool = False


@dataclass(frozen=True)
class Parameter:
    """An option, or without names an argument; a flag has no value."""

    names: tuple[str, ...]
    about: str
    value: Value | None = None
    repeated: bool = False


@dataclass(frozen=True)
class Command:
    """A command with its parameters."""

    name: str
    about: str
    options: tuple[Parameter, ...]
    arguments: tuple[Parameter, ...]


#: Options of every command.
HELP = Parameter(("-h", "--help"), "Show this message and exit.")
#: Options of no command.
GLOBAL = (
    HELP,
    Parameter(("--version",), "Print the version and stop."),
    Parameter(
        ("--show-completion",),
        "Print the completion script of a shell.",
        Value("shell", words=("bash", "zsh", "fish")),
    ),
)


def commands() -> list[Command]:
    """Give all commands in the order of the help."""
    from emmclab.cli import application

    group: Any = typer.main.get_command(application())
    return [_command(name, command) for name, command in group.commands.items()]


def _command(name: str, command: Any) -> Command:
    context = typer.Context(command, info_name=name)
    seen = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    options = tuple(_parameter(one, context) for one in seen if one.param_type_name == "option")
    arguments = tuple(_parameter(one, context) for one in seen if one.param_type_name == "argument")
    return Command(name, first_sentence(command.help), (*options, HELP), arguments)


def _parameter(parameter: Any, context: typer.Context) -> Parameter:
    is_option = parameter.param_type_name == "option"
    names = (*parameter.opts, *parameter.secondary_opts) if is_option else ()
    is_flag = is_option and parameter.is_flag
    value = None if is_flag else _value(parameter, context)
    repeated = bool(getattr(parameter, "multiple", False)) or parameter.nargs == -1
    return Parameter(names, first_sentence(parameter.help or ""), value, repeated)


def _value(parameter: Any, context: typer.Context) -> Value:
    metavar = parameter.metavar or parameter.name.upper()
    kinds = {*re.findall(r"[A-Z]+", metavar)}
    offered = [item.value for item in parameter.shell_complete(context, "") if item.type == "plain"]
    # As `open|closed`, and of `[list|show] [NAME]...` the first part.
    alternatives = metavar.split(" ")[0].strip("[]").split("|")
    chosen = [
        word for word in alternatives if len(alternatives) > 1 and re.fullmatch(r"[a-z][a-z0-9_]*", word)
    ]
    folders = bool(kinds & _FOLDERS)
    is_path = getattr(parameter.type, "name", "") == "path"
    return Value(
        name=metavar,
        words=tuple(dict.fromkeys([*chosen, *offered])),
        files=bool(kinds & _FILES) or (is_path and not folders),
        folders=folders,
        listed=metavar.endswith(",..."),
    )


def first_sentence(text: str) -> str:
    r"""Give the first sentence of a help text, on one line, without its full stop.

    >>> first_sentence("Window of time. With a unit,\\nas 1s.")
    'Window of time'
    """
    line = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[a-z)`])\.(?: |$)", line)[0].rstrip(".")
