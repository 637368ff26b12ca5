"""`emmclab lifetime SOURCE`."""

import re
import tempfile
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from emmclab.advice.lifetime import FILLED_PCT, LIMIT_FACTOR, Lifetime, estimate_lifetime, starting_wear, wear_of_counts
from emmclab.advice.lifetime_changes import Remedies, remedies
from emmclab.advice.lifetime_load import Load, load_of_pattern, load_of_trace
from emmclab.advice.lifetime_text import bounds, cautions, headline, most_important, notes_of, remarks, tables
from emmclab.advice.register_wear import RegisterTrend, trends, trends_headline, trends_table
from emmclab.advice.software_changes import changes_of_trace, writers_of_trace
from emmclab.apps.written_load import ProgramLoad
from emmclab.calibration.health import health
from emmclab.calibration.registers import Registers
from emmclab.calibration.registers import registers as read_any_registers
from emmclab.cli.command import command
from emmclab.cli.console import in_a_folder, print_json, print_stderr, stdout
from emmclab.cli.name_completion import application_names, complete_words, device_names, host_names
from emmclab.cli.options import AsJson, Reading, argument, one_per_recording, option
from emmclab.cli.preset import ExtCsd, Health, Ufs, read_registers
from emmclab.cli.progress import Counter
from emmclab.cli.simulation_options import (
    Capacity,
    DeviceName,
    FlushEvery,
    Images,
    Settings,
    Used,
    configured,
    daily_bytes_of_fleet,
    preconditioned,
)
from emmclab.cli.tables import print_line, show_table
from emmclab.errors import ConfigError
from emmclab.runtime.document import parse_duration
from emmclab.simulation.device import Device
from emmclab.traces.disk_counters import growth, holds_counters
from emmclab.traces.reading import combine
from emmclab.traces.recorded_registers import recorded_devices
from emmclab.traces.trace import Trace
from emmclab.traces.workload import size_of

_DECIMAL = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])B?", re.IGNORECASE)
_POWERS = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SECTOR_BYTES = 512
#: Options that describe a load without a trace, with their defaults.
_PATTERN, _SIZE, _SPAN = "random", "4KB", "1GB"


