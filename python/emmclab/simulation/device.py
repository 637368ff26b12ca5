"""Simulated devices: settings, runs, results."""

from __future__ import annotations

import json
import threading
import tomllib
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Unpack

from emmclab import _core
from emmclab.core_types import AnnouncedCapabilities, FittedFigure, SettingExplanation
from emmclab.errors import ConfigError, FormatError
from emmclab.runtime.files import note_written_files
from emmclab.simulation.layers import refuse_lines, stack
from emmclab.simulation.result import Result
from emmclab.simulation.run_options import (
    DEFAULTS,
    RunOptions,
    SimulationProgress,
    complete_options,
    parse_precondition,
    stored_options,
)
from emmclab.traces.inputs import ProvenanceFields, inputs_of, provenance_here
from emmclab.traces.profile_options import bin_ns, percentiles_of
from emmclab.traces.reading import combine, read
from emmclab.traces.trace import Ledger, Trace, refuse_pipes


class Provenance:
    """The provenance of a result; the files of the traces are hashed in a thread during the run."""

    def __init__(self, devices: Sequence[Device], traces: Sequence[Trace] = (), aged_by: Sequence[Trace] = ()) -> None:
        """Start to hash the files of the traces; `aged_by` are the traces that preconditioned the devices."""
        self._devices, self._traces, self._aged_by = devices, traces, aged_by
        all_traces = [*traces, *aged_by]
        self._hashing = threading.Thread(target=lambda: [trace.digest for trace in all_traces], daemon=True)
        self._hashing.start()

    def to_dict(self) -> ProvenanceFields:
        """Return the group `provenance` of a result.

        It has `version`, `command` (if a command produced it), `inputs`, `aged_by` (the trace that preconditioned
        the device, if any), `settings` and `devices`. The digest of an input is None if it is not a file, or
        cannot be read again. `settings` contains for each device the settings that differ from its preset.
        `devices` contains all settings of each device, the simulated one first.
        """
        self._hashing.join()
        return {
            **provenance_here(inputs_of(self._traces)),
            "aged_by": inputs_of(self._aged_by),
            "settings": {device.name: device.changes for device in self._devices},
            "devices": [{"name": device.name, "settings": tomllib.loads(device.to_toml())} for device in self._devices],
        }


#: Keys of the device settings that are seeds of random numbers.
_SEEDS = ("power.seed", "gc.seed")
#: Names of the run options that the Rust core implements.
_OF_THE_CORE = frozenset(_core.replay_defaults())


