"""Workloads: models of storage accesses, fitted to traces; and generated traces, also those of job files of fio."""

import functools
import hashlib
from collections.abc import Callable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, cast

from emmclab import _core
from emmclab.core_types import ClockJumpRow
from emmclab.errors import ConfigError
from emmclab.runtime.document import duration, figure_difference
from emmclab.traces.profile import FieldDifference, Profile
from emmclab.traces.profile_fields import TABLES, jumps_text
from emmclab.traces.trace import Progress, Trace, refuse_coarse_clock


class Workload:
    """A model of an application's storage accesses; contains no address, name or date of any trace.

    >>> Workload.preset("Messaging").name
    'Messaging'
    """

    def __init__(self, model: _core.WorkloadModel) -> None:
        """Wrap a model of the Rust core; use `preset`, `file`, `named` or `fit` to create a workload."""
        self._model = model

    @staticmethod
    def preset(name: str) -> "Workload":
        """Return a bundled workload: of IISWC 2015 or of a phone of 2022 (`workload_groups`).

        >>> Workload.preset("twitter").name
        'Twitter'
        """
        return Workload(_core.WorkloadModel.preset(name))

    @staticmethod
    def file(path: str | PathLike[str]) -> "Workload":
        """Read a model from a TOML file, as `emmclab fit` writes it.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "mine.toml")
        ...     _ = path.write_text(Workload.preset("Email").to_toml())
        ...     Workload.file(path).digest == Workload.preset("Email").digest
        True
        """
        return Workload(_core.WorkloadModel.file(path))

    @staticmethod
    def named(name: str) -> "Workload":
        """Return a preset by its name, or read a file by its path (ending in `.toml`).

        >>> Workload.named("Movie").name
        'Movie'
        """
        return Workload.file(name) if name.endswith(".toml") else Workload.preset(name)

    def __repr__(self) -> str:
        return f"<Workload {self.name!r}>"

    @property
    def name(self) -> str:
        """The name of the workload, as used in traces and results."""
        return self._model.name

    @property
    def digest(self) -> str:
        """SHA-256 of all values, first 16 digits."""
        return hashlib.sha256(self.to_toml().encode()).hexdigest()[:16]

    def to_toml(self) -> str:
        """Return all values as TOML; the same model results in the same text.

        >>> "[bursts]" in Workload.preset("Movie").to_toml()
        True
        """
        return self._model.to_toml()

    def trace(
        self, seed: int = 1, *, requests: int | None = None, duration_s: float | None = None, rate_pct: int = 100
    ) -> Trace:
        """Generate a trace; the same model, seed and options result in the same bytes.

        Args:
            seed: seed of all random choices.
            requests: number of requests, instead of the model's.
            duration_s: time from the first arrival to the last completion, instead of the model's.
            rate_pct: rate of arrivals, percent of the model's; idle gaps shrink or grow.

        >>> Workload.preset("Messaging").trace().profile()["requests"]
        5702
        """
        _require_numbers(seed, requests)
        _require("rate_pct", rate_pct, 1)
        duration_ns = None if duration_s is None else round(duration_s * 1e9)

        def synthesis() -> _core.GeneratedTrace:
            return _core.GeneratedTrace.synthesis(
                self._model, seed=seed, requests=requests, duration_ns=duration_ns, rate_pct=rate_pct
            )

        # A generated trace can be passed as a reader, because it has the same methods.
        return Trace(self.name, cast("Callable[[], _core.Reader]", synthesis))


_SIZES = ("reads.sizes_kb", "writes.sizes_kb")
_GAPS = ("bursts.opens_pct", "bursts.rounds", "bursts.think_us", "bursts.idle_ms")
#: By field or figure of a profile: the model parameters that determine its value in the generated trace.
PARAMETERS_OF: dict[str, tuple[str, ...]] = {
    "requests": _SIZES,
    "write_requests_pct": _SIZES,
    "max_size_kb": _SIZES,
    "size_distribution": _SIZES,
    "duration_s": ("duration_s",),
    "arrival_rate_per_s": ("duration_s", *_SIZES),
    "access_rate_kb_per_s": ("duration_s", *_SIZES),
    "spatial_locality_pct": ("reads.sequential_pct", "writes.sequential_pct"),
    "temporal_locality_pct": ("reads.reaccess_pct", "writes.reaccess_pct"),
    "reuse_distance": ("reads.reuse_requests", "writes.reuse_requests"),
    "inter_arrival_distribution": _GAPS,
    "no_wait_pct": ("service.no_wait_pct",),
    "mean_service_ms": ("service.mean_service_ms",),
    "mean_response_ms": ("service.mean_response_ms",),
    "response_distribution": (
        "service.no_wait_pct",
        "service.mean_service_ms",
        "service.mean_response_ms",
        "service.round_requests",
        "service.wake_up_ms",
        "service.read_us",
        "service.write_us",
        "bursts.opens_pct",
        *_SIZES,
    ),
    "size_response_correlation": (
        "service.no_wait_pct",
        "service.mean_service_ms",
        "service.mean_response_ms",
        "service.read_us",
        "service.write_us",
        *_SIZES,
    ),
    "throughput_by_size": ("service.read_us", "service.write_us"),
}


