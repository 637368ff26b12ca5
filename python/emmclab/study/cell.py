"""The cell of a study: one input profiled, or one input on one device; the unit that is run once and kept."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from emmclab import __version__, _core
from emmclab.device import Device
from emmclab.errors import ConfigError, InputError
from emmclab.trace import Header, Ledger, Trace, read, trace_name
from emmclab.workload import Workload, benchmark, benchmarks, workloads

#: What parts the path of an input from the conditions on its requests.
_ONLY = " --only "
#: Inputs up to this many requests are held in memory from cell to cell.
_HELD_REQUESTS = 2_000_000


@dataclass(frozen=True)
class Input:
    """A workload to make a trace of, or a trace file; `digest` is of the model or of the file's bytes."""

    name: str
    source: str
    synthetic: bool
    digest: str
    seed: int
    requests: int = 0
    #: Conditions on the requests of a trace, as `--only` takes them.
    only: str = ""

    @staticmethod
    def of(source: str, seed: int, requests: int = 0) -> Input:
        """Find an input by the name of a workload, or the path of a model (`.toml`) or trace.

        The path of a trace may be followed by ` --only KEY=VALUE,...`: its requests that are wanted.

        Raises:
            InputError: there is no such workload, or the file cannot be read.
            ConfigError: `requests` of a recording, or `--only` of a workload.
        """
        path, _, only = source.partition(_ONLY)
        found = Input._found(path, seed, requests)
        if not only:
            return found
        if found.synthetic:
            raise ConfigError(
                f"{path} is made, not recorded",
                kind="config",
                field="--only",
                hint="give it to a recorded trace",
            )
        return replace(found, name=f"{found.name} ({only})", only=only)

    @staticmethod
    def _found(source: str, seed: int, requests: int) -> Input:
        programs = {name.casefold(): name for name in benchmarks()}
        if source.casefold() in programs and not Path(source).exists():
            # A benchmark is code: the build that made it is part of every cell.
            name = programs[source.casefold()]
            return Input(name, name, True, name, seed, requests)
        known = {name.casefold() for name in workloads()}
        if source.endswith(".toml") or (source.casefold() in known and not Path(source).exists()):
            model = Workload.named(source)
            return Input(model.name, source, True, model.digest, seed, requests)
        if requests:
            raise ConfigError(
                f"`requests = {requests}` for {source}, which is a recording",
                kind="config",
                field="requests",
                hint="only a workload can be made longer or shorter; give the grid inputs of its own",
            )
        return Input(trace_name(source), str(Path(source).resolve()), False, _file_digest(source), seed)

    def open(self) -> Trace:
        """Open the trace, or make it."""
        if self.synthetic and self.source in benchmarks():
            return benchmark(self.source, self.seed, requests=self.requests or None)
        if self.synthetic:
            return Workload.named(self.source).trace(self.seed, requests=self.requests or None)
        return read(self.source, only=self.only or None)


@functools.cache
def _file_digest(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        hint = "name a workload (`emmclab synth` lists them) or the path of a trace"
        raise InputError.of(error, path, hint) from error


@functools.cache
def build_digest() -> str:
    """SHA-256 of the compiled core, first 16 digits: results of another build are not those of this one."""
    with Path(_core.__file__).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


@dataclass(frozen=True)
class Cell:
    """One piece of work. `grid` is `profile`, or the name of a grid; only that has a device and options."""

    grid: str
    input: Input
    device: str = ""
    #: Device settings by dotted key, and options of the replay, as JSON.
    settings: str = "{}"
    device_name: str = ""
    device_digest: str = ""
    options: str = "{}"

    def identity(self) -> dict[str, Any]:
        """Give everything that determines the result, but for the version."""
        said: dict[str, Any] = {
            "grid": self.grid,
            "input": self.input.name,
            "input_digest": self.input.digest,
            "synthetic": self.input.synthetic,
            "requests_asked": self.input.requests,
            "seed": self.input.seed,
        }
        if self.input.only:
            said["only"] = self.input.only
        if self.device:
            said |= {
                "device": self.device_name,
                "device_digest": self.device_digest,
                "settings": json.loads(self.settings),
                "options": json.loads(self.options),
            }
            if second := said["options"].get("second"):
                said["second_digest"] = Device.named(second).digest
            aging = Path(said["options"]["precondition"])
            if aging.is_file():
                said["precondition_digest"] = _file_digest(str(aging))
        return said

    @property
    def key(self) -> str:
        """SHA-256 of everything that decides the result."""
        decisive = {**self.identity(), "version": __version__, "build": build_digest()}
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()

    def run(self) -> str:
        """Do the work; the result as JSON, the same on every computer."""
        trace = _prepared(self.input)
        if not self.device:
            result = trace.profile().to_dict()
        else:
            device = Device.named(self.device)
            if self.settings != "{}":
                device = device.set(json.loads(self.settings))
            options = json.loads(self.options)
            if "card" in options:
                result = device.beside(Device.named(options["card"]), options["routing"], trace)
            else:
                result = device.simulate(trace, seed=self.input.seed, **options).deterministic()
        return json.dumps({"cell": self.identity(), "result": result}, ensure_ascii=False, allow_nan=False)


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
