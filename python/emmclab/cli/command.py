"""The class of all commands, which rejects command-line options without effect and formats the help, and their groups.

Commands are registered by module; their summaries are read without importing the modules.
"""

import copy
import inspect
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from types import CodeType
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from emmclab.errors import ConfigError

#: Hint that is printed if several devices are given where a single device is expected.
COMPARE_DEVICES = "to replay a trace on several devices: `emmclab compare TRACE --devices {}`"

#: Largest integer value of an option; the core stores it in 64 bits.
_MOST_NUMBER = (1 << 64) - 1
#: Options of a command, each with a list of other options: those that it needs, or the only ones with which it can be
#: combined.
_Others = dict[str, tuple[str, ...]]
_BINNED: _Others = {"--bin": ("--over-time", "--html")}
_REMOTE: _Others = {"--ssh-option": ("--ssh",)}
#: Maps each command to options that have no effect unless at least one of the listed options is also given.
NEEDS: dict[str, _Others] = {
    "profile": {"--bin": ("--over-time", "--html", "--figures", "--json"), "--seed": ("--against",)},
    "record": _REMOTE,
    "top": _REMOTE,
    "simulate": _BINNED,
    "compare": _BINNED,
    "devices": {"--figures": ("--check",), "--assume": ("--figures",), "--fio-host": ("--check",)},
    "advise": {"--budget": ("--deep",), "--results": ("--deep",)},
    "lifetime": {"--like": ("--ext-csd", "--ufs", "--registers"), "--host": ("--app",)},
    "probe": {"--yes": ("--write",)},
    "explain": {"--images": ("--trace", "--one-at-a-time")},
    "serve": {
        "--mkfs-option": ("--mkfs",),
        "--overwrite": ("--mkfs",),
        "--mount-options": ("--mount",),
        "--image2": ("--device2",),
    },
    "crash": {
        "--base": ("--log",),
        "--save-image": ("--again",),
        **dict.fromkeys(("--faults", "--flips", "--remade"), ("--model",)),
    },
}
_STATES_BEFORE = (("--used", "--precondition"),)
_MACHINES = (("--ssh", "--adb"), ("--ssh", "--serial"))
#: Options of `crash` about the device and its file system, which --model replaces.
_OF_DEVICE = ("--device", "--device2", "--layer", "--set", "--capacity", "--fs", "--mkfs-option", "--mount-options")
#: Options of `crash` that describe how a log is recorded; --log excludes them, because its log already exists.
_OF_RECORDING = (*_OF_DEVICE, "--operations", "--timeout")
#: Pairs of options that exclude each other, by command.
EXCLUSIVE: dict[str, tuple[tuple[str, str], ...]] = {
    **dict.fromkeys(("simulate", "compare", "serve"), _STATES_BEFORE),
    "advise": (*_STATES_BEFORE, ("--new", "--precondition"), ("--new", "--used")),
    "lifetime": (
        *(("--ext-csd", other) for other in ("--ufs", "--device", "--used")),
        *(("--ufs", other) for other in ("--device", "--used")),
        ("--used", "--filled"),
        ("--health", "--used"),
        *(("--app", other) for other in ("--pattern", "--size", "--span", "--over", "--disk", "--flush-every")),
        *(
            ("--registers", other)
            for other in ("--ext-csd", "--ufs", "--health", "--device", "--used", "--over", "--disk", "--html")
        ),
        *(("--registers", other) for other in ("--changes", "--app")),
    ),
    **dict.fromkeys((f"apps {name}" for name in ("run", "compare", "solutions", "live")), _STATES_BEFORE),
    **dict.fromkeys(("record", "top"), _MACHINES),
    "profile": (("--fsync", "--compare"), ("--fsync", "--against")),
    "fleet": (("--by", "--against"),),
    "run": tuple(itertools.combinations(("--shard", "--cell", "--estimate", "--fresh"), 2)),
    "query": (("--study", "--trace"), ("--csv", "--json")),
    "crash": (
        *(("--against", other) for other in ("--save-log", "--save-dm-log", "--html", "--junit", "--sarif")),
        *(("--against", other) for other in ("--bundle", "--for")),
        *(("--log", other) for other in _OF_RECORDING),
        *(("--model", other) for other in (*_OF_DEVICE, "--guest", "--recovery", "--recovery-cuts", "--repeat")),
        ("--model", "--save-dm-log"),
        ("--model", "--bundle"),
    ),
}
#: Maps each command to options that can be combined only with the listed options.
ALONE: dict[str, _Others] = {
    "explain": dict.fromkeys(("--glossary", "--health", "--read-health"), ("--json",)),
    "serve": {"--recover-only": ("--layer", "--set", "--capacity", "--device2", "--image", "--image2")},
    "crash": {"--again": ("--save-image", "--results", "--html", "--json", "--bundle", "--minimize-for")},
}


