"""Inputs of a study: traces, workloads, programs, applications, and recordings that replace workloads."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from emmclab import _core
from emmclab.errors import ConfigError, EmmclabError
from emmclab.runtime.local_copies import file_digest, local_path
from emmclab.simulation.layers import Setting
from emmclab.studies.program import Program
from emmclab.studies.stored_types import RecordingsAbout
from emmclab.traces.reading import bundled_by_name, read, trace_name
from emmclab.traces.trace import Header, Ledger, Trace
from emmclab.traces.workload import Workload, benchmark, benchmarks, canonical_benchmark, workload_groups, workloads

#: Separators in the name of an input: before conditions on requests, and before the number of requests.
_ONLY, _REQUESTS = " --only ", " --requests "


@dataclass(frozen=True)
class Input:
    """A workload that generates a trace, or a trace file; `digest` is that of the workload model or of the file."""

    name: str
    source: str
    synthetic: bool
    digest: str
    seed: int
    requests: int = 0
    #: Options with which a trace file is read, as JSON.
    reading: str = "{}"
    #: Program of a live study that runs instead of a trace, as JSON; empty for a trace.
    program: str = ""

    @staticmethod
    def of(source: str, seed: int, requests: int = 0, reading: Mapping[str, Setting] = MappingProxyType({})) -> Input:
        """Find an input by the name of a workload or annotated trace, or by the path of a model or trace.

        `reading` are options of `emmclab.read` for a trace. ` --only KEY=VALUE,...` after the path of a trace selects
        requests. ` --requests N` after the name of a workload overrides `requests`.
        """
        source, _, only = source.partition(_ONLY)
        source, _, count = source.partition(_REQUESTS)
        requests = _number(source, count) if count else requests
        generated = Input._generated(source, seed, requests)
        if generated is not None:
            if count:
                generated = replace(generated, name=f"{generated.name} ({requests:,} requests)")
            if only:
                raise ConfigError(
                    f"{source} is generated, not recorded", field="--only", hint="use the option with a recorded trace"
                )
            return generated
        if requests:
            raise ConfigError(
                f"{source} is a recording, so `requests = {requests}` cannot change its length",
                field="requests",
                hint="leave out `requests` for a recording, or use a workload as the input",
            )
        name = f"{trace_name(source)} ({only})" if only else trace_name(source)
        if source in bundled_by_name() and not Path(source).is_file():
            # A bundled trace is generated, so options for reading do not affect it.
            source, reading = str(bundled_by_name()[source]), {}
        options = json.dumps({**reading, "only": only} if only else dict(reading), sort_keys=True)
        path = str(Path(source).resolve())
        return Input(name, path, False, file_digest(source), seed, reading=options)

    @staticmethod
    def _generated(source: str, seed: int, requests: int) -> Input | None:
        """Find a benchmark or a workload; None if there is none of this name."""
        name = canonical_benchmark(source)
        if name is not None and not Path(source).exists():
            # The name is sufficient as digest, because the key of every cell contains the build of emmclab.
            return Input(name, name, True, name, seed, requests)
        preset_names = {name.casefold() for name in workloads()}
        if source.endswith(".toml") or (source.casefold() in preset_names and not Path(source).exists()):
            model = Workload.named(source)
            return Input(model.name, source, True, model.digest, seed, requests)
        return None

    def is_job_file(self) -> bool:
        """Return whether the file is a job file of fio; False if it cannot be read, which the run of a cell reports."""
        try:
            return not self.synthetic and self.open().is_job_file
        except EmmclabError:
            return False

    def open(self) -> Trace:
        """Open the trace, or generate it."""
        if self.synthetic and self.source in benchmarks():
            return benchmark(self.source, self.seed, requests=self.requests or None)
        if self.synthetic:
            return Workload.named(local_path(self.source)).trace(self.seed, requests=self.requests or None)
        return read(local_path(self.source), **json.loads(self.reading))


def _number(source: str, text: str) -> int:
    """Parse the number of requests that follows the name of a workload."""
    if not text.isdecimal() or not int(text):
        raise ConfigError(
            f"{source}: `{text}` is not a number of requests",
            field="--requests",
            hint="give a number of requests of 1 or more, for example `--requests 4000`",
        )
    return int(text)


class Sources:
    """Inputs of a study by name; inputs with the same name are distinguished by their files."""

    def __init__(self, reading: Mapping[str, Setting], programs: Mapping[str, Program]) -> None:
        """Set the study's options for reading traces, and its programs by name."""
        self._reading = reading
        self.programs = programs
        self._files: dict[str, str] = {}

    def trace(self, name: str, seed: int, requests: int = 0) -> Input:
        """Find a trace or a workload."""
        source = Input.of(name, seed, requests, self._reading)
        if self._files.setdefault(source.name, source.source) != source.source:
            source = replace(source, name=f"{source.name} ({Path(name).name})")
        return source


#: Maximum number of requests of a trace that is kept in memory between the runs of a study.
_HELD_REQUESTS = 2_000_000


class _CachedTrace:
    """A trace in memory, which can be opened repeatedly without generating or reading it again."""

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
def open_cached(source: Input) -> Trace:
    """Open an input, and cache it in memory if it is small enough.

    A trace of several devices is rejected, because each device has its own address space.
    """
    trace = source.open()
    if trace.is_job_file:
        return trace
    batches: list[_core.Batch] = []
    requests = 0
    for batch in trace.batches(one_device=True):
        requests += len(batch)
        if requests <= _HELD_REQUESTS:
            batches.append(batch)
    if requests > _HELD_REQUESTS:
        return trace
    header, ledger = trace.header, trace.ledger
    return Trace(trace.name, lambda: _CachedTrace(batches, header, ledger))  # type: ignore[arg-type, return-value]


@dataclass(frozen=True)
class StandIn:
    """A recorded trace that replaces a workload, and how it was identified."""

    file: str
    workload: str
    how: str


@dataclass(frozen=True)
class Recordings:
    """The recorded traces of a folder: those that replace workloads, and files that do not."""

    folder: str
    used: tuple[StandIn, ...]
    #: Files that were left out, each with its name and the reason.
    left_out: tuple[tuple[str, str], ...] = ()

    def of(self, inputs: Sequence[str]) -> list[str]:
        """Return the paths of the traces that replace these inputs, which may be names of groups of workloads."""
        groups = workload_groups()
        names = {member for name in inputs for member in groups.get(name, [name])}
        return [self._path(stand_in) for stand_in in self.used if stand_in.workload in names]

    def _path(self, stand_in: StandIn) -> str:
        return str(Path(self.folder, stand_in.file))

    def about(self, inputs: Mapping[str, str]) -> RecordingsAbout:
        """Return a description of the recordings, which is stored with the results of a study.

        `inputs` contains the name of each input by the absolute path of its file.
        """
        return {
            "folder": self.folder,
            "used": [
                {
                    "file": stand_in.file,
                    "workload": stand_in.workload,
                    "how": stand_in.how,
                    "input": inputs[str(Path(self._path(stand_in)).resolve())],
                }
                for stand_in in self.used
            ],
            "left_out": [list(stand_in) for stand_in in self.left_out],
        }