class Device:
    """The settings of a simulated device; immutable.

    >>> device = Device.preset("iiswc15-hps").set({"timing.parallelism": "both"})
    >>> device.name
    'iiswc15-hps'
    """

    def __init__(self, config: _core.DeviceConfig) -> None:
        """Wrap settings of the Rust core; use `preset`, `file` or `named` to create a device."""
        self._config = config

    @staticmethod
    def preset(name: str, capacity: str | None = None) -> Device:
        """Return a device that comes with emmclab, scaled to a capacity such as `128GB` if one is given.

        >>> len(presets()) >= 7
        True
        >>> Device.preset("nexus5", capacity="64GB").name
        'nexus5-64GB'
        """
        device = Device(_core.DeviceConfig.preset(name))
        return device if capacity is None else device.with_capacity(capacity)

    @staticmethod
    def file(path: str | PathLike[str]) -> Device:
        """Read a device from a TOML file; omitted settings have their defaults.

        >>> Device.file("no-such-device.toml")
        Traceback (most recent call last):
        ...
        emmclab.errors.InputError: no-such-device.toml: file not found

        Raises:
            ConfigError: lists every unknown key, wrong type and impossible value.
        """
        return Device(_core.DeviceConfig.file(path))

    @staticmethod
    def from_toml(text: str) -> Device:
        """Read a device from TOML text; omitted settings have their defaults.

        >>> device = Device.preset("nexus5")
        >>> Device.from_toml(device.to_toml()).digest == device.digest
        True

        Raises:
            ConfigError: lists every unknown key, wrong type and impossible value.
        """
        return Device(_core.DeviceConfig.from_toml(text))

    @staticmethod
    def named(name: str) -> Device:
        """Return a preset by its name, or read a file by its path (with a slash or ending in `.toml`).

        Raises:
            ConfigError: there is no such preset, or the file does not describe a device.
            InputError: the file cannot be read.

        >>> Device.named("nexus5").name
        'nexus5'
        """
        if is_file_name(name):
            return Device.file(name)
        try:
            return Device.preset(name)
        except ConfigError as error:
            if not Path(name).exists():
                raise
            kind = "a folder" if Path(name).is_dir() else "not a TOML file"
            raise ConfigError(f"{name} is {kind}, which describes no device", file=name, hint=error.hint) from None

    def with_capacity(self, capacity: str | int) -> Device:
        """Scale the device to a capacity by changing the number of blocks in each block group, in proportion.

        Nothing else changes. The capacity, such as `128GB` (1 GB is 1,024 MB) or a number of bytes, becomes a part of
        the name.

        Raises:
            ConfigError: the capacity is not a size, or no number of blocks results in it.

        >>> 64 <= Device.preset("nexus5").with_capacity("64GB").capacity_bytes / 2**30 < 65
        True
        """
        return Device(self._config.with_capacity(str(capacity).strip()))

    @property
    def capacity_bytes(self) -> int:
        """The capacity visible to the host, in bytes.

        >>> Device.preset("iiswc15-hps").capacity_bytes == 32 * 2**30
        True
        """
        return self._config.capacity

    @property
    def capabilities(self) -> AnnouncedCapabilities:
        """Return the capabilities of the device as its EXT_CSD register reports them (JESD84-B51, 7.4).

        `values_` has `interface`, `sectors`, `cache_kb`, `cache_in_order`, `barrier`, `reliable_write`,
        `packed_writes`, `packed_reads` and `queue_depth`; `ext_csd` the fields of the register: `name`,
        lowest `byte`, number of `bytes`, `value`.

        >>> Device.preset("emmc50-cache").capabilities.values_.barrier
        False
        """
        return AnnouncedCapabilities(self._config.capabilities())

    def fitted_figures(self) -> list[FittedFigure]:
        """Measure the figures to which a preset was fitted on the device, and compare them with the published ones.

        Returns rows of `source` (a table of `emmclab.traces.profile_fields`), `figure`, `unit`, `published`,
        `here`, `deviation_pct`, and the range `least` to `most` that agrees with the published figure: 10 %
        to either side, or all values that round to the printed figure; `most` is None if there is no upper bound.

        Raises:
            ConfigError: no published figures are known of this device.

        >>> Device.preset("small-1gb").fitted_figures()
        Traceback (most recent call last):
        ...
        emmclab.errors.ConfigError: `small-1gb` was not fitted to published figures...
        """
        return list(map(FittedFigure, _core.fitted_figures(self._config)))

    def set(self, values: Mapping[str, str | float | bool]) -> Device:
        """Set values by dotted key, such as `{"timing.parallelism": "both"}`; all are validated together.

        >>> Device.preset("small-1gb").set({"gc.polcy": "fifo"})
        Traceback (most recent call last):
        ...
        emmclab.errors.ConfigError: there is no setting `gc.polcy`...
        """
        refuse_lines(values)
        pairs = [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in values.items()]
        return Device(self._config.with_values(pairs))

    def __repr__(self) -> str:
        return f"<Device {self.name!r}>"

    @property
    def core(self) -> _core.DeviceConfig:
        """The settings in the form of the Rust core."""
        return self._config

    @property
    def name(self) -> str:
        """The name of the device in results."""
        return self._config.name

    @property
    def digest(self) -> str:
        """SHA-256 of all settings, first 16 digits."""
        import hashlib  # Imported here because it loads OpenSSL, for which a run should not wait.

        return hashlib.sha256(self.to_toml().encode()).hexdigest()[:16]

    def to_toml(self) -> str:
        """Return all settings as TOML; the same settings result in the same text.

        >>> Device.preset("nexus5").to_toml().splitlines()[0]
        'name = "nexus5"'
        """
        return self._config.to_toml()

    def explain(self) -> list[SettingExplanation]:
        """Return every setting with its value, default, unit, origin, meaning, and allowed values.

        `default` is None for entries of lists, which have none.

        >>> sorted(Device.preset("nexus5").explain()[0])
        ['allowed', 'default', 'doc', 'key', 'origin', 'unit', 'value']
        """
        return list(map(SettingExplanation, self._config.explain()))

    @property
    def changes(self) -> dict[str, str]:
        """Return settings that differ from the preset, as TOML values by key; for a device file, all its settings.

        >>> Device.preset("nexus5").set({"gc.policy": "fifo"}).changes
        {'gc.policy': '"fifo"'}
        """
        return {
            row.key: row.value
            for row in self.explain()
            if row.origin != "default" and not row.origin.startswith("preset ")
        }

    def bandwidths(self, units_kb: Sequence[int]) -> list[dict[str, float]]:
        """Measure sequential and random bandwidth of the device full of data (Kim & Kim, Table II).

        Returns for each transfer size `unit_kb`, and `seq_read_mb_s`, `seq_write_mb_s`, `random_read_mb_s`
        and `random_write_mb_s` in MB/s of 1,048,576 bytes.

        >>> [row["unit_kb"] for row in Device.preset("small-1gb").bandwidths([2048])]
        [2048]
        """
        return _core.bandwidths(self._config, list(units_kb))

    def seeded(self, seed: int) -> Device:
        """Return a copy of the device whose random seeds are shifted by the seed of a run: `seed` - 1 is added to each.

        The seeds are those of the wake-up times (`power.seed`) and of random choices in garbage collection (`gc.seed`).

        >>> rows = Device.preset("nexus5").seeded(3).explain()
        >>> [row.value for row in rows if row.key == "power.seed"]
        ['2']
        """
        if seed == 1:
            return self
        seeds = {row.key: int(row.value) for row in self.explain() if row.key in _SEEDS}
        # The result stays a non-negative integer of 63 bits, as required of seeds.
        return self.set({key: (value + seed - 1) % 2**63 for key, value in seeds.items()})

    def precondition(
        self, images: str | PathLike[str], what: str, *, seed: int = 1, images_limit: int | None = None
    ) -> bool:
        """Precondition the device for later runs, and store it in the folder `images` unless it is there.

        `what`, `seed` and `images_limit` are as in `simulate`. Returns False if another process is
        preconditioning the same device.

        >>> import tempfile
        >>> device = Device.preset("small-1gb").set({"geometry.block_groups.0.blocks": 32})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     device.precondition(folder, "random:50"), len(list(Path(folder).iterdir()))
        (True, 1)
        """
        aging = parse_precondition(what)
        return _core.precondition(
            self.seeded(seed)._config,
            {"precondition": aging.way.text, "seed": seed},
            images,
            images_limit=images_limit,
            aged_by=None if aging.trace is None else [read(aging.trace).open()],
        )

    def simulate(self, *traces: Trace, **options: Unpack[RunOptions]) -> Result:
        """Replay traces on the device (several traces share one clock and start together).

        Args:
            traces: the workload.
            options: options of the run, by name; `emmclab.simulation.run_options.RunOptions` describes each.

        Raises:
            ConfigError: a setting or option is impossible; the trace does not fit the device; the trace contains
                several devices (`read(..., only="device=NAME")` selects one); or `victim` returns something other than
                a full block of its view.
            EmmclabError: reading the trace fails.
            Exception: any exception of `victim` ends the run.

        >>> import emmclab
        >>> result = Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0]))
        >>> result.requests.total > 0 and result.response.mean_response_ms > 0
        True
        >>> run = Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0]), percentiles=[99.9])
        >>> [(row.op, row.percentile) for row in run.percentiles][0]
        ('all', 99.9)

        A victim policy that chooses the block with the fewest valid units, the oldest one among equals:

        >>> def fewest(view):
        ...     return min(view.full_blocks, key=view.valid, default=None)
        >>> device = Device.preset("small-1gb").set({"geometry.block_groups.0.blocks": 32})
        >>> trace = emmclab.read(emmclab.bundled()[0])
        >>> run = {"precondition": "steady:1", "wrap_addresses": True}
        >>> device.simulate(trace, victim=fewest, **run).options["victim"]
        'fewest'
        """
        if not traces:
            raise ConfigError("there is no trace to simulate", hint="give at least one")
        values = complete_options(options)
        aging = parse_precondition(values["precondition"])
        values["precondition"] = aging.text
        # A preconditioning trace is passed to the core separately.
        replay = {name: value for name, value in values.items() if name in _OF_THE_CORE} | {
            "precondition": aging.way.text,
            "percentiles": percentiles_of(values["percentiles"]),
        }
        job_file = _job_file(traces, values)
        source = traces[0] if len(traces) == 1 else combine(traces)
        paced = replay
        if job_file is None:
            stream = (source.repeated(values["passes"]) if values["passes"] > 1 else source).open(one_device=True)
        if job_file is None and isinstance(stream, _core.Reader):
            chosen = _core.check_traces(self._config, replay, [stream])
            paced = replay | {"mode": chosen["mode"], "mode_reason": chosen["reason"]}
        if isinstance(values["second"], str):
            values["second"] = Device.named(values["second"])
        second: Device | None = values["second"]
        aged_by = [] if aging.trace is None else [read(aging.trace)]
        devices = [self] if second is None else [self, second]
        provenance = Provenance(devices, traces, aged_by) if values["provenance"] else None
        run = _core.Simulation(
            self.seeded(values["seed"])._config,
            paced,
            images=_path(values["images"]),
            images_limit=values["images_limit"],
            rows=_path(values["events"]),
            aged_by=[trace.open() for trace in aged_by] or None,
            layers=stack(values["layers"], values["layer_settings"]),
            second=None if second is None else second.seeded(values["seed"])._config,
            victim=values["victim"],
            over_time=_bin_ns(values["over_time"]),
            perfetto=_path(values["perfetto"]),
        )
        if job_file is None:
            try:
                ledger = _drive(run, stream, values["progress"])
            except FormatError as error:
                # The device does not know where a rejected request is in the trace, so only the file is added.
                raise error.in_file(str(source.path or source.name)) from None
        else:
            replaced = [(name, str(values[name])) for name in _OF_JOBS if values[name]]
            host = None if values["fio_host"] == "none" else setup_of(values["fio_host"])
            jobs = _core.FioRun(run, job_file, values["seed"], host, values["wrap_addresses"], replaced)
            _drive_jobs(jobs, values["progress"])
        stored = stored_options(values)
        provenance_fields = {} if provenance is None else {"provenance": provenance.to_dict()}
        description = {"trace": source.name, "device": self.name, **provenance_fields, "options": stored}
        with note_written_files(values["events"], values["perfetto"]):
            about = json.dumps(description)
            result = run.finish(ledger, stream.header(), about) if job_file is None else jobs.finish(about)
        return Result({"trace": source.name, **result, **provenance_fields, "options": stored})