_Function = TypeVar("_Function", bound=Callable[..., None])

#: Matches the space between two sentences.
_SENTENCE_END = re.compile(r"(?<=\.)\s+(?=[A-Z`-])")
#: Name of the help panel with the options on how to read a trace; also a topic of `emmclab explain`.
READING_PANEL = "Reading"


def command(*lines: str, **settings: Any) -> Callable[[_Function], _Function]:
    """Turn a function into a command with examples (`lines`) in its help; `settings` go to `Typer.command`."""

    def mark(function: _Function) -> _Function:
        vars(function)["command"] = {"epilog": examples(*lines), "help": paragraphs(function), **settings}
        return function

    return mark


def examples(*commands: str) -> str:
    r"""Return the examples of a help text: command lines, each with an optional purpose after ` # `.

    >>> examples("emmclab head trace.txt", "emmclab head - # of stdin").split("\n\n")
    ['Examples:', '[cyan]emmclab head trace.txt[/]', '[cyan]emmclab head -[/] # of stdin']
    """
    lines = []
    for command in commands:
        line, mark, purpose = command.partition(" # ")
        lines.append(f"[cyan]{line}[/]{mark}{purpose}")
    return "\n\n".join(["Example:" if len(lines) == 1 else "Examples:", *lines])


def paragraphs(command: Callable[..., Any]) -> str:
    r"""Return the docstring of a command with one line for each paragraph; the help wraps them.

    >>> def head() -> None:
    ...     '''Show requests.
    ...
    ...     In order
    ...     of arrival.
    ...     '''
    >>> paragraphs(head)
    'Show requests.\n\nIn order of arrival.'
    """
    text = inspect.getdoc(command) or ""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


