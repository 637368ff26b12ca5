"""Command-line options that simulating commands share."""

import functools
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypedDict, TypeVar

import typer

from emmclab.cli.command import COMPARE_DEVICES
from emmclab.cli.console import in_a_folder, print_stderr
from emmclab.cli.failures import EARLY_END
from emmclab.cli.glossary import NOT_MODELLED, define
from emmclab.cli.name_completion import device_names, setting_names
from emmclab.cli.options import Bin, OverTime, Percentiles, declared, note_over_time, option
from emmclab.cli.progress import Meter, Preparing
from emmclab.errors import ConfigError
from emmclab.runtime.files import refuse_other_endings
from emmclab.runtime.lists import Names, several
from emmclab.runtime.option import Option
from emmclab.simulation.device import Device, presets
from emmclab.simulation.layers import Setting
from emmclab.simulation.result import Result, check_target
from emmclab.simulation.result_text import notes_by_text, warnings_by_text
from emmclab.simulation.run_options import DEFAULTS, RUN_OPTIONS, parse_precondition
from emmclab.traces.trace import Trace

Kind = TypeVar("Kind")

#: Names of the option that selects one or several devices.
DEVICE_OPTION = ("--device", "--devices")

DeviceName = Annotated[
    str,
    option(
        "The device: a preset (`emmclab devices`) or a TOML file.",
        "Device",
        *DEVICE_OPTION,
        metavar="PRESET|FILE",
        autocompletion=device_names,
    ),
]
BaseDevice = Annotated[
    str | None,
    option(
        "Calibrate on this device, a preset or a TOML file: what the measured times do not determine is as there, such "
        "as interface, flash and capacity.",
        "Device",
        metavar="PRESET|FILE",
        autocompletion=device_names,
    ),
]
Assume = Annotated[
    str | None, option("What the file does not state, for example `depth=1,jobs=1`.", metavar="KEY=VALUE,...")
]
FigureHost = Annotated[str | None, declared("fio_host", show_default="the host of each figure")]
Settings = Annotated[
    list[str],
    option(
        "Change a setting, for example `timing.parallelism=both`. `emmclab explain DEVICE` lists them.",
        "Device",
        "--set",
        metavar="KEY=VALUE",
        autocompletion=setting_names,
    ),
]
Capacity = Annotated[
    str | None,
    option(
        "Scale the device to this capacity, for example 128GB, by the number of blocks; 1 GB is 1,024 MB.",
        "Device",
        "--capacity",
        advanced=True,
        metavar="SIZE",
    ),
]
Mode = Annotated[str, declared("mode")]
Precondition = Annotated[str, declared("precondition")]
FlushEvery = Annotated[int, declared("flush_every")]
Wrap = Annotated[bool, declared("wrap_addresses")]
Seed = Annotated[int, declared("seed")]
Seeds = Annotated[
    int | None, option("Run with N seeds, from --seed on, and show mean and range.", "Replay", advanced=True, min=1)
]


Used = Annotated[
    str | None,
    option(
        "Precondition the device as if a phone had used it for AGE (90d, 18mo, 2y), like --precondition used:AGE. "
        "daily=2GB: bytes written per day, or hours of the traces per day (4h), or the table of a fleet; "
        "filled=75, random=12: percent; trim=yes.",
        "Replay",
        advanced=True,
        metavar="AGE[,KEY=VALUE...]",
    ),
]
_DAILY = re.compile(r"(?<=,)daily=([^,]*)")
_HOURS = re.compile(r"(\d+(?:\.\d+)?)h")
_DAY_S = 86_400
_AGES = "give an age such as 90d, 8w, 18mo or 2y, then daily=SIZE, filled=PCT, random=PCT or trim=no"
_HINT = "give bytes per day (daily=2GB), hours of the traces per day (daily=4h), or the table of a fleet"


def _parquet(path: Path | None) -> Path | None:
    """Return the path of a Parquet file; reject it if its extension is another, or its folder does not exist."""
    if path is not None:
        refuse_other_endings(path, ("", ".parquet"), "--events")
    return in_a_folder(path)


Check = Annotated[bool, declared("check")]
Images = Annotated[Path | None, declared("images")]
Layers = Annotated[list[str], declared("layers")]
Second = Annotated[str | None, declared("second")]
Drain = Annotated[bool, declared("drain")]
Events = Annotated[Path | None, declared("events", callback=_parquet)]


