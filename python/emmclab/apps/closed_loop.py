"""Applications in closed loop: programs that wait for a simulated device; their runtime is split by cause."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NotRequired, TypedDict, Unpack

from emmclab import _core
from emmclab.calibration.fit_sources import runs_note
from emmclab.core_types import AppResult as AppRun
from emmclab.core_types import SimulationResult
from emmclab.runtime.field_mapping import FieldMapping
from emmclab.runtime.files import note_written_files
from emmclab.runtime.lists import Names, listed_names, several, split_names
from emmclab.runtime.option import Option, attributes, complete, declarations
from emmclab.simulation.device import Device, is_file_name, setup_of
from emmclab.simulation.layers import Setting, stack
from emmclab.simulation.result import Result
from emmclab.simulation.run_options import RUN_OPTIONS, no_trace
from emmclab.traces.inputs import ProvenanceFields

#: Labels of the thread states, by the names of the states in results.
STATES = dict(_core.app_states())
#: The states in which a thread waits for storage.
STORAGE = ("read", "fsync", "throttled")
#: The default host models: the first for devices without a volatile cache (cards, and eMMC before 4.5), the second for
#: all others, whose cache the kernel must flush.
OLD_HOST, HOST = "nexusone", "phone-2020"
#: The default network of the host models `OLD_HOST` and `HOST`.
NETWORK = "wifi"
#: Default preconditioning: the device is full, because it holds the files of the applications.
PRECONDITION = "sequential:100"
#: Simulated time after which a run ends with an error: one day.
LIMIT_S = 86_400
#: Title of the panel that contains the run options in the help of commands.
_PANEL = "Run"
_OPERATIONS = ("read", "fsync", "write_back")


#: Separator between the names of applications that run at the same time.
_AT_ONCE = " + "


class AppOptionFields(TypedDict):
    """The fields of the group `options` in the result of an application run."""

    precondition: str
    layers: list[str]
    layer_settings: dict[str, Setting]
    second: str | None
    filesystems: list[str]
    synced: list[str] | None
    beside: list[str]
    clock: NotRequired[str]


@dataclass(frozen=True)
class AppOptions:
    """Options with which an application was run, simulated or on a served device: the group `options` of a result."""

    precondition: str
    layers: tuple[str, ...] = ()
    layer_settings: Mapping[str, Setting] = field(default_factory=dict)
    second: str | None = None
    #: File systems that replace those of the host model.
    filesystems: tuple[str, ...] = ()
    #: File classes whose syncs are executed; None stands for the setting of the host model.
    synced: tuple[str, ...] | None = None
    #: Other applications that ran at the same time.
    beside: tuple[str, ...] = ()
    #: Clock of a served device; None in the model, which has simulated time.
    clock: str | None = None

    def to_dict(self) -> AppOptionFields:
        """Return the options as JSON contains them in the group `options`."""
        fields: AppOptionFields = {
            "precondition": self.precondition,
            "layers": list(self.layers),
            "layer_settings": dict(self.layer_settings),
            "second": self.second,
            "filesystems": list(self.filesystems),
            "synced": None if self.synced is None else list(self.synced),
            "beside": list(self.beside),
        }
        if self.clock is not None:
            fields["clock"] = self.clock
        return fields


class LearnedTime(TypedDict):
    """Times of the thread for which the user of a learned program waits, in ns.

    `asleep_ns` and `unexplained_ns` are waits of this thread and of the threads for which it waited; they do not depend
    on the device. `behind_ns` is the work of other threads after the end of this thread; the learned program omits this
    work.
    """

    thread: str
    runs: str
    lasted_ns: int
    asleep_ns: int
    unexplained_ns: int
    behind_ns: int


class Agreement(TypedDict):
    """A figure of a live run and of a simulated run; `ratio` is model / live, None if the live figure is 0."""

    name: str
    unit: str
    live: float
    model: float
    ratio: float | None


class AppResult(FieldMapping):
    """Result of a run; the groups that `emmclab apps run --json` prints."""

    #: Results of the application: times by thread and cause, and counts of requests.
    app: AppRun
    #: Result of the device, in the form of `emmclab simulate`.
    device: SimulationResult

    @property
    def options(self) -> AppOptions:
        """The options with which the application was run."""
        fields = self._fields["options"]
        lists = {name: tuple(fields[name]) for name in ("layers", "filesystems", "beside")}
        synced = None if fields["synced"] is None else tuple(fields["synced"])
        return AppOptions(**{**fields, **lists, "synced": synced})

    @property
    def warnings(self) -> list[str]:
        """Reasons not to trust the run; empty if there are none."""
        reasons: list[str] = self._fields.get("warnings", [])
        return reasons

    @property
    def preparation(self) -> dict[str, Any] | None:
        """The requests before a run on a served device, which `device` does not count; None for a simulated run."""
        requests: dict[str, Any] | None = self._fields.get("preparation")
        return requests

    @property
    def runtime_s(self) -> float:
        """The time that the user waited, in s."""
        return self.app.runtime_ns / 1e9

    @property
    def storage_s(self) -> float:
        """The part of `runtime_s` spent waiting for storage, in s."""
        return sum(self.app.states[state] for state in STORAGE) / 1e9

    @property
    def sync_mean_ms(self) -> float | None:
        """The mean duration of a file sync over all threads, in ms; None if there were no syncs."""
        syncs = self.app.file_syncs
        waited = sum(thread.states["fsync"] for thread in self.app.threads)
        return waited / syncs / 1e6 if syncs else None

    @property
    def run_name(self) -> str:
        """A name that distinguishes runs of one application: device, layers, file systems, syncs, network."""
        options = self.options
        under = f" under {'+'.join(options.layers)}" if options.layers else ""
        under += f" with {', '.join(options.filesystems)}" if options.filesystems else ""
        under += f" syncing {', '.join(options.synced)}" if options.synced is not None else ""
        over = f" over {self.app.network}" if self.app.network_bytes else ""
        return f"{self.device.device}{under}{over}"

    def __repr__(self) -> str:
        return f"<AppResult {self.app.program!r} on {self.run_name!r}: {self.runtime_s:.2f} s>"


def applications() -> list[dict[str, str]]:
    """List the applications that come with emmclab: `name`, `about` and `source` of each.

    >>> [row["name"] for row in applications()][:2]
    ['webbench', 'facebook']
    """
    programs = [_core.Program.preset(name) for name in _core.app_presets()]
    return [{"name": program.name, "about": program.about, "source": program.source} for program in programs]


def activities() -> list[str]:
    """Return the names of the included applications that model a user activity, such as browsing.

    >>> set(row["name"] for row in applications()) - set(activities()) == {"background", "iperf", "random-writes"}
    True
    """
    return [name for name in _core.app_presets() if _core.Program.preset(name).is_activity]


def application_text(name: str) -> str:
    """Return the text of the TOML file of an application that comes with emmclab, with its comments.

    >>> application_text("rlbench").splitlines()[0]
    'name = "rlbench"'
    """
    return _core.app_text(name)


def hosts() -> list[dict[str, Any]]:
    """List the host presets (simulated computers that run applications) with all their settings.

    >>> [host["name"] for host in hosts()]
    ['nexusone', 'nexusone-fast-core', 'phone-2020', 'phone-2020-ext4', 'pixel4']
    """
    return [_core.HostSetup.preset(name).to_dict() for name in _core.host_presets()]


def program_of(name: str, beside: Names = ()) -> _core.Program:
    """Return an application: an included one by its name, or another one by the path of its TOML file.

    The applications in `beside` run at the same time; the name `A + B` means A with B in `beside`.

    >>> program_of("email + maps").name, program_of("email", ["maps"]).name
    ('email + maps', 'email + maps')
    """
    first, *others = (*name.split(_AT_ONCE), *several(beside))
    program = _core.Program.file(first) if is_file_name(first) else _core.Program.preset(first)
    return program.beside([program_of(other) for other in others]) if others else program


def host_for(devices: Iterable[Device]) -> str:
    """Return the name of the default host; it flushes caches if any of the devices has a cache.

    >>> host_for([Device.preset("sdcard")]), host_for(map(Device.preset, ("sdcard", "ufs31")))
    ('nexusone', 'phone-2020')
    """
    cached = any(device.capabilities.values_.cache_kb for device in devices)
    return HOST if cached else OLD_HOST


def never_flushed(host: _core.HostSetup, device: Device) -> list[str]:
    """Return a warning if a host never flushes the volatile cache of a device; otherwise an empty list.

    >>> len(never_flushed(setup_of("nexusone"), Device.preset("ufs31")))
    1
    >>> never_flushed(setup_of("phone-2020"), Device.preset("ufs31"))
    []
    """
    if host.sends_flushes() or not device.capabilities.values_.cache_kb:
        return []
    return [
        f"this host never flushes the cache of {device.name}: its kernel has no flush command, so that syncs "
        f"are too fast and not durable; --host {HOST} flushes the cache"
    ]


@dataclass(frozen=True)
class LearnedProgram:
    """A program learned from a recording of system calls: its file as text, and statistics of the recording."""

    program: str
    format: str
    length_ns: int
    threads: int
    files: int
    lines: int
    unreadable_lines: int
    known: dict[str, int]
    #: Times of the thread for which the user waits.
    user: LearnedTime
    #: Names of the recorded system calls, if only some were recorded; otherwise empty.
    only_calls: list[str]
    #: Number of omitted calls, and of lines that are not calls, by kind.
    dropped: dict[str, int]


def learn_application(
    path: str | PathLike[str],
    *,
    name: str | None = None,
    partitions: Mapping[str, str] = MappingProxyType({"data": "/"}),
    user_waits_for: str | None = None,
    keep_pauses: bool = False,
    cpu_factor: float = 1.0,
) -> LearnedProgram:
    """Learn a program from a recording of system calls.

    The program has the threads of the recording, their file operations with sizes and offsets, their network
    transfers, and the order in which threads depend on files. The duration of file operations is not learned:
    the model computes it. Time between calls is CPU work, which a host scales by its CPU factor. A call that
    waits for a child, a pipe or a thread of the recording does so in the program, too. A sleep, and a wait
    for an unknown cause, becomes a pause of the same length. Accesses through file mappings, io_uring and
    asynchronous I/O are not in a recording; mapped files and such requests are counted if possible.

    Args:
        path: the output of `strace -f -ttt -T -y -o FILE COMMAND` (other formats of time and calls without
            durations are supported, too), or syscall events of ftrace as text.
        name: name of the program; default: that of the file.
        partitions: folder by name of partition; the first partition also has all files outside these folders.
        user_waits_for: the thread that the user waits for, by its PID in the recording; default: the first thread.
        keep_pauses: accept a thread that sleeps or waits for unknown causes for more than half of its time.
        cpu_factor: CPU factor of the recorded machine: time of work on it divided by that on a 1 GHz core of
            2010, such as 0.25 for `phone-2020`.

    Raises:
        InputError: the file cannot be read, or is not a recording.
        ConfigError: there is no such thread, or the CPU factor is impossible.
        EmmclabError: the thread mostly sleeps or waits for causes that are not in the recording; or
            `user_waits_for` is None, and the first thread ends before most of the work.
    """
    learned = _core.learn_app(
        fspath(path),
        Path(path).stem if name is None else name,
        list(partitions.items()),
        user_waits_for,
        keep_pauses,
        cpu_factor,
    )
    return LearnedProgram(**learned)


def _classes(text: str | None) -> list[str] | None:
    return None if text is None else split_names(text, "class of files", "--sync", "database,cache")


class SoftwareOptions(TypedDict, total=False):
    """The options of an application run: host, other applications at the same time, layers, and more."""

    host: Annotated[
        str | None,
        Option(
            None,
            "The host: a preset (`emmclab apps hosts`) or a TOML file. Default: phone-2020, whose kernel sends "
            "flushes, if a device has a volatile cache; otherwise nexusone.",
            option=None,
            metavar="HOST",
            panel=_PANEL,
            completes="host_names",
        ),
    ]
    beside: Annotated[
        Names,
        Option(
            (),
            "Another application that starts at the same time and shares cores, page cache, memory and "
            "device; it ends with the main application. May be repeated.",
            metavar="NAME|FILE",
            panel=_PANEL,
            completes="application_names",
            advanced=True,
        ),
    ]
    layers: Annotated[Names, RUN_OPTIONS["layers"]]
    layer_settings: Annotated[Mapping[str, Setting] | None, RUN_OPTIONS["layer_settings"]]
    second: Annotated[Device | str | None, RUN_OPTIONS["second"]]


class FileOptions(TypedDict, total=False):
    """The options of an application run for its file systems, and for the classes of files that are synced."""

    filesystems: Annotated[
        Names,
        Option(
            (),
            "Replace the file systems of the host: PARTITION=NAME, or NAME for all partitions; ext4, fat32 or "
            "lfs. May be repeated.",
            option="--filesystem",
            metavar="[PARTITION=]NAME",
            panel=_PANEL,
            advanced=True,
        ),
    ]
    sync: Annotated[
        Names | None,
        Option(
            None,
            "Classes of files on which a sync is carried out; on all other files, a sync returns at once. A list "
            "with commas of database, database_journal, cache and other; or none.",
            metavar="CLASS,...",
            panel=_PANEL,
            parse=_classes,
            advanced=True,
        ),
    ]


class SoftwareAndFiles(SoftwareOptions, FileOptions, total=False):
    """All options of an application run for its software: host, other applications, layers, file systems, syncs."""


class ExecutionOptions(TypedDict, total=False):
    """The options of an application run that do not concern its software, such as seeds."""

    seed: Annotated[int, Option(1, "Seed of all random draws.", least=0, panel=_PANEL, advanced=True)]
    precondition: Annotated[
        str,
        Option(
            PRECONDITION,
            "Earlier data on the device: none, sequential:PCT, random:PCT, steady[:CAPACITIES] or used:AGE.",
            metavar="WHAT",
            panel=_PANEL,
        ),
    ]
    images: Annotated[str | PathLike[str] | None, RUN_OPTIONS["images"]]
    limit_s: Annotated[
        int,
        Option(
            LIMIT_S,
            "Limit of the simulated time of a run, in seconds; a longer run fails.",
            least=1,
            metavar="S",
            panel=_PANEL,
            advanced=True,
        ),
    ]


class RunningOptions(SoftwareOptions, ExecutionOptions, total=False):
    """The options of an application run that exist both in simulation and on a served device."""

    network: Annotated[str, Option(NETWORK, "The network of the host that the application uses.")]


class ApplicationOptions(RunningOptions, FileOptions, total=False):
    """The options of `run_application`; omitted options have their defaults."""

    what_if: Annotated[
        Names,
        Option(
            (),
            "Parts of the storage that are infinitely fast: `partition=NAME`, `class=CLASS` of files, or "
            "`op=read|fsync|write_back`.",
        ),
    ]
    images_limit: Annotated[int | None, RUN_OPTIONS["images_limit"]]
    check: Annotated[bool, Option(False, "Check all invariants of the device (slow).", panel=_PANEL, advanced=True)]
    perfetto: Annotated[
        str | PathLike[str] | None,
        Option(
            None,
            "Output file for ui.perfetto.dev (`.pftrace` or `.pftrace.gz`). It shows the states of each "
            "thread, the critical path, the requests, and the activity of the device.",
        ),
    ]
    events: Annotated[
        str | PathLike[str] | None,
        Option(
            None,
            "Parquet output file with one row per request (times, waits by cause). The file is also a trace of "
            "the application, which emmclab can read.",
        ),
    ]


#: Declarations of the options of `run_application`, by option name.
APPLICATION_OPTIONS = declarations(ApplicationOptions)
ApplicationOptions.__doc__ = f"{ApplicationOptions.__doc__}\n\n{attributes(APPLICATION_OPTIONS)}"


def run_application(name: str, device: Device | str, **options: Unpack[ApplicationOptions]) -> AppResult:
    """Run an application in closed loop on a device.

    Args:
        name: an application that comes with emmclab, or the path of a TOML file.
        device: a device, or a name for `Device.named`.
        options: see `ApplicationOptions`.

    Raises:
        ConfigError: the file is wrong (with its line), the partitions do not fit the device, the program is
            in a deadlock (the message lists the threads and what each waits for), or exceeds `limit_s`.

    >>> run_application("email", "nexus5").runtime_s > 0
    True
    """
    values = complete(APPLICATION_OPTIONS, options, "an application")
    values["sync"] = values["sync"] and listed_names(values["sync"], "sync")
    device = Device.named(device) if isinstance(device, str) else device
    second, settings, seed = values["second"], values["layer_settings"] or {}, values["seed"]
    second_device = Device.named(second) if isinstance(second, str) else second
    aging = no_trace(values["precondition"], "a device under an application").text
    program, setup = program_of(name, values["beside"]), setup_of(values["host"] or host_for([device]))
    fields = AppOptions(
        precondition=aging,
        layers=tuple(values["layers"]),
        layer_settings=settings,
        second=None if second_device is None else second_device.name,
        filesystems=tuple(values["filesystems"]),
        synced=None if values["sync"] is None else tuple(values["sync"]),
        beside=tuple(values["beside"]),
    ).to_dict()
    request = {name: values[name] for name in ("network", "seed", "limit_s", "what_if")}
    request |= {name: fields[name] for name in ("filesystems", "synced")}
    files = {name: values[name] and fspath(values[name]) for name in ("images", "perfetto", "events")}
    with note_written_files(values["events"], values["perfetto"]):
        result = _core.run_app(
            program,
            setup,
            device.seeded(seed).core,
            request,
            {"precondition": aging, "seed": seed, "check": values["check"]},
            images_limit=values["images_limit"],
            layers=stack(values["layers"], settings),
            second=None if second_device is None else second_device.seeded(seed).core,
            about=json.dumps({"application": name, "device": device.name, **request, "options": fields}),
            **files,
        )
    return AppResult({**result, "options": fields, "warnings": never_flushed(setup, device)})


def parts_of(result: AppResult) -> list[str]:
    """List the parts of the storage that a run used: partitions, classes of blocks, operations.

    Each can be passed as `what_if` to `run_application`, which makes this part infinitely fast.
    """
    partitions = {part.partition for part in result.app.spent if part.partition}
    requests = result.app.requests
    classes = requests.classes if requests else ()
    return [
        *(f"partition={name}" for name in sorted(partitions)),
        *(f"class={name}" for name in classes),
        *(f"op={name}" for name in _OPERATIONS),
    ]


def dominating(result: AppResult) -> tuple[str, float]:
    """Return the label of the largest part of the critical path, and its share of the runtime in %.

    If this part is a wait for storage, the label contains the class of files and the partition.
    """
    shares: dict[str, int] = {}
    for part in result.app.spent:
        words = STATES[part.state]
        if part.class_:
            words = f"{words} of {part.class_.replace('_', ' ')} files on {part.partition}"
        shares[words] = shares.get(words, 0) + part.ns
    if not shares:
        return "nothing", 0.0
    words = max(shares, key=lambda word: shares[word])
    return words, 100 * shares[words] / result.app.runtime_ns


def durability_line(result: AppResult) -> str:
    """Return a line of text on the cost of durability: file syncs, then flushes and synchronous writes."""
    counts, device = result.app.requests, Result(result.device)
    points = device.measured("durable.requests") if counts is None else counts.sync_points
    # A live run has no separate count of flushes. Instead, all requests are counted that are neither reads nor writes.
    flushes = device.requests.other or 0 if counts is None else counts.flushes
    mean, p99 = (device.measured(f"durable.{name}") for name in ("mean_ms", "p99_ms"))
    return (
        f"{result.app.file_syncs:,} syncs of files, mean {_ms(result.sync_mean_ms)}; {flushes:,} "
        f"{'flushes and discards' if counts is None else 'flushes'}; flushes, FUA and synchronous writes: "
        f"{'–' if points is None else f'{points:,}'}, mean {_ms(mean)}, p99 {_ms(p99)}"
    )


def order_note_of(results: Sequence[AppResult], provenance: ProvenanceFields) -> str:
    """Return a note if the devices of application runs must not be ranked by flushes and durable writes.

    `provenance` describes the devices.
    """
    devices = {device["name"]: device for device in provenance.get("devices", ())}
    fields = [run.device for run in results]
    return runs_note(
        [{**run, "provenance": {"devices": [devices[run.device]]}} for run in fields if run.device in devices]
    )


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:,.3f} ms"


def requests_line(result: AppResult) -> str:
    """Return a line of text on the requests that reached the device."""
    counts = result.app.requests
    if counts is None:
        # A live run has only the request counts of the device.
        counted = result.device.requests
        reads, writes = counted.bytes_read, counted.bytes_written
        sizes = (("reads", counted.read, reads), ("writes", counted.write, writes))
        return "; ".join(f"{count:,} {ops}, {size / 2**20:,.1f} MB" for ops, count, size in sizes)
    lines = []
    for op, group in (("read", counts.all.read), ("write", counts.all.write)):
        line = f"{group.requests:,} {op}s, {group.bytes / 2**20:,.1f} MB"
        if group.requests:
            line += f", {100 * group.sequential / group.requests:.0f} % sequential"
        lines.append(line)
    return "; ".join(lines)