@dataclass(frozen=True)
class LoadOptions:
    """Command-line options for what is written."""

    daily: Annotated[
        str | None,
        option(
            "Bytes written in a day, decimal (5GB is 5,000,000,000), or the table of a fleet (its median recording). "
            "Default: as recorded, for the whole day.",
            "Load",
            metavar="SIZE|FLEET",
        ),
    ] = None
    pattern: Annotated[
        str | None,
        option(
            f"Addresses of a load without a trace; default: {_PATTERN}.",
            "Load",
            metavar="random|sequential",
            autocompletion=complete_words("random", "sequential"),
        ),
    ] = None
    size: Annotated[
        str | None, option(f"Size of its writes; default: {_SIZE}, or that of counters.", "Load", metavar="SIZE")
    ] = None
    span: Annotated[
        str | None, option(f"Size of its address range; default: {_SPAN}.", "Load", advanced=True, metavar="SIZE")
    ] = None
    over: Annotated[
        str | None,
        option("Time between two readings of counters, for example 1d.", "Load", advanced=True, metavar="TIME"),
    ] = None
    disk: Annotated[
        str | None,
        option("Disk of the readings; default: the only one that was written.", "Load", advanced=True, metavar="NAME"),
    ] = None
    app: Annotated[
        str | None,
        option(
            "An application (`emmclab apps`) in place of a trace. It runs on a host model.",
            "Load",
            metavar="NAME|FILE",
            autocompletion=application_names,
        ),
    ] = None
    host: Annotated[
        str | None,
        option(
            "The host of the application, which flushes the cache of the device by default (`emmclab apps hosts`).",
            "Load",
            advanced=True,
            metavar="NAME|FILE",
            autocompletion=host_names,
        ),
    ] = None
    flush_every: FlushEvery = 0

    def load(
        self, trace: Trace | None, counters: list[Path], daily_bytes: float | None, device: Device, folder: Path
    ) -> Load:
        """Return the load of a trace, an application, two readings of counters, or an amount alone.

        The folder keeps the requests of an application.
        """
        if self.app is not None:
            if trace is not None or counters:
                raise ConfigError(
                    "--app has no effect with a source, which is a load of its own",
                    field="--app",
                    hint="leave out one of the two",
                )
            return ProgramLoad(self.app, self.host, device, folder, daily_bytes).load()
        if trace is None:
            return self._without_a_trace(counters, daily_bytes)
        for name in ("pattern", "size", "span", "over", "disk"):
            if getattr(self, name) is not None:
                raise ConfigError(
                    f"--{name} has no effect with a trace, which has times, sizes and addresses of its own",
                    field=f"--{name}",
                    hint="leave it out",
                )
        recorded = load_of_trace(trace, daily_bytes, self.flush_every)
        return replace(
            recorded,
            changes=lambda folder: changes_of_trace(trace, recorded, folder),
            writers=lambda folder: writers_of_trace(trace, recorded, folder),
        )

    def daily_bytes(self) -> float | None:
        """Return a decimal amount, or the median of a fleet, in bytes per day; None if not given."""
        if self.daily is None:
            return None
        if match := _DECIMAL.fullmatch(self.daily.strip()):
            if amount := float(match[1]) * _POWERS[match[2].upper()]:
                return amount
        elif Path(self.daily).is_file():
            return daily_bytes_of_fleet(Path(self.daily))
        raise ConfigError(
            f"`{self.daily}` is no amount of bytes per day",
            field="--daily",
            hint="give a decimal amount such as 500MB or 5GB, or the table of a fleet (`emmclab fleet`)",
        )

    def _without_a_trace(self, paths: list[Path], daily_bytes: float | None) -> Load:
        """Return the load of disk counters, or of an amount alone."""
        if self.pattern not in (None, "random", "sequential"):
            raise ConfigError(
                f"there is no pattern `{self.pattern}`", field="--pattern", hint="give random or sequential"
            )
        is_sequential = self.pattern == "sequential"
        span_bytes = _bytes(self.span or _SPAN, "--span")
        if not paths:
            if daily_bytes is None:
                raise ConfigError(
                    "there is no source", field="SOURCE", hint="give a trace, readings of counters, --app or --daily"
                )
            for name, value in (("--over", self.over), ("--disk", self.disk)):
                if value is not None:
                    raise ConfigError(
                        f"{name} has no effect without readings of counters", field=name, hint="leave it out"
                    )
            write_bytes = _bytes(self.size or _SIZE, "--size")
            return load_of_pattern(
                daily_bytes,
                is_sequential=is_sequential,
                size=write_bytes,
                span=span_bytes,
                flush_every=self.flush_every,
            )
        if len(paths) > 2:
            raise ConfigError(
                f"there are {len(paths)} files of counters, and two readings are needed",
                field="SOURCE",
                hint="give the first and the last",
            )
        grown = growth(paths, self.disk, None if self.over is None else parse_duration(self.over, "--over"))
        mean = max(_SECTOR_BYTES, round(grown.bytes_written / grown.writes / _SECTOR_BYTES) * _SECTOR_BYTES)
        counted = grown.bytes_written / grown.seconds * 86_400
        return load_of_pattern(
            counted if daily_bytes is None else daily_bytes,
            is_sequential=is_sequential,
            size=mean if self.size is None else _bytes(self.size, "--size"),
            span=span_bytes,
            flush_every=self.flush_every or (round(grown.writes / grown.flushes) or 1 if grown.flushes else 0),
            origin="given" if daily_bytes is not None else f"counted over {grown.seconds / 3600:,.3g} h",
            name=f"the counters of {grown.disk or paths[0].name}",
            is_mean_size=self.size is None,
        )