class AboveDevice(TypedDict, total=False):
    """The options of a run for the layers above the device."""

    layers: Sequence[str]
    layer_settings: Mapping[str, Setting]
    second: Device | None
    drain: bool


def _kind(option: Option) -> Any:
    """Return the type of an option on the command line."""
    if option.default is None:
        return Path | None if option.metavar in ("DIR", "FILE") else str | None
    return type(option.default)


def _with_run_options(kind: type[Kind]) -> type[Kind]:
    """Add the run options of the help panels Replay and Job file to a class of options, as fields."""
    options = [
        option for option in RUN_OPTIONS.values() if option.panel in ("Replay", "Job file") and option.command_line
    ]
    fields = {option.name: Annotated[_kind(option), declared(option.name)] for option in options}
    kind.__annotations__ = {**fields, **kind.__annotations__}
    for name in fields:
        setattr(kind, name, DEFAULTS[name])
    return kind


@dataclass(frozen=True)
@_with_run_options
class Replay:
    """Command-line options for replaying: options of a run, and options that exist only on the command line."""

    if TYPE_CHECKING:
        mode: str = ""
        precondition: str = ""
        seed: int = 1
        images: Path | None = None
    used: Used = None
    percentiles: Percentiles = DEFAULTS["percentiles"]
    over_time: OverTime = None
    bin: Bin = None

    def preflight(self) -> None:
        """Reject outputs that cannot be written, before anything is simulated."""
        if self.over_time is not None:
            check_target(self.over_time)

    def precondition_text(self, traces: Sequence[Trace]) -> str:
        """Return the preconditioning of the device for these traces as the text of `--precondition`."""
        return preconditioned(self.precondition, self.used, traces)

    def write(self, results: Sequence[Result]) -> None:
        """Write the requested outputs of all runs."""
        if self.over_time is not None:
            note_over_time(results, self.over_time, self.bin)

    def run(
        self,
        device: Device,
        traces: Sequence[Trace],
        events: Path | None = None,
        *,
        pictures: bool = False,
        **software: Any,
    ) -> Result:
        """Simulate and show the progress; `pictures` adds the data for figures of a report page."""
        names = ", ".join(trace.name for trace in traces)
        precondition = self.precondition_text(traces)
        preparing = Preparing(device, precondition, self.images)
        with _SimulationMeter(f"simulate {names} on {device.name}") as meter, preparing as working:

            def note(done: int, total: int | None, requests: int, simulated_s: float) -> None:
                working.stop()
                meter.note(done, total, requests, simulated_s)

            options = asdict(self) | {"precondition": precondition}
            del options["used"]
            width = options.pop("bin")
            options["over_time"] = (width or True) if pictures or self.over_time is not None else False
            options["distribution"] = pictures
            return device.simulate(*traces, events=events, progress=note, **options, **software)


def refuse_single_outputs(*outputs: tuple[str, object]) -> None:
    """Reject outputs that exist only for a single run; called if a command runs with several seeds."""
    for name, output in outputs:
        if output is not None:
            raise ConfigError(f"several runs cannot share the output `{name}`", field=name, hint="leave out --seeds")


def end(results: Sequence[Result]) -> None:
    """Exit with status 3 if any run ended early."""
    if any(result.run.stopped for result in results):
        raise typer.Exit(EARLY_END)


def warn(results: Sequence[Result]) -> None:
    """Print warnings and notes about results to stderr."""
    for runs, text in warnings_by_text(results):
        print_stderr(f"warning: {runs}: {text}")
    for text in notes_by_text(results):
        print_stderr(f"note: {text}")


class _SimulationMeter(Meter):
    """A progress meter that also prints the simulated time; it starts when the first requests are done."""

    def __enter__(self) -> Self:
        return self

    def note(self, done: int, total: int | None, requests: int, simulated_s: float) -> None:
        self.begin()
        base = self.title.partition(",")[0]
        self.title = f"{base}, {simulated_s:,.0f} s simulated" if not sys.stderr.isatty() else base
        self(done, total, requests)


def layered(settings: Sequence[str], layers: Names) -> tuple[list[str], dict[str, str]]:
    """Separate device settings from layer settings, which begin with the name of a layer."""
    kinds = [layer.partition(":")[0] for layer in several(layers)]
    of_layers = [text for text in settings if text.partition(".")[0].strip() in kinds]
    values = {key.strip(): value.strip() for key, _, value in (text.partition("=") for text in of_layers)}
    return [text for text in settings if text not in of_layers], values


