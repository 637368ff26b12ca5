"""Command-line options: those generated from the declared options of runs and of groups, and those of many commands."""

import copy
import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints, is_typeddict

import typer
from typer.models import OptionInfo

from emmclab.cli import name_completion
from emmclab.cli.command import READING_PANEL
from emmclab.cli.console import in_a_folder, print_stderr
from emmclab.cli.name_completion import complete_words, format_names
from emmclab.errors import ConfigError
from emmclab.runtime.lists import split_names
from emmclab.runtime.option import Option, declarations
from emmclab.simulation.run_options import RUN_OPTIONS, check
from emmclab.traces.profile_fields import jumps_text
from emmclab.traces.profile_options import bin_ns
from emmclab.traces.reading import or_bundled, read, reading_options
from emmclab.traces.trace import Trace

if TYPE_CHECKING:
    from emmclab.simulation.result import Result
    from emmclab.traces.profile import Profile


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


#: Creates a command-line option on how to read a trace.
_reading = partial(option, panel=READING_PANEL, advanced=True)
TraceFile = Annotated[Path, argument("TRACE", "A trace of any format, plain, gzip, bzip2, zstd or xz; `-` for stdin.")]
#: Matches the name of a per-processor file of blktrace: the name of the recording, and the number of the processor.
_PROCESSOR = re.compile(r"(?P<recording>.+)\.blktrace\.\d+(\.(gz|zst|zstd|xz))?")


def stands_for_several(path: Path) -> bool:
    """Return whether a file belongs to a blktrace recording of several files (one per CPU), read together."""
    return _PROCESSOR.fullmatch(path.name) is not None


def one_per_recording(paths: list[Path] | None) -> list[Path]:
    """Return one file of each blktrace recording; the trace reader finds the files of the other CPUs.

    >>> one_per_recording([Path("sda.blktrace.0"), Path("sda.blktrace.1"), Path("sdb.blktrace.1.gz")])
    [PosixPath('sda.blktrace.0'), PosixPath('sdb.blktrace.1.gz')]
    """
    first_files: dict[Path, Path] = {}
    for path in paths or ():
        match = _PROCESSOR.fullmatch(path.name)
        first_files.setdefault(path.with_name(match["recording"]) if match else path, path)
    return [path for path in paths or () if path in first_files.values()]


TraceFiles = Annotated[
    list[Path],
    argument(
        "TRACE...", "Traces of any format, plain, gzip, bzip2, zstd or xz; `-` for stdin.", callback=one_per_recording
    ),
]
Format = Annotated[
    str | None,
    _reading(
        "Format of the input (`emmclab formats`); default: recognised by content.",
        metavar="NAME",
        autocompletion=format_names,
    ),
]
Columns = Annotated[
    str | None,
    _reading(
        "Columns of a generic CSV in order, for example `arrival,op,sector,sectors`; default: the header line.",
        metavar="A,B,...",
    ),
]
Figures = Annotated[
    Path | None,
    option("Also write each figure to this folder as SVG and PDF, and its data as CSV.", advanced=True, metavar="DIR"),
]
OverTime = Annotated[
    Path | None,
    option(
        "Also write IOPS, MB/s and response times over time to this file, .csv or .parquet.",
        advanced=True,
        callback=in_a_folder,
    ),
]
Bin = Annotated[
    str | None,
    option(
        "Width of the time bins, for example 1s or 100ms; doubled if there would be more than 16,384 bins. Default: "
        "at most 256 bins.",
        advanced=True,
        metavar="WIDTH",
    ),
]
AsJson = Annotated[bool, option("Print JSON, for programs.", None, "--json")]


def key_values(text: str | None, option: str, example: str) -> dict[str, str]:
    """Parse `KEY=VALUE,...`, the value of an option, or None; `example` is for the hint."""
    values: dict[str, str] = {}
    for item in [] if text is None else split_names(text, "column", option, example):
        key, equals, value = item.partition("=")
        if not equals or not value.strip():
            raise ConfigError(f"`{item}` is not KEY=VALUE", field=option, hint=f"write `{option} {example}`")
        values[key] = value.strip()
    return values