@dataclass(frozen=True)
class DeviceOptions:
    """Command-line options for the device: a preset, or the registers of a real one."""

    device: DeviceName = "nexus5"
    settings: Settings = field(default_factory=list)
    capacity: Capacity = None
    ext_csd: ExtCsd = None
    ufs: Ufs = None
    health: Health = None
    like: Annotated[
        str | None,
        option(
            "Preset for what registers do not state, such as latencies and erase limits; default: by kind and version.",
            advanced=True,
            metavar="DEVICE",
            autocompletion=device_names,
        ),
    ] = None

    def configured(self, registers: Registers | None) -> Device:
        """Return the configured device, made of the registers if there are any."""
        if registers is None:
            return configured(self.device, self.settings, self.capacity)
        values = dict(setting.partition("=")[::2] for setting in self.settings)
        made = registers.preset(like=self.like).device
        changed = made.set(values) if values else made
        return changed if self.capacity is None else changed.with_capacity(self.capacity)


@dataclass(frozen=True)
class StateOptions:
    """Command-line options for the state of the device, and for what is known of its erase limits."""

    filled: Annotated[
        float, option("Share of the capacity that holds other data, percent.", "State", advanced=True, min=0, max=100)
    ] = FILLED_PCT
    used: Used = None
    limit_factor: Annotated[
        float,
        option("Factor within which the erase limits are known; 1: exactly.", "State", advanced=True, metavar="FACTOR"),
    ] = LIMIT_FACTOR

    def used_text(self, trace: Trace | None) -> str | None:
        """Return the state of a used device as the text of `--precondition`; None if it is only filled."""
        return None if self.used is None else preconditioned("none", self.used, () if trace is None else (trace,))


@command(
    "emmclab lifetime trace.parquet --device emmc51-cache --daily 5GB",
    "emmclab lifetime monday.txt tuesday.txt --over 1d --disk mmcblk0 --ext-csd ext_csd.txt # /proc/diskstats twice",
    "emmclab lifetime --registers old.txt@2025-06-01 new.txt@2026-06-01 # life-time registers at two dates",
    "emmclab lifetime --daily 5GB --pattern sequential --size 512KB --device ufs31 --html life.html",
    "emmclab lifetime --app notes.toml --device emmc51-cache --changes # a program of its own",
)
def lifetime(
    *,
    sources: Annotated[
        list[Path] | None,
        argument(
            "SOURCE...",
            "Traces of any format, or one or two files with two readings of /proc/diskstats or /sys/block/DISK/stat; "
            "none with --daily or --app. With --registers: FILE@DATE.",
            callback=one_per_recording,
        ),
    ] = None,
    asked_load: LoadOptions,
    dated: Annotated[
        bool,
        option(
            "Sources are registers at several dates (FILE@DATE): bound the wear; with --daily compare a simulation.",
            None,
            "--registers",
        ),
    ] = False,
    asked_device: DeviceOptions,
    state: StateOptions,
    changes: Annotated[
        bool,
        option("Also simulate what would lengthen the life, and who writes. Tried: device, file system, other parts."),
    ] = False,
    seeds: Annotated[int, option("Number of seeds, where a run has random choices.", advanced=True, min=1)] = 3,
    images: Images = None,
    html: Annotated[Path | None, option("Also write a page.", callback=in_a_folder)] = None,
    jobs: Annotated[int, option("Number of simulations at a time; 0 for one per processor.", advanced=True, min=0)] = 0,
    as_json: AsJson = False,
    reading: Reading,
) -> None:
    """Estimate how long the flash of a device lasts: years, bytes written (TBW), and what wears out first.

    The device is simulated under the load until its wear is steady; the wear per byte and the erase limits of each
    kind of block give the years. Bounds come from seeds and from what is known of the limits, and each assumption is
    tried in another way. TB and GB are decimal.
    """
    paths = sources or []
    daily_bytes = asked_load.daily_bytes()
    readings = [_dated(path) for path in paths] if dated else []
    found = trends(readings) if dated else []
    if dated and daily_bytes is None:
        _show_trends(found, None, as_json)
        return
    paths = [] if dated else paths
    trace = None
    if paths and not holds_counters(paths[0]):
        opened = [reading.open(path) for path in paths]
        trace = opened[0] if len(opened) == 1 else combine(opened)
    else:
        reading.refuse("this load")
    is_registers = asked_device.ext_csd or asked_device.ufs
    registers = read_registers(asked_device.ext_csd, asked_device.ufs) if is_registers else None
    if dated:
        registers = max(readings, key=lambda reading: reading[0])[1]
    if registers is not None and trace is not None:
        _require_the_recorded_device(registers, trace)
    start, notes = (None, list[str]()) if registers is None else starting_wear(registers.report)
    configuration = asked_device.configured(registers)
    if asked_device.health is not None:
        start, notes = wear_of_counts(health(asked_device.health), configuration)
    kept = None if images is None else str(images)
    with (
        tempfile.TemporaryDirectory(prefix="emmclab-loads-") as folder,
        Counter(f"lifetime of {configuration.name}", "simulations") as counter,
    ):
        load = asked_load.load(trace, paths, daily_bytes, configuration, Path(folder))
        life = estimate_lifetime(
            configuration,
            load,
            filled_pct=state.filled,
            used=state.used_text(trace),
            registers=start,
            seeds=seeds,
            limit_factor=state.limit_factor,
            trace=trace,
            images=kept,
            jobs=jobs,
            progress=lambda done, total: counter(done, total, 0),
        )
        helps = Remedies()
        if changes:
            helps = remedies(
                configuration,
                load,
                life,
                filled_pct=state.filled,
                used=state.used_text(trace),
                registers=start,
                images=kept,
                jobs=jobs,
            )
    life.notes.extend(notes)
    if html is not None:
        from emmclab.pages.lifetime import write_lifetime

        write_lifetime(life, html, helps)
        print_stderr(f"report: {html}")
    if dated:
        _show_trends(found, life, as_json)
    elif as_json:
        for text in cautions(life):
            print_stderr(f"warning: {text}")
        print_json(life.to_dict() | (helps.to_dict() if changes else {}))
    else:
        _show(life, helps)


