"""Functions that measure claims (measures) from a study's results, with a record of the data that they read."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from emmclab import _core
from emmclab.errors import ConfigError
from emmclab.runtime.document import Row
from emmclab.runtime.lists import Names
from emmclab.simulation.device import Device
from emmclab.simulation.result import Result
from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run
from emmclab.traces.profile import Profile
from emmclab.traces.trace import Trace


@dataclass(frozen=True)
class Measurement:
    """Result of measuring a claim: a text, the values that are checked, and a note for the reader.

    `by_device` has the values on each device if a claim is judged on several devices: the weakest verdict counts.
    `beside` has the values under other readings of the paper, by their texts; they are shown with their verdicts.
    """

    text: str
    values: dict[str, float]
    note: str = ""
    by_device: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    beside: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


Measure = Callable[[Results], Measurement]


def measure(function: Measure) -> Measure:
    """Mark a function that measures the values for a claim of a paper."""
    function.__dict__["is_measure"] = True
    return function


def find_measure(paper: str, name: str) -> Measure:
    """Return the function `MODULE.FUNCTION` in the folder of a paper, which measures a claim."""
    module, _, function = name.partition(".")
    try:
        measure = getattr(import_module(f"emmclab.papers.{paper}.{module}"), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{paper}: there is no measure `{name}`",
            field="measure",
            hint="write the measure as MODULE.FUNCTION of the paper's folder",
        ) from error
    if not getattr(measure, "is_measure", False):
        raise ConfigError(
            f"{paper}: `{name}` is not a function with the decorator `measure`",
            field="measure",
            hint="mark the function with `@measure`",
        )
    return measure  # type: ignore[no-any-return]


@dataclass
class Reads:
    """The data from which a claim was measured: published tables, fields of profiles, runs, and devices."""

    tables: dict[str, None] = field(default_factory=dict)
    #: Fields of profiles that the measurement used, as pairs of a trace name and the name of a field or figure.
    profiles: dict[tuple[str, str], None] = field(default_factory=dict)
    #: Runs that were read. The key is the `id()` of the run.
    runs: dict[int, Run] = field(default_factory=dict)
    #: Device presets on which the measuring function simulated a trace itself.
    devices: dict[str, None] = field(default_factory=dict)


_reads: ContextVar[Reads | None] = ContextVar("reads", default=None)


def _current_reads() -> Reads:
    """Return the record of data read by the running measurement; without one, a temporary record."""
    return _reads.get() or Reads()


class _WatchedProfile(Profile):
    """A profile that records every field and figure that is read from it, under the name of its trace."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(dict(profile))
        # `profile.name` is the name of the input, also if a recorded trace replaces a workload.
        self._input = profile.name

    def __getitem__(self, field: str) -> Any:
        if field != "figures":
            _current_reads().profiles[self._input, field] = None
        return super().__getitem__(field)

    def figure(self, name: str) -> list[Row]:
        _current_reads().profiles[self._input, name] = None
        return super().figure(name)


class _Watched(Results):
    """Results of a study that keep a record of the runs that are read."""

    def select(self, grid: str, *, among: Names | None = None, **values: Any) -> Iterator[Run]:
        for run in super().select(grid, among=among, **values):
            _current_reads().runs[id(run)] = run
            yield run


def run_measure(function: Measure, results: Results) -> tuple[Measurement, Reads]:
    """Run a function that measures a claim of a paper; return its result and a record of the data that it read."""
    reads = Reads()
    profiles: dict[str, Profile] = {name: _WatchedProfile(profile) for name, profile in results.profiles.items()}
    watched = _Watched(results.about, profiles, results.runs, results.digest, results.failures, results.cuts)
    token = _reads.set(reads)
    try:
        return function(watched), reads
    finally:
        _reads.reset(token)


def simulated(device: str, trace: Trace) -> Result:
    """Simulate a generated trace on a device preset, and record that the preset was used."""
    _current_reads().devices[device] = None
    return Device.preset(device).simulate(trace, mode="open")


def table(name: str) -> list[dict[str, str]]:
    """Return a published table as rows, and record that it was read."""
    _current_reads().tables[name] = None
    return list(csv.DictReader(io.StringIO(_core.published_csv()[name])))


def share(profile: Profile, figure: str, above: float = 0.0, to: float | None = None) -> float:
    """Return the percentage of the requests (or gaps) of a distribution that are between `above` and `to`.

    `figure` is the distribution. Both limits must be edges of its bins: KB for sizes, ms for times.
    """
    unit = "kb" if figure == "size_distribution" else "ms"
    total = 0.0
    for row in profile.figure(figure):
        low, high = row[f"low_{unit}"], row[f"high_{unit}"]
        inside = low >= above and (to is None or (high is not None and high <= to))
        if inside and row.get("op", "all") == "all":
            total += row["pct"]
    return total


def rate_by_size(profiles: Iterable[Profile], op: str, size_kb: float) -> float | None:
    """Return the MB/s of requests of exactly this size, each with equal weight (Figure 3); None if there are none."""
    rates = [
        (row["exact_requests"], row["exact_mean_mb_per_s"])
        for profile in profiles
        for row in profile.figure("throughput_by_size")
        if row["op"] == op and row["high_kb"] == size_kb and row["exact_requests"]
    ]
    count = sum(requests for requests, _ in rates)
    return sum(requests * rate for requests, rate in rates) / count if count else None
