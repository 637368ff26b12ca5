"""Registers the commands of modules in groups, and reads summaries for lists without importing modules."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from types import CodeType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from emmclab.cli.command import Command
from emmclab.cli.help_format import paragraphs


class ListsByDefault(TyperGroup):
    """A group that runs its command `list` if no command is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `list` unless a command is named, or help or completion is requested."""
        names_none = not args or (args[0].startswith("-") and args[0] not in ("--help", "-h"))
        if names_none and not ctx.resilient_parsing:
            args = ["list", *args]
        return super().parse_args(ctx, args)


def add_group(app: typer.Typer, package: str, names: Iterable[str], about: Callable[[], None], epilog: str) -> None:
    """Add a package of commands as a group; the function `about` provides its name and help text."""
    group = typer.Typer(cls=ListsByDefault, epilog=epilog)
    group.callback(help=paragraphs(about))(about)
    add_commands(group, package, names)
    app.add_typer(group, name=about.__name__)


def add_commands(app: typer.Typer, package: str, names: Iterable[str]) -> None:
    """Add the commands that the modules of a package register; a module has the name of its command."""
    for name in names:
        import_module(f"{package}.{name}").register(app)
    for command in app.registered_commands:
        # The overview has no commands, and declarations of options take long to import.
        from emmclab.cli.declared_options import with_groups

        command.cls = Command
        if command.callback is not None:
            command.help = paragraphs(command.callback)
            command.callback = with_groups(command.callback)


def walk_commands(group: TyperGroup, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the commands of a group and of its subgroups, each with its words on the command line."""
    for name, command in group.commands.items():
        words = f"{above} {name}".lstrip()
        yield words, command
        if isinstance(command, TyperGroup):
            yield from walk_commands(command, words)


def placeholder_command(package: str, name: str) -> TyperCommand:
    """Return a placeholder of a command for lists: its name and summary, without options."""
    return TyperCommand(name, help=summary(package, name))


def summary(package: str, name: str) -> str:
    """Return the first paragraph of the docstring of a command, from its compiled module, which does not run.

    >>> summary("emmclab.cli", "head")
    'Show the first requests, in order of arrival, with units.'
    """
    spec = find_spec(f"{package}.{name}")
    code = spec.loader.get_code(spec.name) if spec is not None and spec.loader is not None else None  # type: ignore[attr-defined]
    for constant in code.co_consts if code is not None else ():
        if isinstance(constant, CodeType) and constant.co_name == name:
            text = inspect.cleandoc(str(constant.co_consts[0]))
            return " ".join(text.partition("\n\n")[0].split())
    return ""