def _path(path: str | PathLike[str] | None) -> str | None:
    return None if path is None else fspath(path)


def _bin_ns(over_time: bool | str | float) -> int | None:
    """Return the width of the time bins in ns, 0 for automatic bins; None if none were requested."""
    return None if over_time is False else bin_ns(None if over_time is True else over_time)


def presets() -> list[str]:
    """List the devices that come with emmclab.

    >>> "nexus5" in presets()
    True
    """
    return list(_core.device_presets())


def _drive(run: _core.Simulation, stream: _core.Reader, progress: SimulationProgress | None) -> Ledger:
    """Feed the trace until it ends or the device stops; return the ledger of the reader."""
    requests = 0
    while (batch := stream.next()) is not None and run.feed(batch):
        requests += len(batch)
        if progress is not None:
            progress(*stream.progress(), requests, run.simulated_ns() / 1e9)
    return stream.ledger()


#: Number of requests of a job file between two reports of the progress.
_REQUESTS_AT_ONCE = 1 << 14
#: Options of a run that replace those of the same name in a job file.
_OF_JOBS = ("rw", "bs", "iodepth", "numjobs")
#: Options that a job file excludes, each with what replaces it.
_NOT_FOR_JOBS = {
    "passes": "set loops= in the job file",
    "rate": "set rate= or rate_iops= in the job file",
    "flush_every": "set fsync= in the job file",
}