@dataclass(frozen=True)
class Reading:
    """Command-line options for how to read a trace."""

    format: Format = None
    lenient: Annotated[bool, _reading("Skip bad records and count them.")] = False
    columns: Columns = None
    time_unit: Annotated[
        str | None,
        _reading(
            "Unit of times, for formats that do not define it: s, ms, us, ns; `none` for a table without times.",
            metavar="UNIT",
            autocompletion=complete_words("s", "ms", "us", "ns", "none"),
        ),
    ] = None
    size_unit: Annotated[
        str | None,
        _reading(
            "Unit of addresses and sizes, for formats that do not define it: sector, byte, kb, page.",
            metavar="UNIT",
            autocompletion=complete_words("sector", "byte", "kb", "page"),
        ),
    ] = None
    reorder_window: Annotated[
        int | None, _reading("Number of requests that are sorted by arrival at once; default: 65,536.", min=1)
    ] = None
    mend_clock: Annotated[
        str | None,
        _reading(
            "Shorten clock jumps and pauses of the recording to the median gap, and move the requests after a backward "
            "jump to the end of those before it. With a length, for example 1h: shorten longer gaps, in one pass.",
            metavar="[LENGTH]",
        ),
    ] = None
    reissue_window: Annotated[
        str | None,
        _reading(
            "Time from the first issue of a request to a suspected re-issue; default: 0.5ms-3ms, the time in which a "
            "UFS link wakes up. For a busy SCSI host use 0-100ms.",
            metavar="FROM-TO",
        ),
    ] = None
    drop_reissued: Annotated[
        bool, _reading("Drop suspected re-issues: requests that the driver returned and the kernel issued again.")
    ] = False
    only: Annotated[
        list[str] | None,
        _reading(
            "Read only requests that match all conditions, for example `device=8,0`, `process=kworker/*|fio`, "
            "`pid=71`, `op=read`, `from=10s,to=2m30s` (since the first arrival).",
            metavar="KEY=VALUE,...",
        ),
    ] = None

    def open(self, path: Path) -> Trace:
        """Open one trace with these options; `-` is stdin."""
        if str(path) == "-":
            return read("/dev/stdin", **self.changed_options())
        return read(or_bundled(path), **self.changed_options())

    def changed_options(self) -> dict[str, Any]:
        """Return the options that differ from the defaults, as keywords of `emmclab.read`."""
        usual = reading_options()
        return {name: value for name, value in asdict(self).items() if value not in (None, []) and value != usual[name]}

    def refuse(self, name: str, hint: str = "leave it out") -> None:
        """Reject reading options if no trace is read; `name` is what the command uses instead of a trace."""
        for field in self.changed_options():
            option = f"--{field.replace('_', '-')}"
            raise ConfigError(
                f"{option} is for reading a trace, and no trace is read for {name}", field=option, hint=hint
            )

    @property
    def changes(self) -> bool:
        """Whether these options move requests in time, omit requests, or change which requests count as re-issued."""
        return bool(self.mend_clock or self.reissue_window or self.drop_reissued or self.only)

    def note_changed(self, name: str, ledger: Mapping[str, int | None]) -> None:
        """Print what the reading options changed in a trace, according to the counts in its ledger."""
        if self.mend_clock:
            print_stderr(f"note: {name}: {jumps_text(ledger['mended_jumps'] or 0)} removed (--mend-clock)")
        if self.reissue_window and ledger["reissued"] is not None:
            count, window = ledger["reissued"], self.reissue_window
            print_stderr(f"note: {name}: {count:,} suspected re-issues within {window} (--reissue-window)")
        if self.drop_reissued and ledger["reissued"] is None:
            print_stderr(f"note: {name}: re-issues are unknown without processes and completions (--drop-reissued)")
        elif self.drop_reissued:
            print_stderr(f"note: {name}: {ledger['dropped_reissues']:,} suspected re-issues dropped (--drop-reissued)")
        if self.only:
            print_stderr(f"note: {name}: {ledger['filtered']:,} requests left out (--only)")


def note_over_time(sources: "Sequence[Profile | Result]", path: Path, width: str | None) -> None:
    """Write a table of figures over time; print the number of bins, and a note if bins are wider than requested."""
    from emmclab.simulation.result import over_time_rows, write_over_time

    rows = over_time_rows(sources)
    write_over_time(rows, path)
    requested_s = bin_ns(width) / 1e9
    widest_s = max((row["width_s"] for row in rows), default=0.0)
    if width is not None and widest_s > 1.5 * requested_s:
        print_stderr(f"note: bins of {widest_s:g} s, because those of {width} would be more than 16,384")
    print_stderr(
        f"over time: {len(rows):,} bins in {path}" if rows else "over time: no requests, so nothing was written"
    )
