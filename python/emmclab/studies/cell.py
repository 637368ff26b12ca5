"""The cell of a study: one input profiled, or one input on one device; the unit that is run once and kept."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from emmclab import __version__, _core
from emmclab.devices.device import Device
from emmclab.errors import ConfigError, EmmclabError, InputError, UnsupportedError
from emmclab.runtime.build import build_digest
from emmclab.runtime.local_copies import file_digest, located
from emmclab.studies.app_cell import APP, run_app_cell
from emmclab.traces.reading import bundled, read, trace_name
from emmclab.traces.trace import Header, Ledger, Trace
from emmclab.traces.workload import Workload, benchmark, benchmarks, workloads

#: What parts the path of an input from the conditions on its requests.
_ONLY = " --only "
#: Inputs up to this many requests are held in memory from cell to cell.
_HELD_REQUESTS = 2_000_000
#: Options that may name a file.
_FILES = ("second", "precondition")
#: The form in which results are kept; those of another form are not found.
_KEPT_AS = 3
#: What stands for the grid of cells that profile an input.
PROFILE = "profile"
#: The mode of cells that cut power.
CUTS = "cuts"


@dataclass(frozen=True)
class Input:
    """A workload to make a trace of, or a trace file; `digest` is of the model or of the file's bytes."""

    name: str
    source: str
    synthetic: bool
    digest: str
    seed: int
    requests: int = 0
    #: Options of reading a trace file, as JSON.
    reading: str = "{}"
    #: A program of a live study, as JSON, in place of a trace.
    program: str = ""

    @staticmethod
    def of(
        source: str, seed: int, requests: int = 0, reading: Mapping[str, Any] = MappingProxyType({})
    ) -> Input:
        """Find an input by the name of a workload or annotated trace, or the path of a model or trace.

        `reading` are options of `emmclab.read` for a trace. Its path may be followed by
        ` --only KEY=VALUE,...`: the requests that are wanted.

        Raises:
            InputError: there is no such workload, or the file cannot be read.
            ConfigError: `requests` of a recording, or `--only` of a workload.
        """
        source, _, only = source.partition(_ONLY)
        made = Input._made(source, seed, requests)
        if made is not None:
            if only:
                raise ConfigError(
                    f"{source} is made, not recorded",
                    kind="config",
                    field="--only",
                    hint="give it to a recorded trace",
                )
            return made
        if requests:
            raise ConfigError(
                f"`requests = {requests}` for {source}, which is a recording",
                kind="config",
                field="requests",
                hint="give the grid inputs of its own: only a workload can be made longer or shorter",
            )
        name = f"{trace_name(source)} ({only})" if only else trace_name(source)
        if source in _annotated() and not Path(source).is_file():
            # Nothing in it is to be mended or left out.
            source, reading = _annotated()[source], {}
        options = json.dumps({**reading, "only": only} if only else dict(reading), sort_keys=True)
        path = str(Path(source).resolve())
        return Input(name, path, False, file_digest(source), seed, reading=options)

    @staticmethod
    def _made(source: str, seed: int, requests: int) -> Input | None:
        """Find a benchmark or a workload."""
        programs = {name.casefold(): name for name in benchmarks()}
        if source.casefold() in programs and not Path(source).exists():
            # A benchmark is code: the build that made it is part of every cell.
            name = programs[source.casefold()]
            return Input(name, name, True, name, seed, requests)
        known = {name.casefold() for name in workloads()}
        if source.endswith(".toml") or (source.casefold() in known and not Path(source).exists()):
            model = Workload.named(source)
            return Input(model.name, source, True, model.digest, seed, requests)
        return None

    def open(self) -> Trace:
        """Open the trace, or make it."""
        if self.synthetic and self.source in benchmarks():
            return benchmark(self.source, self.seed, requests=self.requests or None)
        if self.synthetic:
            return Workload.named(located(self.source)).trace(self.seed, requests=self.requests or None)
        return read(located(self.source), **json.loads(self.reading))