def runs_as_jobs(trace: Trace, mode: str) -> bool:
    """Return whether a trace is a fio job file, and its jobs run in closed loop in this mode of a run."""
    return trace.is_job_file and mode in ("auto", "closed")


def _job_file(traces: Sequence[Trace], values: Mapping[str, Any]) -> str | None:
    """Return the path of the fio job file that runs in closed loop; None if there is none."""
    jobs = [trace for trace in traces if runs_as_jobs(trace, values["mode"])]
    if not jobs:
        for option in (*_OF_JOBS, "fio_host"):
            if values[option] != DEFAULTS[option]:
                problem = f"`{option}` has an effect only on fio job files in closed loop"
                raise ConfigError(problem, field=option, hint="leave it out, or give a job file as the only trace")
        return None
    name = jobs[0].name
    if len(traces) > 1:
        raise ConfigError(f"{name} is a fio job file, which runs alone", hint="write all jobs into one file")
    for option, instead in _NOT_FOR_JOBS.items():
        if values[option] != DEFAULTS[option]:
            raise ConfigError(f"`{option}` has no effect on the fio job file {name}", field=option, hint=instead)
    refuse_pipes(jobs, "read a second time, when its jobs run")
    if jobs[0].reading:
        option = next(iter(jobs[0].reading))
        raise ConfigError(
            f"`{option}` has no effect on the fio job file {name}, which runs in closed loop",
            field=option,
            hint="leave it out, or use `--mode open`",
        )
    return jobs[0].path


def setup_of(name: str) -> _core.HostSetup:
    """Return a host (the computer that runs applications): by its name, or by the path of its TOML file."""
    return _core.HostSetup.file(name) if is_file_name(name) else _core.HostSetup.preset(name)


def is_file_name(name: str) -> bool:
    """Return whether a name is the path of a TOML file instead of the name of a preset."""
    return "/" in name or name.endswith(".toml")


def _drive_jobs(run: _core.FioRun, progress: SimulationProgress | None) -> None:
    """Run the jobs of a file until they end or the device stops."""
    while run.advance(_REQUESTS_AT_ONCE):
        if progress is not None:
            simulated_ns, duration_ns, requests = run.progress()
            progress(simulated_ns, duration_ns, requests, simulated_ns / 1e9)


def lie_of(device: Device) -> str:
    """Return the durability guarantee that a device breaks on purpose (`cache.lies`); `none` if it keeps all.

    >>> lie_of(Device.preset("small-1gb"))
    'none'
    """
    settings: dict[str, str] = {row.key: row.value for row in device.explain()}
    return settings.get("cache.lies", "none").strip('"')