def benchmarks() -> dict[str, str]:
    """List the benchmarks that come with emmclab, each with its description.

    >>> "Postmark" in benchmarks()
    True
    """
    return {name: about for name, about, _ in _core.benchmark_names()}


def canonical_benchmark(name: str) -> str | None:
    """Return the canonical name of a benchmark; None for other names.

    >>> canonical_benchmark("postmark")
    'Postmark'
    """
    return {benchmark_name.casefold(): benchmark_name for benchmark_name in benchmarks()}.get(name.casefold())


def benchmark_sources(name: str) -> frozenset[str]:
    """Return the claims and published figures on which a benchmark is based; empty for other names.

    >>> benchmark_sources("Phone_6H")
    frozenset({'advil-fig9-fill'})
    """
    return frozenset(source for title, _, sources in _core.benchmark_names() if title == name for source in sources)


def benchmark(name: str, seed: int = 1, *, requests: int | None = None) -> Trace:
    """Generate the trace of a benchmark, which ends after `requests` if they are not None.

    >>> benchmark("SequentialWrite", requests=3).profile()["requests"]
    3
    """
    return Trace(
        canonical_benchmark(name) or name,
        cast("Callable[[], _core.Reader]", lambda: _core.GeneratedTrace.benchmark(name, seed=seed, requests=requests)),
    )


def workloads() -> list[str]:
    """List the workloads that come with emmclab, group by group.

    >>> len(workloads())
    33
    """
    return [name for names in workload_groups().values() for name in names]


@functools.cache
def workload_groups() -> dict[str, list[str]]:
    """Return the groups of the workloads that come with emmclab, each with the names of its workloads.

    `applications` and `combos` are those of IISWC 2015, modelled only from its published figures. `phones` are
    applications of 2022 and their installations, fitted to public traces of a Pixel 6a.

    >>> {group: len(names) for group, names in workload_groups().items()}
    {'applications': 18, 'combos': 7, 'phones': 8}
    """
    return dict(_core.workload_presets())


#: Default name of a fitted model; the name of the trace file is not used, because it could reveal people and dates.
FITTED = "fitted"


def fit(trace: Trace, progress: Progress | None = None, *, name: str = FITTED) -> Workload:
    """Fit a model to a trace in one pass; the model does not contain the trace's name, unless given as `name`.

    Raises:
        UnsupportedError: the clock of the trace is too coarse for the times between its requests.

    >>> fit(Workload.preset("Email").trace(), name="mail").name
    'mail'
    """
    fitter = _core.Fitter(name)
    for batch in trace.batches(progress, one_device=True):
        fitter.update(batch)
    refuse_coarse_clock(trace.name, trace.header, "the times between its requests")
    return Workload(fitter.finish())


def differences(first: Profile, second: Profile) -> list[FieldDifference]:
    """Return every field of Tables III and IV of two profiles with the difference, second minus first.

    Fields that a clock jump distorts are compared without the jumps, if these values are known.

    >>> twins = [Workload.preset("Email").trace(seed).profile() for seed in (1, 2)]
    >>> rows = differences(*twins)
    >>> max(abs(row["difference_pct"] or row["difference_points"] or 0) for row in rows) < 2
    True
    """
    rows: list[FieldDifference] = []
    for title, fields in TABLES:
        for field in fields:
            a, b = (_without_jumps(profile, field.name) for profile in (first, second))
            difference = figure_difference(a, b, is_share=field.unit == "%")
            rows.append({"table": title.partition(":")[0], "field": field.name, **difference})
    return rows


def _without_jumps(profile: Profile, field: str) -> Any:
    """Return the value of a profile field, without the effect of clock jumps if that value is known."""
    figures = profile["key_figures_without_jumps"] if profile.clock_jumps else None
    return figures[field] if figures and field in figures else profile[field]


def jump_notes(profiles: Sequence[Profile]) -> list[str]:
    """Return a note on each profile with clock jumps that were not removed: how they affect a comparison.

    >>> jump_notes([Workload.preset("Email").trace().profile()])
    []
    """
    notes = []
    for profile in profiles:
        jumps = [jump for jump in profile.clock_jumps if not jump.mended]
        if jumps:
            effect = (
                "duration and rates are compared without"
                if profile["key_figures_without_jumps"]
                else "duration and rates contain"
            )
            them = "it" if len(jumps) == 1 else "them"
            notes.append(
                f"{profile.name}: {jumps_text(len(jumps))}, {_seconds(jumps)} together; {effect} {them}; "
                f"--mend-clock takes {them} out of all figures"
            )
    return notes


def _seconds(jumps: Sequence[ClockJumpRow]) -> str:
    return duration(sum(jump.length_s for jump in jumps))


def fit_note(trace: Trace) -> str:
    """Return a note on clock jumps in a trace, because a fitted model contains them as pauses; empty without jumps.

    >>> fit_note(Workload.preset("Email").trace())
    ''
    """
    jumps = [jump for jump in trace.clock_jumps if not jump.mended]
    if not jumps:
        return ""
    return (
        f"{trace.name}: {jumps_text(len(jumps))}, {_seconds(jumps)} together; the model contains the time "
        "as a pause; --mend-clock leaves it out"
    )


