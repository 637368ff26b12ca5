"""Declarations of options: each option is declared once, at the field of its group.

A group of options is a frozen dataclass or a `TypedDict` whose fields are annotated with an `Option`. Functions accept
the group, commands make their options of it (`cli.declared_options`), and docstrings describe it from here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_type_hints

from emmclab.runtime.lists import Names, several


@dataclass(frozen=True)
class Option:
    """Declaration of an option, besides its name and type.

    Attributes:
        default: its value if it is not given; `...` for that of its field in a dataclass.
        about: one or two sentences on what it does, with its unit.
        name: its name in Python and in studies, which `declarations` adds.
        words: the allowed values, if they are words.
        least: the minimum value.
        most: the maximum value.
        bits: the size of a whole number in the core, which limits it if there is no `most`.
        option: its name on the command line; empty for its own name, None if no command has it. `--no-NAME`
            turns the field off.
        command_default: its value if it is not given to a command; `...` for the default.
        metavar: the placeholder of the value in the help of the command line.
        panel: the panel of the help of commands.
        advanced: whether only `--help-all` shows it.
        completes: the words that a shell completes, or their name in `cli.name_completion`.
        shown_default: the default in words, for the help.
        parse: converts the text of the command line.
        writes: whether it is an output file, whose folder must exist.
        takes_names: whether it is a list of names, where a text is one name; `declarations` sets it for the
            type `Names`.
        stored: of an option of a run, when results and cells of studies repeat it: `always`; `results`
            always, and cells if it is set; `set` if it differs from its default; with `layers`; or `never`,
            because it does not change the run.
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
        """Its name on the command line; empty if no command has it.

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
    """Return the declarations of a group by name; `names` has types that are imported only for checks."""
    hints = get_type_hints(group, localns=names, include_extras=True)
    found = {}
    for name, hint in hints.items():
        kind, *notes = get_args(hint) or (hint,)
        for option in notes:
            if isinstance(option, Option):
                default = getattr(group, name, None) if option.default is ... else option.default
                found[name] = replace(option, name=name, default=default, takes_names=kind == Names)
    return found


def attributes(group: Mapping[str, Option]) -> str:
    """Return the section of a docstring that describes options."""
    lines = (f"    {name}: {one.about} Default: {one.default!r}." for name, one in group.items())
    return "\n".join(["Attributes:", *lines])


def complete(declared: Mapping[str, Option], given: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return all options; those that are not given have their defaults, and names are lists."""
    if unknown := sorted(given.keys() - declared.keys()):
        raise TypeError(f"there is no option {unknown[0]!r} of {what}; there are: {', '.join(declared)}")
    values = {name: given.get(name, one.default) for name, one in declared.items()}
    return {name: several(value) if declared[name].takes_names else value for name, value in values.items()}