def names_a_disk(target: str) -> bool:
    """Return whether a target is a disk of this machine, not a simulated device.

    A word without a slash that is not a file is treated as a preset; if it is unknown, the error lists the presets. A
    pipe contains the settings of a device.
    """
    path = Path(target)
    is_settings = target in presets() or target.endswith(".toml") or path.is_fifo()
    return not is_settings and ("/" in target or path.exists())


def configured(name: str, settings: Sequence[str], capacity: str | None = None) -> Device:
    """Create the device of a preset or file with these settings, scaled to a capacity if one is given."""
    if "," in name and not Path(name).exists():
        raise ConfigError(
            f"`{name}` is a list of devices, but this command accepts only one device",
            field="--device",
            hint=COMPARE_DEVICES.format(name),
        )
    values: dict[str, str | float | bool] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigError(
                f"`{setting}` is not KEY=VALUE",
                field="--set",
                hint="write the setting as `--set timing.parallelism=both`",
            )
        values[key.strip()] = value.strip()
    device = Device.named(name)
    if values:
        try:
            device = device.set(values)
        except ConfigError as error:
            if meaning := next(filter(None, map(_not_modelled, values)), None):
                raise ConfigError(str(error), field=error.field, hint=meaning) from error
            raise
    return device if capacity is None else device.with_capacity(capacity)


def _not_modelled(key: str) -> str | None:
    """Return the glossary's explanation if a setting belongs to something that is not modelled; otherwise None."""
    terms = (define(part) for part in key.split("."))
    return next((f"{term.term}: {term.text}" for term in terms if term and term.topic == NOT_MODELLED), None)


def preconditioned(precondition: str, used: str | None, traces: Sequence[Trace] = ()) -> str:
    """Return the preconditioning as text: `precondition`, or `used:...` if `used` is given."""
    if used is None:
        return precondition
    text = "used:" + _DAILY.sub(lambda match: f"daily={_daily(match[1], traces)}", used)
    try:
        parse_precondition(text)
    except ConfigError as error:
        problem = str(error).removeprefix("field `precondition`: ")
        raise ConfigError(problem, field="--used", hint=_AGES) from None
    return text


def _daily(text: str, traces: Sequence[Trace]) -> str:
    """Return the data written per day as a size.

    `text` is a size, the hours per day for which the traces run, or the path of a fleet table.
    """
    if hours := _HOURS.fullmatch(text):
        return _size(float(hours[1]) / 24 * _of_traces(text, traces))
    return _size(daily_bytes_of_fleet(Path(text))) if Path(text).is_file() else text


def _of_traces(text: str, traces: Sequence[Trace]) -> float:
    """Return the bytes that traces would write if they ran for a whole day."""
    if any(trace.is_pipe for trace in traces):
        raise _unknown(text, "a trace from a pipe cannot be read twice")
    written = [_write_volume(trace) for trace in traces]
    seconds = sum(duration_s for _, duration_s in written)
    if not seconds:
        raise _unknown(text, "there is no trace with a duration")
    return 1024 * sum(data_kb for data_kb, _ in written) / seconds * _DAY_S


@functools.cache
def _write_volume(trace: Trace) -> tuple[float, float]:
    """Return the KB that a trace writes and its duration in seconds; cached, because each run needs them."""
    profile = trace.profile()
    writes = (row["data_kb"] for row in profile["by_operation"] if row["op"] == "write")
    return sum(writes), profile["duration_s"] or 0.0


def daily_bytes_of_fleet(path: Path) -> float:
    """Return the bytes written per day: the median over the recordings of a fleet."""
    # Imported here because these imports take time, and most runs do not need them.
    from statistics import median

    from emmclab.fleet.table import Table

    rows = Table(path).recordings(["write_data_kb", "duration_s"])
    rates = [1024 * written / seconds for written, seconds in rows if written is not None and seconds]
    if not rates:
        raise _unknown(str(path), "it contains no recording with a duration")
    return float(median(rates)) * _DAY_S


def _size(amount: float) -> str:
    return f"{amount / 2**20:.2f}MB"


def _unknown(value: str, reason: str) -> ConfigError:
    return ConfigError(f"`daily={value}`: the daily writes are unknown, because {reason}", field="--used", hint=_HINT)
