"""Options of the command line, made from the declarations of runs and of groups of options."""

import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints, is_typeddict

import typer
from typer.models import OptionInfo

from emmclab.cli import name_completion
from emmclab.cli.output_files import in_a_folder
from emmclab.runtime.option import Option, declarations
from emmclab.simulation.run_options import RUN_OPTIONS, check

#: Placeholders of values in the help, by type.
_PLACEHOLDERS: dict[type, str] = {int: "N", Path: "FILE"}
#: Begins the name of a flag that turns a field off.
_OFF = "no_"


def option(help_: str, panel: str | None = None, *names: str, advanced: bool = False, **more: Any) -> Any:
    """Make an option in a panel of the help; its default name is that of its parameter.

    Only `--help-all` shows an `advanced` one.
    """
    made = typer.Option(*names, help=help_, rich_help_panel=panel, **more)
    vars(made)["advanced"] = advanced
    return made


def argument(metavar: str, help_: str, **more: Any) -> Any:
    """Make an argument."""
    return typer.Argument(metavar=metavar, help=help_, **more)


def declared(name: str, among: Mapping[str, Option] = RUN_OPTIONS, **changes: Any) -> Any:
    """Make the option of the command line for an option of runs, which rejects values outside its range.

    Among other declarations, fields of one may be changed.
    """
    if among is not RUN_OPTIONS:
        return _made(dataclasses.replace(among[name], **changes))

    def in_range(value: Any) -> Any:
        check(name, value)
        return value

    one = RUN_OPTIONS[name]
    return _made(one, **({"callback": in_range} if one.range else {}) | changes)


def _made(one: Option, **more: Any) -> Any:
    """Make the option of the command line for a declaration."""
    if not isinstance(one.default, bool):
        more.setdefault("metavar", "|".join(one.words) or one.metavar)
    if one.writes or one.parse:
        more.setdefault("callback", one.parse or in_a_folder)
    words = one.words or one.completes
    if isinstance(words, str):
        more.setdefault("autocompletion", getattr(name_completion, words))
    elif words:
        more.setdefault("autocompletion", name_completion.complete_words(*words))
    if one.shown_default:
        more["show_default"] = one.shown_default
    return option(one.about, one.panel, one.command_line, advanced=one.advanced, **more)


Percentiles = Annotated[str | None, declared("percentiles")]
Perfetto = Annotated[Path | None, declared("perfetto")]


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Expand parameters that are groups of options into one option for each field that commands have.

    The command has the names of its advanced options as its attribute `advanced`.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        if is_group(hints[name]):
            groups[name] = hints[name]
            parameters += group_parameters(hints[name])
        else:
            parameters.append(parameter.replace(annotation=hints[name]))
    parameters = [_completed(one).replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            names = [parameter.name for parameter in group_parameters(group)]
            given[name] = filled(group, {one: given.pop(one) for one in names})
        command(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.advanced = {one.name for one in parameters if _is_advanced(one)}  # type: ignore[attr-defined]
    return run


def is_group(hint: Any) -> bool:
    """Return whether a type is a group of options."""
    return dataclasses.is_dataclass(hint) or is_typeddict(hint)


def filled(group: type, given: Mapping[str, Any], base: Any = None) -> Any:
    """Make a group from the parameters of a command; fields that are not given have the value in `base`."""
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(group, include_extras=True).items():
        if is_group(hint):
            fields[name] = filled(hint, given, None if base is None else getattr(base, name))
        elif name in given:
            fields[name] = given[name]
        elif f"{_OFF}{name}" in given:
            fields[name] = not given[f"{_OFF}{name}"]
    if is_typeddict(group):
        return {**(base or {}), **fields}
    return group(**fields) if base is None else dataclasses.replace(base, **fields)


def group_parameters(group: type) -> Iterator[inspect.Parameter]:
    """Yield a parameter for each field that commands have, of a group and the groups in it."""
    kind = inspect.Parameter.KEYWORD_ONLY
    declared_here = declarations(group)
    fields = {one.name: one for one in dataclasses.fields(group)} if dataclasses.is_dataclass(group) else {}
    for name, hint in get_type_hints(group, include_extras=True).items():
        one = declared_here.get(name)
        if is_group(hint):
            yield from group_parameters(hint)
            continue
        if one is None:
            if get_args(hint) and isinstance(get_args(hint)[-1], typer.models.ParameterInfo):
                made = fields[name].default_factory
                default = fields[name].default if made is dataclasses.MISSING else made()
                yield inspect.Parameter(name, kind, default=default, annotation=hint)
            continue
        if one.option is None:
            continue
        if one.command_default is not ...:
            one = dataclasses.replace(one, default=one.command_default)
        if one.command_line.startswith("--no-"):
            name, one = f"{_OFF}{name}", dataclasses.replace(one, default=not one.default)
        limits = {"min": one.least, "max": one.most}
        made = _made(one, **{key: value for key, value in limits.items() if value is not None})
        default = list(one.default) if isinstance(one.default, tuple) else one.default
        annotation = Annotated[_on_command_line(get_args(hint)[0], one), made]  # type: ignore[valid-type]
        yield inspect.Parameter(name, kind, default=default, annotation=annotation)


def _on_command_line(hint: Any, one: Option) -> Any:
    """Return the type of an option on the command line, where an object is given by its name."""
    kinds = get_args(hint) or (hint,)
    if one.parse is None and (get_origin(hint) is Sequence or one.takes_names):
        return list[str]
    on_command_line: Any = str if one.parse is not None or str in kinds else kinds[0]
    if any(kind is Path or get_origin(kind) is PathLike for kind in kinds):
        on_command_line = Path
    return on_command_line | None if one.default is None else on_command_line


def _completed(parameter: inspect.Parameter) -> inspect.Parameter:
    """Give a flag its only name, as Typer would add another that turns it off, and numbers a placeholder."""
    kind, made = [*get_args(parameter.annotation), None, None][:2]
    if not isinstance(made, OptionInfo):
        return parameter
    made = copy.copy(made)
    if kind is bool and not made.param_decls and made.default is ...:
        made.default = f"--{parameter.name.replace('_', '-')}"
    kinds = get_args(kind) or (kind,)
    made.metavar = made.metavar or next((text for one, text in _PLACEHOLDERS.items() if one in kinds), None)
    return parameter.replace(annotation=Annotated[kind, made])


def _is_advanced(parameter: inspect.Parameter) -> bool:
    return any(
        isinstance(one, OptionInfo) and vars(one).get("advanced", False) for one in get_args(parameter.annotation)
    )