class Command(TyperCommand):
    """A command that rejects options without effect, and repeated options that accept a single value.

    Its help leaves out advanced options, which `--help-all` shows.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with the options for help."""
        help_all = TyperOption(
            param_decls=["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=self._show_everything,
            hidden=not self._advanced,
            help="Show all options and examples, and exit.",
        )
        return [*super().get_params(ctx), help_all]

    @property
    def _advanced(self) -> frozenset[str]:
        """The names of the parameters that only `--help-all` shows."""
        return getattr(self.callback, "advanced", frozenset())

    def _show_everything(self, ctx: Any, _option: Any, is_requested: bool) -> None:
        if is_requested and not ctx.resilient_parsing:
            super().format_help(ctx, ctx.make_formatter())
            raise typer.Exit

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help: what the command does, an example, and all options that are not advanced."""
        short: Any = copy.copy(self)
        short.params = [_briefly(parameter) for parameter in self.params if parameter.name not in self._advanced]
        text, examples = self.help or "", (self.epilog or "").replace("\n\n", "\n")
        if self._advanced:
            text, examples = text.partition("\n\n")[0], "Example: " + "".join(examples.split("\n")[1:2])
        short.help, short.epilog = f"{text}\n\n{examples}", self._further()
        super(Command, short).format_help(ctx, formatter)

    def _further(self) -> str:
        """Return a line of text on how to show the advanced options; empty if there are none."""
        if not self._advanced:
            return ""
        panels = {
            getattr(parameter, "rich_help_panel", None) for parameter in self.params if parameter.name in self._advanced
        }
        reading = "; how to read a trace: [cyan]emmclab explain reading[/]" if READING_PANEL in panels else ""
        return f"More options and examples: [cyan]--help-all[/]{reading}"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; first reject repeated options, of which the parser would use only the last value."""
        if not ctx.resilient_parsing:
            self._check(ctx, list(args))
        remaining = super().parse_args(ctx, args)
        for name, value in ctx.params.items():
            if isinstance(value, int) and not -_MOST_NUMBER <= value <= _MOST_NUMBER:
                option = next(parameter.opts[0] for parameter in self.params if parameter.name == name)
                raise ConfigError(
                    f"{option} cannot be {value}", field=option, hint=f"give a number of at most {_MOST_NUMBER}"
                )
        return remaining

    def _check(self, ctx: Any, args: list[str]) -> None:
        parser: Any = self.make_parser(ctx)
        collecting = {"store": "append", "store_const": "append_const"}
        for option in (*parser._long_opt.values(), *parser._short_opt.values()):
            option.action = collecting.get(option.action, option.action)
        values, _, order = parser.parse_args(args)
        if self.get_help_option(ctx) in order:
            return
        options = [option for option in dict.fromkeys(order) if option.param_type_name == "option"]
        for option in options:
            if not option.multiple:
                self._refuse_repeated(option, values[option.name])
        _, _, name = ctx.command_path.partition(" ")
        # Name a flag that is set to False by its negative form (`--no-...`).
        names = ((option.secondary_opts if values[option.name][-1] is False else option.opts) for option in options)
        refuse_ineffective(name, [name[0] for name in names])

    def _refuse_repeated(self, option: Any, values: list[Any]) -> None:
        """Reject an option that is given with two values, or a flag that is given both as `--x` and `--no-x`."""
        if len(set(values) if option.is_flag else values) < 2:
            return
        name, listed = option.opts[-1], ",".join(map(str, values))
        message = f"{name} was given {len(values)} times, and {self.name} takes one value"
        hint = f"leave out all but one of: {', '.join(map(str, values))}"
        if option.is_flag:
            message = f"{name} and {option.secondary_opts[0]} exclude each other"
            hint = "give one of the two"
        elif (option.metavar or "").endswith(",..."):
            message, hint = f"{name} was given {len(values)} times", f"give one list: `{name} {listed}`"
        elif "--devices" in option.opts:
            name, hint = "--device", COMPARE_DEVICES.format(listed)
        raise ConfigError(message, field=name, hint=hint)


def _briefly(parameter: Any) -> Any:
    """Return a copy of a parameter with only the first sentence of its help."""
    brief = copy.copy(parameter)
    brief.help = _SENTENCE_END.split(parameter.help or "", maxsplit=1)[0]
    return brief


def refuse_ineffective(command: str, options: Collection[str]) -> None:
    """Reject options that have no effect with this command, because another option is present or missing.

    >>> refuse_ineffective("advise", ["--budget"])
    Traceback (most recent call last):
    ...
    emmclab.errors.ConfigError: --budget has no effect without --deep
    """
    for option, others in NEEDS.get(command, {}).items():
        if option in options and not any(other in options for other in others):
            names = " or ".join(others)
            raise _ineffective(option, f"has no effect without {names}", f"give {names} as well, or leave it out")
    for option, allowed in ALONE.get(command, {}).items():
        further = [other for other in options if other not in (option, *allowed)]
        if option in options and further:
            raise _ineffective(further[0], f"has no effect with {option}", "leave out one of them")
    for option, other in EXCLUSIVE.get(command, ()):
        if option in options and other in options:
            raise _ineffective(option, f"and {other} exclude each other", "give one of the two")


def _ineffective(option: str, problem: str, hint: str) -> ConfigError:
    return ConfigError(f"{option} {problem}", field=option, hint=hint)


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
        from emmclab.cli.options import with_groups

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
