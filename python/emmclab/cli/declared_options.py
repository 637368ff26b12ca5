"""Generates command-line options from the declared options of runs and of option groups."""

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
#: Prefix of the name of a flag that turns a field off.
_OFF = "no_"


def option(help_: str, panel: str | None = None, *names: str, advanced: bool = False, **more: Any) -> Any:
    """Create an option in a panel of the help; its default name is that of its parameter.

    Only `--help-all` shows an `advanced` option.
    """
    option_info = typer.Option(*names, help=help_, rich_help_panel=panel, **more)
    vars(option_info)["advanced"] = advanced
    return option_info


def argument(metavar: str, help_: str, **more: Any) -> Any:
    """Create an argument."""
    return typer.Argument(metavar=metavar, help=help_, **more)


def declared(name: str, among: Mapping[str, Option] = RUN_OPTIONS, **changes: Any) -> Any:
    """Create a command-line option from its declaration; options in `RUN_OPTIONS` also check their range.

    `changes` are fields of `typer.Option` or, if `among` is given, fields of the declaration.
    """
    if among is not RUN_OPTIONS:
        return _created(dataclasses.replace(among[name], **changes))

    def in_range(value: Any) -> Any:
        check(name, value)
        return value

    declaration = RUN_OPTIONS[name]
    return _created(declaration, **({"callback": in_range} if declaration.range else {}) | changes)


def _created(declaration: Option, **more: Any) -> Any:
    """Create a command-line option from its declaration."""
    if not isinstance(declaration.default, bool):
        more.setdefault("metavar", "|".join(declaration.words) or declaration.metavar)
    if declaration.writes or declaration.parse:
        more.setdefault("callback", declaration.parse or in_a_folder)
    words = declaration.words or declaration.completes
    if isinstance(words, str):
        more.setdefault("autocompletion", getattr(name_completion, words))
    elif words:
        more.setdefault("autocompletion", name_completion.complete_words(*words))
    if declaration.shown_default:
        more["show_default"] = declaration.shown_default
    return option(declaration.about, declaration.panel, declaration.command_line, advanced=declaration.advanced, **more)


Percentiles = Annotated[str | None, declared("percentiles")]
Perfetto = Annotated[Path | None, declared("perfetto")]


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is a group of options by the options of this group.

    The attribute `advanced` of the returned command contains the names of its advanced options.
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
    parameters = [_completed(parameter).replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            names = [parameter.name for parameter in group_parameters(group)]
            values[name] = filled(group, {field: values.pop(field) for field in names})
        command(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.advanced = {parameter.name for parameter in parameters if _is_advanced(parameter)}  # type: ignore[attr-defined]
    return run


def is_group(hint: Any) -> bool:
    """Return whether a type hint is a group of options."""
    return dataclasses.is_dataclass(hint) or is_typeddict(hint)


def filled(group: type, values: Mapping[str, Any], base: Any = None) -> Any:
    """Create a group of options from parameter values; fields without a value are copied from `base`."""
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(group, include_extras=True).items():
        if is_group(hint):
            fields[name] = filled(hint, values, None if base is None else getattr(base, name))
        elif name in values:
            fields[name] = values[name]
        elif f"{_OFF}{name}" in values:
            fields[name] = not values[f"{_OFF}{name}"]
    if is_typeddict(group):
        return {**(base or {}), **fields}
    return group(**fields) if base is None else dataclasses.replace(base, **fields)


def group_parameters(group: type) -> Iterator[inspect.Parameter]:
    """Yield a command parameter for each option in a group of options, also for those of nested groups."""
    kind = inspect.Parameter.KEYWORD_ONLY
    declared_here = declarations(group)
    fields = {field.name: field for field in dataclasses.fields(group)} if dataclasses.is_dataclass(group) else {}
    for name, hint in get_type_hints(group, include_extras=True).items():
        declaration = declared_here.get(name)
        if is_group(hint):
            yield from group_parameters(hint)
            continue
        if declaration is None:
            if get_args(hint) and isinstance(get_args(hint)[-1], typer.models.ParameterInfo):
                factory = fields[name].default_factory
                default = fields[name].default if factory is dataclasses.MISSING else factory()
                yield inspect.Parameter(name, kind, default=default, annotation=hint)
            continue
        if declaration.option is None:
            continue
        if declaration.command_default is not ...:
            declaration = dataclasses.replace(declaration, default=declaration.command_default)
        if declaration.command_line.startswith("--no-"):
            name, declaration = f"{_OFF}{name}", dataclasses.replace(declaration, default=not declaration.default)
        limits = {"min": declaration.least, "max": declaration.most}
        option_info = _created(declaration, **{key: value for key, value in limits.items() if value is not None})
        default = list(declaration.default) if isinstance(declaration.default, tuple) else declaration.default
        annotation = Annotated[_on_command_line(get_args(hint)[0], declaration), option_info]  # type: ignore[valid-type]
        yield inspect.Parameter(name, kind, default=default, annotation=annotation)


def _on_command_line(hint: Any, declaration: Option) -> Any:
    """Return the type of a command-line option; options that accept objects in Python accept their names here."""
    kinds = get_args(hint) or (hint,)
    if declaration.parse is None and (get_origin(hint) is Sequence or declaration.takes_names):
        return list[str]
    on_command_line: Any = str if declaration.parse is not None or str in kinds else kinds[0]
    if any(kind is Path or get_origin(kind) is PathLike for kind in kinds):
        on_command_line = Path
    return on_command_line | None if declaration.default is None else on_command_line


def _completed(parameter: inspect.Parameter) -> inspect.Parameter:
    """Name a flag so that Typer adds no `--no-` form, and set the placeholders of numbers and files in the help."""
    kind, option_info = [*get_args(parameter.annotation), None, None][:2]
    if not isinstance(option_info, OptionInfo):
        return parameter
    option_info = copy.copy(option_info)
    if kind is bool and not option_info.param_decls and option_info.default is ...:
        option_info.default = f"--{parameter.name.replace('_', '-')}"
    kinds = get_args(kind) or (kind,)
    option_info.metavar = option_info.metavar or next(
        (text for value_type, text in _PLACEHOLDERS.items() if value_type in kinds), None
    )
    return parameter.replace(annotation=Annotated[kind, option_info])


def _is_advanced(parameter: inspect.Parameter) -> bool:
    return any(
        isinstance(part, OptionInfo) and vars(part).get("advanced", False) for part in get_args(parameter.annotation)
    )