@functools.cache
def _annotated() -> dict[str, str]:
    """Return the annotated traces that come with emmclab by name."""
    return {path.stem: str(path) for path in bundled(annotated=True)}


class Images(NamedTuple):
    """A folder of preconditioned devices that cells share, and the most bytes in it; 0: none is kept."""

    folder: Path
    limit: int
    #: Where the logs of power cuts are kept.
    logs: Path | None = None


@dataclass(frozen=True)
class Cell:
    """One piece of work. `grid` is `profile`, or the name of a grid; only that has a device and options."""

    grid: str
    input: Input
    device: str = ""
    #: Device settings by dotted key, and options of the replay, or of the profile, as JSON.
    settings: str = "{}"
    device_name: str = ""
    device_digest: str = ""
    options: str = "{}"

    def identity(self) -> dict[str, Any]:
        """Return everything that determines the result, but for the version."""
        said: dict[str, Any] = {
            "grid": self.grid,
            "input": self.input.name,
            "input_digest": self.input.digest,
            "synthetic": self.input.synthetic,
            "requests_asked": self.input.requests,
            "seed": self.input.seed,
        }
        if self.input.reading != "{}":
            said["reading"] = json.loads(self.input.reading)
        if self.device:
            said |= {
                "device": self.device_name,
                "device_digest": self.device_digest,
                "settings": json.loads(self.settings),
                "options": json.loads(self.options),
            }
            if second := said["options"].get("second"):
                said["second_digest"] = Device.named(located(second)).digest
            aging = said["options"]["precondition"]
            if Path(located(aging)).is_file():
                said["precondition_digest"] = file_digest(aging)
        elif self.options != "{}":
            said["options"] = json.loads(self.options)
        return said

    @property
    def cuts_power(self) -> bool:
        """Whether a run is recorded and power is cut, in place of a simulation."""
        return bool(json.loads(self.options).get("mode") == CUTS)

    @functools.cached_property
    def prepared(self) -> tuple[object, ...]:
        """What takes time to make ready and is kept for the next cell: a device in use, else the input."""
        options = json.loads(self.options)
        if self.device and options.get("precondition", "none") != "none":
            return self.grid, self.device, self.settings, options.get("capacity"), options["precondition"]
        return self.grid, self.input

    @functools.cached_property
    def key(self) -> str:
        """SHA-256 of everything that decides the result."""
        decisive = {**self.identity(), "version": __version__, "build": build_digest(), "kept_as": _KEPT_AS}
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()

    def prepare(self, images: Images) -> bool:
        """Precondition the devices of the cell; False where another process is at one of them."""
        options = self._options()
        what = options.get("precondition", "none")
        if what == "none" or not images.limit:
            return True
        devices = [self._configured()]
        if options.get("second") and not Path(what).is_file():
            devices.append(Device.named(options["second"]))
        try:
            return all(
                device.precondition(images.folder, what, seed=self.input.seed, images_limit=images.limit)
                for device in devices
            )
        except EmmclabError as error:
            if error.errno is not None:
                raise
            # The run finds the same, and fails.
            return True

    def outcome(self, images: Images | None = None) -> dict[str, Any]:
        """Do the work; give all that determines the result as `cell`, and the `result`.

        It is the same on every computer, with and without `images`. What the inputs or settings make
        impossible is a result too: the cell has `failed`.
        """
        try:
            came = {"result": self._result(images)}
        except EmmclabError as error:
            if isinstance(error, (InputError, UnsupportedError)) or error.errno is not None:
                raise
            came = {"failed": {"message": str(error), "hint": error.hint}}
        return {"cell": self.identity(), **came}

    def files(self) -> list[str]:
        """Return the files that the cell reads: trace or model, devices, and a trace for preconditioning."""
        options = json.loads(self.options)
        named = (self.device, options.get("second") or "")
        found = [name for name in named if "/" in name or name.endswith(".toml")]
        if not self.input.synthetic or self.input.source.endswith(".toml"):
            found.append(self.input.source)
        if Path(aging := options.get("precondition", "none")).is_file():
            found.append(aging)
        return found

    def _options(self) -> dict[str, Any]:
        """Return the options, with files where they are on this machine."""
        options: dict[str, Any] = json.loads(self.options)
        for name in _FILES:
            if options.get(name):
                options[name] = located(options[name])
        return options

    def _configured(self) -> Device:
        device = Device.named(located(self.device))
        if self.settings != "{}":
            device = device.set(json.loads(self.settings))
        capacity = json.loads(self.options).get("capacity")
        if capacity:
            device = device.with_capacity(capacity)
        # A result of another device would be kept under the key of this one.
        if ("/" in self.device or self.device.endswith(".toml")) and device.digest != self.device_digest:
            raise InputError(
                f"{self.device}: this file has changed since the run of the study began",
                kind="io",
                file=self.device,
                hint="run the study again: cells that are finished stay, those of this device are other ones",
            )
        return device

    def _result(self, images: Images | None) -> dict[str, Any]:
        options = self._options()
        if self.input.program:
            return self._live_result(options, images)
        if self.cuts_power:
            return self._cuts_result(options, images)
        if options.get("mode") == APP:
            return run_app_cell(self.input.source, self._configured(), options, self.input.seed, images)
        trace = _prepared(self.input)
        if not self.device:
            return trace.profile(**options).to_dict()
        if images is not None and images.limit:
            options |= {"images": images.folder, "images_limit": images.limit}
        capacity = options.pop("capacity", None)
        result = self._configured().simulate(trace, seed=self.input.seed, **options).deterministic()
        # The study has version, settings and digests once, for all cells.
        del result["provenance"]
        # Files have the names that the study gives them, wherever copies lie.
        asked = json.loads(self.options)
        result["options"] |= {name: asked[name] for name in _FILES if name in result["options"]}
        if capacity:
            result["options"]["capacity"] = capacity
        return result

    def _live_result(self, options: dict[str, Any], images: Images | None) -> dict[str, Any]:
        from emmclab.studies.program import Program, run_program

        names = ("precondition", "layers", "layer_settings", "second")
        kept: dict[str, Any] = {name: options[name] for name in names if name in options}
        if images is not None and images.limit:
            kept |= {"images": images.folder, "images_limit": images.limit}
        program = Program.of(self.input.program)
        return run_program(program, self._configured(), {**kept, "seed": self.input.seed})

    def _cuts_result(self, options: dict[str, Any], images: Images | None) -> dict[str, Any]:
        from emmclab.studies.cuts_cell import run_cuts

        logs = None if images is None else images.logs
        return run_cuts(self.input.source, self._configured(), options, self.input.seed, logs)


class _Held:
    """A trace in memory, as a stream that can be opened again without generating or reading it again."""

    def __init__(self, batches: list[_core.Batch], header: Header, ledger: Ledger) -> None:
        self._batches, self._header, self._ledger = batches, header, ledger
        self._next: Iterator[_core.Batch] = iter(batches)

    def next(self) -> _core.Batch | None:
        return next(self._next, None)

    def header(self) -> Header:
        return self._header

    def ledger(self) -> Ledger:
        return self._ledger

    def progress(self) -> tuple[int, int | None]:
        return 0, None


@functools.lru_cache(maxsize=1)
def _prepared(source: Input) -> Trace:
    """Open an input and hold it in memory where it is small enough.

    A trace of several devices is refused: every figure would be of addresses that are not of one space.
    """
    trace = source.open()
    batches: list[_core.Batch] = []
    requests = 0
    for batch in trace.batches(one_device=True):
        requests += len(batch)
        if requests <= _HELD_REQUESTS:
            batches.append(batch)
    if requests > _HELD_REQUESTS:
        return trace
    header, ledger = trace.header, trace.ledger
    return Trace(trace.name, lambda: _Held(batches, header, ledger))  # type: ignore[arg-type, return-value]
