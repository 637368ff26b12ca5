"""Fits the settings of a preset to figures that benchmarks measured on a real device, by simulation.

Each candidate runs the jobs of the figures (`measured_figures`), so that queueing, parallelism, the write buffer and
the processor of the host take part in the fit as they do in a simulation. The jobs of each pattern are sorted, and
every second one is held out: no setting is fitted to its figures, and its error is the error to expect. A setting that
the figures do not determine keeps the value of the base.
"""

import json
import math
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from emmclab.calibration.measured_figures import (
    FILE_BYTES,
    METRICS,
    FigureComparison,
    FigureJob,
    FigureSummary,
    MeasuredFigure,
    compare_figures,
    simulate_job,
)
from emmclab.core_types import FioOperationResult
from emmclab.errors import ConfigError, UnsupportedError
from emmclab.runtime.threads import threads
from emmclab.simulation.device import Device, is_file_name

#: Bytes that a job of a candidate reads or writes, and size of the region of each of its copies. All regions are
#: written before, because a read of data that was never written does not take the time of other reads.
_CANDIDATE_BYTES = 64 << 20
#: Factors of the steps of the search, from coarse to fine.
_STEPS = (2.0, 1.3, 1.08)
#: Maximum number of steps in one direction, and of passes over all settings with one factor.
_MOST_STEPS, _MOST_PASSES = 3, 3
#: Factors at which it is tested whether the figures determine a setting.
_TESTED = (1.05, 1.1, 1.25, 1.5, 2.0)
#: Increase of the mean error of the figures (natural logarithm) from which a setting counts as worse.
_WORSE = 0.01
#: Added to the mean error for each setting, per unit of the natural logarithm of its change: of two settings that
#: explain the figures equally well, the one that is nearer to the base is chosen.
_CHANGE_PRICE = 0.003
#: The metrics that are fitted, in this order of preference: one of them per job, because all follow from the same rate.
_FITTED_METRICS = ("iops", "mb_per_s", "clat_us_mean", "clat_us_p50")


class FittedSetting(NamedTuple):
    """A setting, and how well the figures determine it."""

    setting: str
    #: Value of the base, and fitted value (that of the base if the figures do not determine it).
    base: float
    value: float
    #: Range within which the mean error of the figures is at most one percent worse; None for a bound that no tested
    #: value exceeds.
    low: float | None
    high: float | None

    @property
    def is_determined(self) -> bool:
        """Whether the figures determine the setting from at least one side."""
        return self.low is not None or self.high is not None


class _FreeSetting(NamedTuple):
    """A setting that may be fitted, the jobs that it affects, and where the search starts if the base has 0."""

    setting: str
    affects: Callable[[FigureJob], bool]
    start: float = 1.0


def _reads(job: FigureJob) -> bool:
    return job.rw.endswith("read")


def _writes(job: FigureJob) -> bool:
    return not _reads(job)


def _any(_: FigureJob) -> bool:
    return True


#: Costs of direct I/O on the host, which are fitted if the figures have submission latencies.
_OF_THE_HOST = tuple(_FreeSetting(f"direct_io.{key}", _any, 0.1) for key in ("submit_us", "page_us", "complete_us"))


def _free_settings(settings: Mapping[str, object]) -> list[_FreeSetting]:
    """Return the settings of a device that figures of benchmarks may determine."""
    interface = settings.get("interface") or {}
    groups = settings["geometry"]["block_groups"]  # type: ignore[index]
    is_ufs = isinstance(interface, dict) and interface.get("kind") == "ufs"
    free = [
        _FreeSetting("controller.read_overhead_us", _reads, 20),
        _FreeSetting("controller.write_overhead_us", _writes, 20),
        _FreeSetting("timing.bus_ns_per_byte", _any),
    ]
    if is_ufs:
        free.append(_FreeSetting("interface.command_us", _any))
    elif _value(settings, "controller.host_us_per_kb"):
        # A bus mode states the rate of the bus; a card whose rate is not known has this setting instead.
        free.append(_FreeSetting("controller.host_us_per_kb", _any))
    for number, group in enumerate(groups):
        # Figures do not tell the pages of a word line apart. Their times remain those of the base.
        if group["page_types"]:
            continue
        free.append(_FreeSetting(f"geometry.block_groups.{number}.read_us", _reads))
        free.append(_FreeSetting(f"geometry.block_groups.{number}.program_us", _writes))
    if _value(settings, "slc.blocks"):
        free.append(_FreeSetting("slc.program_us", _writes))
    return free


