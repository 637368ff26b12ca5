"""Declarations of options: each option is declared once, at the field of its group.

A group of options is a frozen dataclass or a `TypedDict` whose fields are annotated with an `Option`. Functions accept
the group; the options of commands (`cli.options`) and docstrings are generated from it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_type_hints

from emmclab.runtime.lists import Names, several


@dataclass(frozen=True)
class Option:
    """Declaration of an option; it annotates a field, whose type is the type of the option.

    Attributes:
        default: the default value; `...` for the default of the field in a dataclass.
        about: one or two sentences on what the option does, with its unit.
        name: the name in Python and in studies, which `declarations` adds.
        words: the allowed values, if they are words.
        least: the minimum value.
        most: the maximum value.
        bits: the size of an integer in the Rust core, which limits the value if there is no `most`.
        option: the name on the command line (`--no-NAME` turns the field off); empty: same as `name`; None: no command
            has it.
        command_default: the default value of commands, if it differs; otherwise `...`.
        metavar: the placeholder of the value in the help of commands.
        panel: the panel in the help of commands.
        advanced: whether only `--help-all` shows it.
        completes: the words that a shell completes, or the name of their list in `cli.name_completion`.
        shown_default: the default in words, for the help.
        parse: converts the text on the command line to the value.
        writes: whether the value is the path of an output file, whose folder must exist.
        takes_names: whether the value is a list of names, where a text is one name; `declarations` sets it for the type
            `Names`.
        stored: when results and study cells contain this option of a run. `always`; `results`: always in results, in
            cells if it is set; `set`: if it differs from its default; `layers`: if there are layers; `never`: not at
            all, because it does not change the run.
    """

    default: Any
    about: str
    name: str = ""
    words: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    bits: int = 64
    option: str | None = ""
    command_default: Any = ...
    metavar: str | None = None
    panel: str | None = "Replay"
    advanced: bool = False
    completes: str | tuple[str, ...] = ()
    shown_default: str | None = None
    parse: Callable[[str], Any] | None = None
    writes: bool = False
    takes_names: bool = False
    stored: Literal["always", "results", "set", "layers", "never"] = "set"

    @property
    def command_line(self) -> str:
        """The name on the command line; empty if no command has the option.

        >>> Option(False, "", "wrap_addresses").command_line, Option((), "", option="--layer").command_line
        ('--wrap-addresses', '--layer')
        """
        if self.option is None:
            return ""
        return self.option or f"--{self.name.replace('_', '-')}"

    @property
    def range(self) -> str:
        """The allowed values as text; empty if only the type limits them.

        >>> Option(1.0, "", least=1e-6, most=1e6).range, Option(1, "", least=1).range
        ('0.000001 to 1000000', '1 or more')
        """
        if self.words:
            return ", ".join(self.words)
        if self.least is None:
            return ""
        least = f"{self.least:f}".rstrip("0").rstrip(".")
        return f"{least} or more" if self.most is None else f"{least} to {self.most:.0f}"


def declarations(group: type, **names: Any) -> dict[str, Option]:
    """Return the options declared in a group, by name.

    `names` are the types that the group's module imports only for type checks.
    """
    hints = get_type_hints(group, localns=names, include_extras=True)
    options = {}
    for name, hint in hints.items():
        kind, *notes = get_args(hint) or (hint,)
        for option in notes:
            if isinstance(option, Option):
                default = getattr(group, name, None) if option.default is ... else option.default
                options[name] = replace(option, name=name, default=default, takes_names=kind == Names)
    return options


def attributes(group: Mapping[str, Option]) -> str:
    """Return the section `Attributes` for the docstring of a group, with a line for each option."""
    lines = (f"    {name}: {option.about} Default: {option.default!r}." for name, option in group.items())
    return "\n".join(["Attributes:", *lines])


def complete(declared: Mapping[str, Option], values: Mapping[str, Any], subject: str) -> dict[str, Any]:
    """Return the values of all declared options: those in `values`, and the defaults of all others.

    The values of options that take names become lists.
    """
    if unknown := sorted(values.keys() - declared.keys()):
        raise TypeError(f"there is no option {unknown[0]!r} of {subject}; the options are: {', '.join(declared)}")
    completed = {name: values.get(name, option.default) for name, option in declared.items()}
    return {name: several(value) if declared[name].takes_names else value for name, value in completed.items()}
