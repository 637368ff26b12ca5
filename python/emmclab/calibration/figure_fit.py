"""Fits the settings of a preset to figures that benchmarks measured on a real device, by simulation.

Each candidate runs the jobs of the figures (`measured_figures`), so that queueing, parallelism, the write buffer and
the processor of the host take part in the fit as they do in a simulation. The jobs of each pattern are sorted, and
every second one is held out: no setting is fitted to its figures, and its error is the error to expect. A setting that
the figures do not determine keeps the value of the base.

The search descends by the Gauss-Newton method: each setting is changed in turn, and a linear model of the changes of
all figures has the step with the smallest mean error. Settings that replace each other, such as the bus and the read
time of a page, therefore change together. To leave a local optimum, each setting is then changed by large factors, with
the others set to what the model finds best with it, and the search goes on from the best of these.
"""

import json
import math
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, wait
from dataclasses import dataclass, replace
from operator import add, itemgetter, mul, sub
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

#: Requests of a job of a candidate, and the least number of bytes; at most as much as the job itself. The clock of a
#: host that follows its load is steady only after about a second. The region of each copy is written before, because a
#: read of data that was never written does not take the time of other reads.
_CANDIDATE_REQUESTS, _CANDIDATE_BYTES = 16_384, 64 << 20
#: Factors by which each setting is changed for the linear models: of the search, and of its end.
_FACTOR, _FINE_FACTOR = 1.5, 1.15
#: Maximum number of steps of a descent with one factor, and of lengths of a step that are tried.
_MOST_STEPS, _MOST_LENGTHS = 8, 3
#: Factor by which settings are changed to leave a local optimum, how many of these candidates are starts of a descent,
#: and how often this is repeated while it finds better settings.
_LARGE_FACTOR, _STARTS, _MOST_ROUNDS = 4.0, 3, 2
#: Number of jobs after which a candidate is given up if their errors alone are too large.
_BATCH = 8
#: No other optimum is searched after this number of simulated jobs.
_MOST_SIMULATED = 4_000
#: Number of repetitions of the least squares.
_REWEIGHTED = 40
#: A decrease of the cost that counts as better.
_BETTER = 5e-4
#: Factors at which it is tested whether the figures determine a setting.
_TESTED = (1.1, 1.25, 1.5, 2.0)
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
    #: Range within which the mean error of the figures is at most one percent worse if the other settings change with
    #: it; None for a bound that no tested value exceeds.
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
    """A search for the settings with the smallest mean error."""

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
        #: Settings that the figures do not determine, which have the value of the base (0 has no logarithm).
        self._kept: set[str] = set()
        #: Errors of simulated jobs, by the job and the values of the settings that affect it.
        self._known: dict[tuple[object, ...], list[float]] = {}
        #: Weight of each error in the mean: that of a job is divided among its metrics.
        self._weights = [1 / len(self._targets) / len(row) for row in self._targets.values() for _ in row]

    @property
    def device(self) -> Device:
        """The base with the best settings so far."""
        of_device = [free.setting for free in self._free if free not in _OF_THE_HOST]
        changed = [key for key in of_device if self._used(key) != self._bases[key]]
        return self._base.set({key: f"{self._used(key):.4g}" for key in changed})

    def _used(self, setting: str) -> float:
        """Return the value of a setting in a simulation."""
        return self._bases[setting] if setting in self._kept else self._values[setting]

    def host_text(self) -> str:
        """Return the host with the best costs so far, as TOML."""
        lines = [line for line in self._host_text.splitlines() if not line.startswith("direct_io")]
        costs = ", ".join(f"{free.setting.partition('.')[2]} = {self._used(free.setting):.4g}" for free in _OF_THE_HOST)
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
        self._errors()  # An error of the base is one of its user.
        best = self._descent(self._values, _FACTOR)
        for _ in range(_MOST_ROUNDS):
            if self._error(best) <= _WORSE:
                break
            descents = [self._descent(start, _FACTOR, _MOST_SIMULATED) for start in self._starts(best)]
            found = min(descents, key=self._cost, default=best)
            if not self._cost(found) < self._cost(best) - _BETTER:
                break
            best = found
        self._values = self._descent(self._nearer_to_base(best), _FINE_FACTOR)
        # A setting that has the value of the base may still replace others, unless that is 0, which has no logarithm.
        kept, self._kept = self._kept, {setting for setting in self._kept if not self._bases[setting]}
        fitted = [self._fitted(number, free.setting in kept) for number, free in enumerate(self._free)]
        self._kept = kept
        return fitted

    def _nearer_to_base(self, best: dict[str, float]) -> dict[str, float]:
        """Return values whose error is hardly worse, with as many settings as possible at the base (`_kept`)."""
        slopes, worse, values = self._slopes(best, _FACTOR), self._error(best) + _WORSE, best
        changes = [abs(math.log(best[free.setting] / self._start[free.setting])) for free in self._free]
        for number in sorted(range(len(changes)), key=changes.__getitem__):
            setting = self._free[number].setting
            change = math.log(self._start[setting] / values[setting])
            at_base = self._with(values, slopes, (number, change), worse) | {setting: self._start[setting]}
            self._kept.add(setting)
            if self._error(at_base, worse) > worse:
                self._kept.remove(setting)
            else:
                values, slopes[number] = at_base, [0.0] * len(slopes[number])
        return values

    def _descent(self, values: dict[str, float], factor: float, most: float = math.inf) -> dict[str, float]:
        """Return the values at which steps of the Gauss-Newton method end; none begins after `most` simulated jobs."""
        longest = 3 * math.log(factor)
        for _ in range(_MOST_STEPS):
            if self._simulated >= most:
                break
            slopes, limit = self._slopes(values, factor), self._cost(values) - _BETTER
            for _ in range(_MOST_LENGTHS):
                candidate = self._step(values, slopes, longest)
                if found := self._cost(candidate, limit) < limit:
                    break
                longest /= 3
            if not found:
                # The model is wrong here; a change of one setting may still be better.
                changed = [
                    values | {free.setting: values[free.setting] * by}
                    for free in self._free
                    for by in (factor, 1 / factor)
                ]
                candidate = min(changed, key=lambda near: self._cost(near, limit))
                if not self._cost(candidate, limit) < limit:
                    break
                longest = 3 * math.log(factor)
            values = candidate
        return values

    def _starts(self, best: dict[str, float]) -> list[dict[str, float]]:
        """Return values that may lie at another optimum: those with the smallest cost of all distant ones.

        A distant value of one setting has the others as `_with` finds best; of two settings of the same jobs, one is
        larger and the other smaller, because they may replace each other.
        """
        slopes, large, errors = self._slopes(best, _FACTOR), math.log(_LARGE_FACTOR), self._errors_of(best) or []
        found: list[tuple[float, dict[str, float]]] = []
        for number, free in enumerate(self._free):
            for other in self._free:
                if self._simulated >= _MOST_SIMULATED:
                    break
                limit = found[-1][0] if len(found) == _STARTS else math.inf
                if other is free:
                    candidates = [self._with(best, slopes, (number, by), limit) for by in (-large, large)]
                elif any(free.affects(job) and other.affects(job) for job in self._targets):
                    up, down = best[free.setting] * _LARGE_FACTOR, best[other.setting] / _LARGE_FACTOR
                    candidates = [best | {free.setting: up, other.setting: down}]
                else:
                    continue
                for candidate in candidates:
                    cost, changed = self._cost(candidate, limit), self._errors_of(candidate, limit)
                    # Where the errors are hardly others, a descent ends at the same optimum.
                    if changed and cost < limit and _mean(self._weights, map(sub, changed, errors)) > 5 * _WORSE:
                        found = sorted([*found, (cost, candidate)], key=itemgetter(0))[:_STARTS]
        return [candidate for _, candidate in found]

    def _with(
        self, values: dict[str, float], slopes: list[list[float]], change: tuple[int, float], limit: float
    ) -> dict[str, float]:
        """Return values with a setting (number) changed (logarithm), the others as before or as a model finds best."""
        setting = self._free[change[0]].setting
        alone = values | {setting: values[setting] * math.exp(change[1])}
        other = self._step(values, slopes, math.log(4), change)
        return min(alone, other, key=lambda candidate: self._error(candidate, limit))

    def _slopes(self, values: dict[str, float], factor: float) -> list[list[float]]:
        """Return the change of each error per change of the logarithm of each setting (settings x errors)."""
        errors, slopes = self._errors_of(values) or [], []
        for free in self._free:
            if free.setting in self._kept:
                slopes.append([0.0] * len(errors))
                continue
            for by in (factor, 1 / factor):
                changed = self._errors_of(values | {free.setting: values[free.setting] * by})
                if changed is not None:
                    break
            pairs = zip(changed or errors, errors, strict=True)
            slopes.append([(after - before) / math.log(by) for after, before in pairs])
        return slopes

    def _step(
        self,
        values: dict[str, float],
        slopes: list[list[float]],
        longest: float,
        fixed: tuple[int, float] | None = None,
    ) -> dict[str, float]:
        """Return the values that have the smallest cost in a linear model.

        The logarithm of a value changes by at most `longest`; `fixed` is a setting (number) and its change. The sum of
        absolute errors becomes smallest by least squares, repeated with weights of one divided by the error.
        """
        errors = self._errors_of(values) or []
        away = [math.log(values[free.setting] / self._start[free.setting]) for free in self._free]
        change, best, least, left = [0.0] * len(away), [0.0] * len(away), math.inf, errors
        by_error = list(zip(*slopes, strict=True))
        for _ in range(_REWEIGHTED):
            prices = [_CHANGE_PRICE / (abs(before + by) + 0.05) for before, by in zip(away, change, strict=True)]
            weights = [weight / (abs(error) + 1e-3) for weight, error in zip(self._weights, left, strict=True)]
            weighted = [list(map(mul, weights, row)) for row in slopes]
            matrix = [[sum(map(mul, row, other)) for other in slopes] for row in weighted]
            right = [
                -sum(map(mul, row, errors)) - price * at for row, price, at in zip(weighted, prices, away, strict=True)
            ]
            for number, price in enumerate(prices):
                matrix[number][number] += price
            if fixed is not None:
                matrix[fixed[0]][fixed[0]] += 1e6
                right[fixed[0]] += 1e6 * fixed[1]
            change = [max(-longest, min(longest, by)) for by in _solved(matrix, right)]
            left = [error + sum(map(mul, change, row)) for error, row in zip(errors, by_error, strict=True)]
            cost = _mean(self._weights, left) + _CHANGE_PRICE * sum(map(abs, map(add, away, change)))
            if cost < least:
                least, best = cost, change
        return {setting: value * math.exp(by) for (setting, value), by in zip(values.items(), best, strict=True)}

    def _cost(self, values: dict[str, float], limit: float = math.inf) -> float:
        """Return the mean error of the jobs (`_error`), and the price of all changes."""
        changes = sum(abs(math.log(value / self._start[setting])) for setting, value in values.items())
        return self._error(values, limit) + _CHANGE_PRICE * changes

    def _error(self, values: dict[str, float], limit: float = math.inf) -> float:
        """Return the mean error of the jobs; infinite if it is above a limit, or the device rejects the values."""
        errors = self._errors_of(values, limit)
        return math.inf if errors is None else _mean(self._weights, errors)

    def _errors_of(self, values: dict[str, float], limit: float = math.inf) -> list[float] | None:
        """Return the errors with some values; None if their mean is above a limit, or the device rejects the values."""
        before, self._values = self._values, values
        try:
            return self._errors(limit)
        except (ConfigError, UnsupportedError):
            return None
        finally:
            self._values = before

    def _errors(self, limit: float = math.inf) -> list[float] | None:
        """Return the errors of all metrics with the current values: logarithms of simulated by measured ones.

        A candidate whose errors are above a limit before all jobs are simulated returns None.
        """
        texts = {setting: f"{self._used(setting):.4g}" for setting in self._values}
        keys = {job: (job, *(texts[free.setting] for free in self._free if free.affects(job))) for job in self._targets}
        device, jobs, errors = self.device, list(self._targets), list[float]()
        for first in range(0, len(jobs), _BATCH):
            batch = jobs[first : first + _BATCH]
            new = [job for job in batch if keys[job] not in self._known]
            runs = [
                self._pool.submit(
                    simulate_job, device, job, None, self._bytes(job), _written(job, device, self._bytes(job))
                )
                for job in self.on_host(new)
            ]
            # All runs end before the next candidate, even if one fails: they read the same file of the host.
            wait(runs)
            for job, run in zip(new, runs, strict=True):
                self._known[keys[job]] = _errors_of_job(self._targets[job], run.result())
            self._simulated += len(new)
            errors += [error for job in batch for error in self._known[keys[job]]]
            if sum(map(mul, self._weights, map(abs, errors))) > limit:
                return None
        if self._progress is not None:
            self._progress(self._simulated, _mean(self._weights, errors))
        return errors

    def _bytes(self, job: FigureJob) -> int:
        """Return how much a candidate reads or writes: as much as the job if it uses up the write buffer, else less."""
        if _writes(job) and 0 < self._buffer_bytes < FILE_BYTES:
            return FILE_BYTES
        return min(max(_CANDIDATE_REQUESTS * job.block_bytes, _CANDIDATE_BYTES), FILE_BYTES)

    def _fitted(self, number: int, is_kept: bool) -> FittedSetting:
        """Return a setting with the range in which the error is hardly worse if the other settings change with it."""
        setting, values = self._free[number].setting, self._values
        value, base = values[setting], self._bases[setting]
        if is_kept:
            return FittedSetting(setting, base, base, None, None)
        slopes, worse = self._slopes(values, _FINE_FACTOR), self._error(values) + _WORSE
        low, high = (
            next(
                (
                    value * by**sign
                    for by in _TESTED
                    if self._error(self._with(values, slopes, (number, sign * math.log(by)), worse), worse) > worse
                ),
                None,
            )
            for sign in (-1, 1)
        )
        if low is None and high is None:
            # The base is worse, or the setting would have its value.
            low, high = (base, None) if base < value else (None, base)
        return FittedSetting(setting, base, value, low, high)


def _mean(weights: Iterable[float], errors: Iterable[float]) -> float:
    """Return the mean of absolute errors."""
    return sum(weight * abs(error) for weight, error in zip(weights, errors, strict=True))


def _solved(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Return the solution of a system of linear equations with a positive definite matrix, by elimination."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for number, row in enumerate(rows):
        for other in rows[:number] + rows[number + 1 :]:
            factor = other[number] / row[number]
            other[:] = [cell - factor * pivot for cell, pivot in zip(other, row, strict=True)]
    return [row[-1] / row[number] for number, row in enumerate(rows)]


def _written(job: FigureJob, device: Device, io_bytes: int) -> str:
    """Return the preconditioning that writes the regions of all copies of a job, at most a quarter of the device."""
    part = min(job.jobs * io_bytes / device.capacity_bytes, 0.25)
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


def _errors_of_job(targets: Mapping[str, float], found: FioOperationResult | None) -> list[float]:
    """Return the errors of the metrics of a job, as the natural logarithms of simulated by measured."""
    simulated = [METRICS[metric].of(found) if found else None for metric in targets]
    return [
        math.log(value / target) if value else 5.0 for value, target in zip(simulated, targets.values(), strict=True)
    ]


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