@dataclass(frozen=True)
class FigureFit:
    """A preset that was fitted to figures."""

    #: The preset, with comments.
    toml: str
    #: The host with fitted costs of direct I/O; empty if the figures have no submission latencies.
    host_toml: str
    settings: Sequence[FittedSetting]
    #: All figures with the fitted preset; `figure.fitted` says which took part in the fit.
    comparisons: Sequence[FigureComparison]

    @property
    def held_out(self) -> FigureSummary:
        """The error of the figures that did not take part in the fit."""
        return FigureSummary.of(self.comparisons)


def fit_figures(
    figures: Sequence[MeasuredFigure],
    base: Device,
    *,
    name: str,
    host: str | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> FigureFit:
    """Fit the settings of a base to the figures of one device.

    `host` is the host that issued the requests (an option `fio_host`); without it, that of each figure. If it is a TOML
    file and the figures have submission latencies, its costs of direct I/O are fitted, too. `progress` receives the
    number of simulated jobs and the mean error so far (natural logarithm).

    Raises:
        ConfigError: the figures are of several devices, or none of them can be simulated.
    """
    devices = sorted({figure.device for figure in figures})
    if len(devices) > 1:
        raise ConfigError(
            f"the figures are of {len(devices)} devices: {', '.join(devices)}",
            hint="give those of one device, for example with --only device=NAME",
        )
    figures = [figure.on_host(host) for figure in figures]
    jobs = sorted({figure.job for figure in figures if figure.job and not figure.refused})
    if not jobs:
        reasons = sorted({figure.refused for figure in figures if figure.refused})
        raise ConfigError(
            f"no figure can be fitted: {'; '.join(reasons) or 'there is none'}",
            hint="state what is missing, for example with --assume depth=1,jobs=1",
        )
    chosen = {job for rw in {job.rw for job in jobs} for job in [job for job in jobs if job.rw == rw][::2]}
    with tempfile.TemporaryDirectory() as folder, threads() as pool:
        search = _FigureSearch(figures, chosen, base, Path(folder), pool, progress)
        settings = search.settings()
        device, host_toml = search.device, search.host_text() if search.fits_host else ""
        fitted = [replace(figure, preset=name, fitted=figure.job in chosen) for figure in figures]
        of_host = dict(zip(jobs, search.on_host(jobs), strict=True))
        simulated = compare_figures(
            [replace(row, job=row.job and of_host.get(row.job, row.job)) for row in fitted],
            lambda _: device,
            images=folder,
        )
    comparisons = [replace(row, figure=figure) for row, figure in zip(simulated, fitted, strict=True)]
    return FigureFit(_preset(base, device, name, settings, comparisons), host_toml, settings, comparisons)


class _FigureSearch:
    """A search for the settings with the smallest mean error: coordinate descent over factors of each setting."""

    def __init__(
        self,
        figures: Sequence[MeasuredFigure],
        chosen: set[FigureJob],
        base: Device,
        folder: Path,
        pool: Executor,
        progress: Callable[[int, float], None] | None,
    ) -> None:
        self._folder, self._pool, self._progress = folder, pool, progress
        self._targets = {job: _targets([figure for figure in figures if figure.job == job]) for job in sorted(chosen)}
        settings = tomllib.loads(base.to_toml())
        self._base = base
        self._buffer_bytes = _buffer_bytes(settings)
        hosts = sorted({job.host for job in chosen})
        # Costs are fitted for a host whose file is given, because they are written into a copy of it.
        self._host_text = Path(hosts[0]).read_text("utf-8") if len(hosts) == 1 and is_file_name(hosts[0]) else ""
        self.fits_host = bool(self._host_text) and any("slat_us_mean" in row for row in self._targets.values())
        self._free = [*(_OF_THE_HOST if self.fits_host else ()), *_free_settings(settings)]
        host = tomllib.loads(self._host_text)
        self._bases = {
            free.setting: _value(host if free in _OF_THE_HOST else settings, free.setting) for free in self._free
        }
        self._start = {free.setting: self._bases[free.setting] or free.start for free in self._free}
        self._values = dict(self._start)
        self._simulated = 0
        self._results: dict[FigureJob, float] = {}
        #: Errors of simulated jobs, by the job and the values of the settings that affect it.
        self._known: dict[tuple[object, ...], float] = {}

    @property
    def device(self) -> Device:
        """The base with the best settings so far."""
        of_device = [free.setting for free in self._free if free not in _OF_THE_HOST]
        changed = [key for key in of_device if self._values[key] != self._start[key]]
        return self._base.set({key: f"{self._values[key]:.4g}" for key in changed})

    def host_text(self) -> str:
        """Return the host with the best costs so far, as TOML."""
        lines = [line for line in self._host_text.splitlines() if not line.startswith("direct_io")]
        costs = ", ".join(
            f"{free.setting.partition('.')[2]} = {self._values[free.setting]:.3g}" for free in _OF_THE_HOST
        )
        at = next(number for number, line in enumerate(lines) if line.startswith("era"))
        return "\n".join([*lines[: at + 1], f"direct_io = {{ {costs} }}", *lines[at + 1 :]]) + "\n"

    def on_host(self, jobs: Sequence[FigureJob]) -> list[FigureJob]:
        """Return jobs with the host that has the best costs so far."""
        if not self.fits_host:
            return list(jobs)
        path = self._folder / "host.toml"
        path.write_text(self.host_text(), "utf-8")
        return [job._replace(host=str(path)) for job in jobs]

    def settings(self) -> list[FittedSetting]:
        """Search, and return each setting with the range that the figures allow."""
        self._errors(list(self._targets))
        for step in _STEPS:
            for _ in range(_MOST_PASSES):
                if not sum(self._improve(free, step) for free in self._free):
                    break
        return [self._determined(free) for free in self._free]

    def _improve(self, free: _FreeSetting, step: float) -> bool:
        """Change a setting by factors as long as the error decreases; return whether it did."""
        improved = False
        for factor in (step, 1 / step):
            for _ in range(_MOST_STEPS):
                if not self._try(free, self._values[free.setting] * factor, keep=True) < 0:
                    break
                improved = True
            if improved:
                break
        return improved

    def _try(self, free: _FreeSetting, value: float, *, keep: bool) -> float:
        """Return the change of the cost with a value; with `keep`, keep the value if the cost decreases."""
        before, values = dict(self._results), self._values
        cost = self._cost()
        self._values = values | {free.setting: value}
        affected = [job for job in self._targets if free.affects(job)]
        try:
            self._errors(affected)
            change = self._cost() - cost
        except (ConfigError, UnsupportedError):
            # The device rejects the value, or stops.
            change = math.inf
        if not (keep and change < -5e-4):
            self._results, self._values = before, values
        return change if change < -5e-4 or not keep else 0.0

    def _cost(self) -> float:
        """Return the mean error of the jobs, and the price of all changes."""
        changes = sum(abs(math.log(value / self._start[setting])) for setting, value in self._values.items())
        return sum(self._results.values()) / len(self._results) + _CHANGE_PRICE * changes

    def _errors(self, jobs: Sequence[FigureJob]) -> None:
        """Simulate jobs with the current values and store their errors."""
        keys = {job: (job, *(self._values[free.setting] for free in self._free if free.affects(job))) for job in jobs}
        new = [job for job in jobs if keys[job] not in self._known]
        device = self.device
        runs = [
            self._pool.submit(simulate_job, device, job, None, self._bytes(job), _written(job, device))
            for job in self.on_host(new)
        ]
        # All runs end before the next candidate, even if one fails: they read the same file of the host.
        wait(runs)
        for job, run in zip(new, runs, strict=True):
            self._known[keys[job]] = _error(self._targets[job], run.result())
        self._results |= {job: self._known[keys[job]] for job in jobs}
        self._simulated += len(new)
        if self._progress is not None:
            self._progress(self._simulated, sum(self._results.values()) / len(self._results))

    def _bytes(self, job: FigureJob) -> int:
        """Return how much a candidate reads or writes: as much as the job if it uses up the write buffer, else less."""
        return FILE_BYTES if _writes(job) and 0 < self._buffer_bytes < FILE_BYTES else _CANDIDATE_BYTES

    def _determined(self, free: _FreeSetting) -> FittedSetting:
        """Return a setting with the range within which the error is hardly worse; undo it if any value is as good."""
        value, base = self._values[free.setting], self._bases[free.setting]
        low = next((value / by for by in _TESTED if self._try(free, value / by, keep=False) > _WORSE), None)
        high = next((value * by for by in _TESTED if self._try(free, value * by, keep=False) > _WORSE), None)
        if low is None and high is None:
            value = base
            self._values = self._values | {free.setting: self._start[free.setting]}
            self._errors([job for job in self._targets if free.affects(job)])
        return FittedSetting(free.setting, base, value, low, high)


def _written(job: FigureJob, device: Device) -> str:
    """Return the preconditioning that writes the regions of all copies of a job, at most a quarter of the device."""
    part = min(job.jobs * _CANDIDATE_BYTES / device.capacity_bytes, 0.25)
    return f"sequential:{math.ceil(100 * part)}"


def _value(settings: Mapping[str, object], key: str) -> float:
    """Return the value of a setting of a device by its dotted key."""
    at: object = settings
    for part in key.split("."):
        at = at[int(part)] if isinstance(at, list) else at.get(part) if isinstance(at, dict) else None
    return float(at) if isinstance(at, int | float) else 0.0


def _buffer_bytes(settings: Mapping[str, Any]) -> int:
    """Return the size of the SLC cache of a device, 0 without one: its blocks hold one bit per cell."""
    geometry, slc = settings["geometry"], settings["slc"]
    group = geometry["block_groups"][slc["group"]]
    planes = math.prod(geometry[part] for part in ("channels", "chips_per_channel", "dies_per_chip", "planes_per_die"))
    bits = {"slc": 1, "mlc": 2, "tlc": 3, "qlc": 4}[group["cell_mode"]]
    size: int = slc["blocks"] * planes * group["pages_per_block"] * group["page_kb"] * 1024 // bits
    return size


def _targets(figures: Sequence[MeasuredFigure]) -> dict[str, float]:
    """Return the metrics of a job that are fitted: its rate or mean latency, and a single job's submission latency."""
    values = {figure.metric: figure.value for figure in figures if figure.value is not None}
    rate = next((metric for metric in _FITTED_METRICS if metric in values), None)
    targets = {rate: values[rate]} if rate else {}
    # The submission latency of several jobs contains their waits for free tags.
    if "slat_us_mean" in values and figures[0].job is not None and figures[0].job.jobs == 1:
        targets["slat_us_mean"] = values["slat_us_mean"]
    return targets


def _error(targets: Mapping[str, float], found: FioOperationResult | None) -> float:
    """Return the mean error of the metrics of a job, as the absolute natural logarithm of simulated by measured."""
    if not targets:
        return 0.0
    simulated = [METRICS[metric].of(found) if found else None for metric in targets]
    pairs = zip(simulated, targets.values(), strict=True)
    return sum(abs(math.log(value / target)) if value else 5.0 for value, target in pairs) / len(targets)


def _preset(
    base: Device, device: Device, name: str, settings: Sequence[FittedSetting], comparisons: Sequence[FigureComparison]
) -> str:
    """Return the TOML of a fitted preset, with what the figures determine, what is assumed, and the error to expect."""
    figure = comparisons[0].figure
    source = sorted({row.figure.source or row.figure.device for row in comparisons if row.figure.fitted})
    notes = {
        fitted.setting: f"fitted, within {_bound(fitted.low)} to {_bound(fitted.high)}"
        if fitted.is_determined
        else f"that of {base.name}: the figures do not determine it"
        for fitted in settings
    }
    about = f"{figure.part or 'The storage'} of the {figure.device}, fitted to benchmarks on the base of {base.name}"
    summary = FigureSummary.of(comparisons)
    tested = f"# Every second job was held out: {summary}."
    lines = [
        f"# Written by `emmclab calibrate` on the base of {base.name}: settings whose comments say so are fitted to",
        "# figures of benchmarks, the others are those of the base.",
        tested if summary.figures else "# All jobs took part in the fit, so that no figure tests it.",
        f"name = {json.dumps(name)}",
        f"about = {json.dumps(about)}",
        f"fitted_to = {json.dumps(source)}",
    ]
    heading = group = ""
    rows = [(row.key.rpartition("."), row) for row in device.explain()]
    for (section, _, key), row in sorted(rows, key=lambda pair: pair[0]):
        sections = section.split(".")
        if (
            section in ("", "fitted_to")
            or row.value == row.default
            or (row.default is None and row.value in ("0", "0.0"))
        ):
            continue
        number = sections.pop() if sections[-1].isdigit() else ""
        table = ".".join(sections)
        if heading != (heading := f"\n[[{table}]]" if number else f"\n[{table}]") or number != group:
            lines.append(heading)
        group = number
        note = notes.get(row.key)
        lines.append(f"{key} = {row.value}{f' # {note}' if note else ''}")
    return "\n".join(lines) + "\n"


def _bound(value: float | None) -> str:
    return "any" if value is None else f"{value:.3g}"
