"""Registers commands by module, and reads their summaries without importing the modules."""

import inspect
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from types import CodeType
from typing import Any

import typer
from typer.core import TyperGroup

from emmclab.cli.command import Command


class ListsByDefault(TyperGroup):
    """A group that runs its command `list` if the command line contains no command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `list` if the arguments contain no command, unless help or completion is requested."""
        has_no_command = not args or (args[0].startswith("-") and args[0] not in ("--help", "-h"))
        if has_no_command and not ctx.resilient_parsing:
            args = ["list", *args]
        return super().parse_args(ctx, args)


def add_commands(app: typer.Typer, package: str, names: Iterable[str]) -> None:
    """Add the commands in these modules of a package; a module that defines `MODULES` is a group of commands."""
    for name in names:
        # Imported here because the import is slow, and the overview of commands does not need it.
        from emmclab.cli.declared_options import with_groups

        module = import_module(f"{package}.{name}")
        functions = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
        for function in functions:
            settings = getattr(function, "command", None)
            if isinstance(settings, dict) and hasattr(module, "MODULES"):
                group = typer.Typer(cls=ListsByDefault, epilog=settings["epilog"])
                group.callback(help=settings["help"])(function)
                add_commands(group, module.__name__, module.MODULES)
                app.add_typer(group, name=name)
            elif isinstance(settings, dict):
                app.command(cls=Command, **settings)(with_groups(function))


def walk_commands(group: TyperGroup, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the commands of a group and of its subgroups, each with its full name, such as `apps run`."""
    for name, command in group.commands.items():
        full_name = f"{prefix} {name}".lstrip()
        yield full_name, command
        if isinstance(command, TyperGroup):
            yield from walk_commands(command, full_name)


def summary(package: str, name: str) -> str:
    """Return the first paragraph of a command's docstring, without running the module that contains it.

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