def _dated(path: Path) -> tuple[datetime, Registers]:
    """Read the registers of FILE@DATE."""
    file, _, text = str(path).rpartition("@")
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"`{path}` has no date", field="--registers", hint="write FILE@DATE, for example ext_csd.txt@2026-06-01"
        ) from None
    return (date.astimezone(UTC).replace(tzinfo=None) if date.tzinfo else date), read_any_registers(file)


def _show_trends(found: list[RegisterTrend], life: Lifetime | None, as_json: bool) -> None:
    if as_json:
        rows = [trend.to_dict() for trend in found]
        print_json({"registers": rows, "simulated": None if life is None else life.to_dict()})
        return
    console = stdout()
    print_line(console, trends_headline(found), "bold")
    show_table(console, trends_table(found, life))
    print_line(console, "Each reading is an interval of 10 %; the bounds hold for a constant rate.", "dim")


def _show(life: Lifetime, helps: Remedies) -> None:
    console = stdout()
    for text in cautions(life):
        print_line(console, f"warning: {text}", "yellow")
    print_line(console, headline(life), "bold")
    for text in bounds(life):
        print_line(console, f"  {text}")
    if text := most_important(life):
        print_line(console, text)
    for table in tables(life, helps):
        show_table(console, table)
    console.print()
    for text in (*notes_of(helps), *remarks(life)):
        print_line(console, text, "dim")


def _bytes(text: str, name: str) -> int:
    """Return a size in bytes, in whole sectors."""
    amount = size_of(text)
    if not amount or amount % _SECTOR_BYTES:
        raise ConfigError(
            f"`{text}` is no size of whole sectors of {_SECTOR_BYTES} bytes", field=name, hint="give for example 4KB"
        )
    return amount


def _require_the_recorded_device(registers: Registers, trace: Trace) -> None:
    """Reject registers of another device than the one whose registers a recording contains."""
    stated = registers.report.capacity
    for recorded in recorded_devices(trace.header, trace.name):
        own = recorded.report and recorded.report.capacity
        if own and stated and own.bytes != stated.bytes:
            raise ConfigError(
                f"{registers.source} has the registers of another device than {trace.name}: {stated.bytes:,} bytes "
                f"in place of {own.bytes:,}",
                file=registers.source,
                field="SOURCE",
                hint="give the registers of the recorded device, or a trace without registers",
            )