def open_input(name: str, seed: int = 1, **reading: Any) -> Trace:
    """Open a trace file by its path, or generate the trace of a workload (preset, or model in `.toml`).

    `reading` are options of `emmclab.read`, which concern files only.

    >>> open_input("Twitter").name
    'Twitter'
    """
    from emmclab.traces.reading import or_bundled, read

    if name.endswith(".toml"):
        return Workload.file(name).trace(seed)
    if not Path(name).exists() and name.casefold() in (workload.casefold() for workload in workloads()):
        return Workload.preset(name).trace(seed)
    if not Path(name).exists() and canonical_benchmark(name):
        return benchmark(name, seed)
    return read(or_bundled(Path(name)), **reading)


#: Letters for units of sizes as in fio: each unit is 1,024 times the previous one.
_UNITS = "kmgt"


def fio_jobs(path: str | PathLike[str], seed: int = 1, *, requests: int | None = None) -> Trace:
    r"""Generate the trace that fio would issue for a job file.

    Sizes, shares, reuse, distribution, order of jobs, rates and think times are those of fio; single addresses come
    from emmclab's own random numbers. Each file is a region of the address space. Traces of jobs without a rate should
    be replayed back to back (`mode="back_to_back"`).

    Args:
        path: the job file; `${NAME}` in it is replaced by the environment variable, as in fio.
        seed: seed of the random numbers.
        requests: ends the trace after this number of requests.

    Raises:
        ConfigError: an option is not supported, a value is invalid, or a job has no end; with file, line, option and
            value.
        InputError: the file cannot be read.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     job = pathlib.Path(folder, "mine.fio")
    ...     _ = job.write_text("[mine]\nrw=randwrite\nbs=4k\nsize=1m\n")
    ...     fio_jobs(job).ledger["kept"]
    256
    """
    _require_numbers(seed, requests)
    path = fspath(path)
    return _trace(Path(path).stem, lambda: _core.GeneratedTrace.job_file(path, seed=seed, requests=requests))


def pattern(
    requests: int,
    *,
    seed: int = 1,
    reads_pct: int = 50,
    size: int = 4096,
    span: int = 1 << 30,
    random_pct: int = 100,
    zipf: float | None = None,
    iops: float = 1000.0,
    even: bool = False,
    flush_every: int = 0,
) -> Trace:
    """Generate a trace of requests of one kind, which arrive independently of each other and of the device.

    Args:
        requests: total number of reads and writes.
        seed: seed of the random numbers.
        reads_pct: percentage of reads; the others are writes.
        size: size of each request in bytes.
        span: size of the address range of the requests in bytes.
        random_pct: percentage of requests at a random address; the others start where the previous one ended.
        zipf: exponent of a Zipf distribution of random addresses; without it the distribution is uniform.
        iops: requests per second.
        even: whether arrivals are equidistant, instead of a Poisson process.
        flush_every: number of writes between two flushes; 0 for no flushes.

    Raises:
        ConfigError: an argument is out of range.

    >>> trace = pattern(1000, reads_pct=30, zipf=0.9, iops=500)
    >>> 65 < trace.profile()["write_requests_pct"] < 75
    True
    """
    _require_numbers(seed, requests)
    figures = {"read_pct": reads_pct, "bytes": size, "span": span, "random_pct": random_pct}
    for field, value in (figures | {"flush_every": flush_every}).items():
        _require(field, value, 0)
    return _trace(
        "pattern",
        lambda: _core.GeneratedTrace.pattern(
            requests,
            seed=seed,
            read_pct=reads_pct,
            bytes=size,
            span=span,
            random_pct=random_pct,
            zipf=zipf,
            iops=iops,
            poisson=not even,
            flush_every=flush_every,
        ),
    )


def size_of(text: str) -> int | None:
    """Return the bytes of a size in the notation of fio; `None` if it is not a size.

    >>> size_of("4k"), size_of("1GB"), size_of("512"), size_of("4 apples")
    (4096, 1073741824, 512, None)
    """
    word = text.strip().lower().removesuffix("b").removesuffix("i")
    power = _UNITS.find(word[-1:]) + 1 if word[-1:] else 0
    digits = word[:-1] if power else word
    return int(digits) * 1024**power if digits.isascii() and digits.isdecimal() else None


def _trace(name: str, open_stream: Callable[[], _core.GeneratedTrace]) -> Trace:
    # A generator is passed as a reader here, because it has the same methods.
    return Trace(name, cast("Callable[[], _core.Reader]", open_stream))


def _require_numbers(seed: int, requests: int | None) -> None:
    _require("seed", seed, 0)
    if requests is not None:
        _require("requests", requests, 1)


def _require(field: str, value: int, least: int) -> None:
    if not least <= value < 1 << 64:
        raise ConfigError(f"`{value}` is out of range", field=field, hint=f"give {least} to 2^64 - 1")
