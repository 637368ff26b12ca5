"""Summarises a study: figures by input and setting, effect of each varied setting, best setting by each metric."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from emmclab.comparison.seed_statistics import Spread, order_of
from emmclab.runtime.document import change_pct
from emmclab.runtime.statistics import CONFIDENCE, Interval, difference_interval
from emmclab.simulation.result_fields import ResultField, result_field
from emmclab.studies.grid import AXES
from emmclab.studies.kinds import PROFILE
from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run
from emmclab.traces.profile_options import percentile_label

#: Maximum exponent passed to `expm1`, so that an interval does not overflow.
_MOST_EXPONENT = 100.0

#: Swept settings of a run: pairs of key and value, in the order of the study.
Setting = tuple[tuple[str, Any], ...]


class Effect(NamedTuple):
    """The best and the worst value of a varied key, such as `gc.policy`, by a metric, with all other keys equal."""

    key: str
    best: Any
    worst: Any
    best_mean: float
    worst_mean: float
    #: Number of pairs of runs that are equal in all other keys: one run has the best value of this key, the other the
    #: worst.
    pairs: int
    #: Number of these pairs in which the run with the best value is better than the run with the worst value.
    agreeing: int
    #: Confidence interval of the difference between the worst and the best value, in percent or percentage points; None
    #: with one seed.
    interval: Interval | None
    #: Whether the difference is significant, by the interval over the seeds or by the signs of the pairs.
    is_told: bool


def effects_of(
    figures: Mapping[tuple[str, Setting], Mapping[int, float]], *, highest_is_best: bool = False, is_ratio: bool = True
) -> list[Effect]:
    """Return the effect of each varied key on a metric, whose values are in `figures` by input, setting and seed.

    Runs of an input are compared if only the key differs, and if there is a run with every value of the key. The
    compared runs are averaged for each seed; the confidence interval is that of the averages over the seeds. The sign
    test assumes that the pairs are independent.

    >>> times = {("chat", (("op", op), ("gc", gc))): {seed: 100 / op + gc + seed / 9 for seed in (1, 2, 3)}
    ...     for op in (10, 20) for gc in (1, 2)}
    >>> [(effect.key, effect.best, effect.pairs, effect.agreeing, effect.is_told) for effect in effects_of(times)]
    [('op', 20, 6, 6, True), ('gc', 1, 6, 6, True)]
    """
    effects = []
    for key, _ in next(iter(figures))[1] if figures else ():
        # Values are compared by their `repr`, because 1 and True would be equal, and a list is not hashable.
        values: dict[str, Any] = {}
        groups: dict[tuple[str, str], dict[str, Mapping[int, float]]] = {}
        for (name, setting), by_seed in figures.items():
            value = dict(setting)[key]
            values[repr(value)] = value
            others = repr([pair for pair in setting if pair[0] != key])
            groups.setdefault((name, others), {})[repr(value)] = by_seed
        complete_groups = [group for group in groups.values() if len(group) == len(values) > 1]
        runs = [by_seed for group in complete_groups for by_seed in group.values()]
        seeds = [seed for seed in runs[0] if all(seed in values_of_run for values_of_run in runs)] if runs else []
        if seeds:
            effects.append(_effect(key, values, complete_groups, seeds, highest_is_best, is_ratio))
    return effects


def _effect(
    key: str,
    values: Mapping[str, Any],
    groups: Sequence[Mapping[str, Mapping[int, float]]],
    seeds: Sequence[int],
    highest_is_best: bool,
    is_ratio: bool,
) -> Effect:
    by_seed = {
        value: {seed: average([group[value][seed] for group in groups], arithmetic=not is_ratio) for seed in seeds}
        for value in values
    }
    means = {value: sum(figures.values()) / len(seeds) for value, figures in by_seed.items()}
    order = sorted(means, key=means.__getitem__, reverse=highest_is_best)
    best, worst = order[0], order[-1]
    changes = [group[worst][seed] - group[best][seed] for group in groups for seed in seeds]
    agreeing = sum(change < 0 if highest_is_best else change > 0 for change in changes)
    # Bonferroni correction: the best and the worst were selected among all pairs of values.
    chance = math.comb(len(values), 2) * _chance(agreeing, len(changes))
    first, last = by_seed[best], by_seed[worst]
    interval = difference_interval(first, last, len(values) - 1, ratio=is_ratio)
    return Effect(
        key,
        values[best],
        values[worst],
        means[best],
        means[worst],
        len(changes),
        agreeing,
        interval and as_change(interval, first, last, is_ratio=is_ratio),
        chance < 1 - CONFIDENCE or (interval is not None and interval.excludes_zero),
    )


def as_change(
    interval: Interval, first: Mapping[int, float], second: Mapping[int, float], *, is_ratio: bool
) -> Interval:
    """Convert the interval of a difference of logarithms to percent of the first value; keep other intervals."""
    if not is_ratio or min(*first.values(), *second.values()) <= 0:
        return interval
    return Interval(*(100 * math.expm1(min(bound, _MOST_EXPONENT)) for bound in interval))


def _chance(agreeing: int, pairs: int) -> float:
    """Return the p-value of the sign test: the probability of at least this agreement by chance.

    >>> _chance(6, 6), _chance(5, 6)
    (0.03125, 0.21875)
    """
    if 2 * agreeing <= pairs:
        return 1.0
    extreme: int = sum(math.comb(pairs, rest) for rest in range(pairs - agreeing + 1))
    return min(1.0, float(2 * extreme / 2**pairs))


def average(values: Sequence[float], *, arithmetic: bool = False) -> float:
    """Return the geometric mean, or the arithmetic mean if requested or if a value is not above 0.

    >>> average([1.0, 4.0]), average([1.0, 4.0], arithmetic=True)
    (2.0, 2.5)
    """
    if arithmetic or min(values) <= 0:
        return sum(values) / len(values)
    return math.exp(sum(map(math.log, values)) / len(values))


class Metric(NamedTuple):
    """A figure of runs by which settings are ranked: the first of `paths` that a result contains."""

    name: str
    label: str
    unit: str
    paths: tuple[str, ...]
    highest_is_best: bool = False
    #: Percentile of response times that the metric shows; None if the metric is not a percentile.
    percentile: float | None = None
    #: Number of decimals; None for four significant digits.
    digits: int | None = None

    @staticmethod
    def field(name: str, field: ResultField) -> Metric:
        """Create a metric for a field of a simulated run."""
        return Metric(name, field.label, field.unit, (field.path,), field.better == "higher", digits=field.digits)

    @property
    def is_response(self) -> bool:
        """Whether the metric is a response time; under overload, response times grow with the length of the trace."""
        return self.percentile is not None or self.paths[0].startswith("response.")

    def of(self, run: Run) -> float | None:
        """Return the value of the metric in a run; None if the run's result does not contain it."""
        if self.percentile is not None:
            chosen = (row for row in run.percentiles if row.op == "all")
            return next((row.response_ms for row in chosen if row.percentile == self.percentile), None)
        for path in self.paths:
            try:
                value = run[path]
            except KeyError:
                continue
            return None if value is None else float(value)
        return None

    def number(self, value: float) -> str:
        """Format a value with the decimals of its field, or with four significant digits if it has none.

        >>> [METRICS[0].number(value) for value in (3.25, 3094.3481, 0.0012345)]
        ['3.250', '3,094.348', '0.001']
        >>> [RUNTIME.number(value) for value in (3.25, 3094.3481, 0.0012345)]
        ['3.250', '3,094', '0.001234']
        """
        if self.digits is not None:
            return f"{value:,.{self.digits}f}"
        if self.unit == "%" or value == 0:
            return f"{value:.2f}"
        return f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"

    def text(self, value: float) -> str:
        """Format a value with its unit, both on one line.

        >>> METRICS[3].text(75.0).split()
        ['75.00', '%']
        """
        return f"{self.number(value)}\u00a0{self.unit}".strip()


METRICS = tuple(
    Metric.field(name, result_field(path))
    for name, path in (
        ("mean_response", "response.mean_response_ms"),
        ("p99_response", "response.p99_ms"),
        ("waf", "write_amplification.waf"),
        ("no_wait", "requests.no_wait_pct"),
    )
)
#: Metrics that only runs of applications have.
RUNTIME = Metric("runtime", "Runtime", "s", ("app.runtime_s",))
#: Metrics that only some runs have: those of applications, and those of fio job files.
_OPTIONAL = (
    RUNTIME,
    *(Metric.field(f"fio_{name}", result_field(f"fio.{name}")) for name in ("iops", "mb_per_s", "lat_us")),
)

#: Field of the 99th percentile, whose format all percentiles use.
_P99 = result_field("response.p99_ms")
#: Percentiles of response times that every study has.
_USUAL = (99.0,)


#: Result fields that summaries and pages need in addition to the metrics.
_READ = (
    *("grid", "input", "seed", "device", "settings", "percentiles", "run.stopped", "run.mode"),
    "run.load",
    *("durable.requests", "requests.read", "requests.write"),
)
#: Maximum number of points (combinations of settings) that a note lists.
_NAMED = 3
#: Varied settings that texts show without their names, because the values are self-explanatory.
_PLAIN = ("device", "mode", "network")
#: Options of a run that a study can vary. Device and layer settings can also be varied; they are not listed here.
_OPTIONS = ("mode", "network", *AXES)


@functools.cache
def _fields_read() -> dict[str, tuple[str, ...]]:
    """Return the result fields that `summaries` reads, by group; a field outside of groups has an empty tuple."""
    groups: dict[str, list[str]] = {}
    options = (f"options.{name}" for name in (*_OPTIONS, "layer_settings"))
    for path in (*_READ, *options, *(path for metric in (*METRICS, *_OPTIONAL) for path in metric.paths)):
        group, _, field = path.partition(".")
        groups.setdefault(group, []).extend([field] if field else [])
    return {group: tuple(fields) for group, fields in groups.items()}


def summed(run: Run) -> Run:
    """Return the part of a run that `summaries` needs, because a million complete runs would not fit into memory.

    >>> summed(Run({"grid": "g", "seed": 1, "run": {"stopped": None, "seconds": 2.0}, "waits": {"gc_ms": 1.0}}))
    Run({'grid': 'g', 'seed': 1, 'run': {'stopped': None}})
    """
    part: dict[str, object] = {}
    complete = dict(run)
    for name, fields in _fields_read().items():
        if name in complete:
            value = complete[name]
            part[name] = {key: value[key] for key in fields if key in value} if fields and value else value
    return Run(part)


def metrics_of(percentiles: Iterable[float]) -> tuple[Metric, ...]:
    """Return the metrics of a study with these additional percentiles.

    >>> [metric.label for metric in metrics_of([99, 99.99])][-2:]
    ['No-wait', 'p99.99 response']
    """
    chosen = (
        Metric(
            f"{(label := percentile_label(percent)).replace('.', '_')}_response",
            f"{label} response",
            _P99.unit,
            (),
            percentile=percent,
            digits=_P99.digits,
        )
        for percent in percentiles
        if percent not in _USUAL
    )
    return (*METRICS, *chosen)


@dataclass(frozen=True)
class Point:
    """The figures of one input with one setting of a study's grid: for each metric, its spread over the seeds."""

    input: str
    setting: Setting
    figures: dict[str, Spread]
    #: By metric: the value for each seed.
    by_seed: dict[str, dict[int, float]]
    seeds: int
    #: Runs that ended early (`ended_early`) or failed (`failed`), with the reasons. The figures do not include them.
    ended_early: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    #: Number of overloaded runs; their response times are part of the figures, but are not used to rank settings.
    overloaded: int = 0


@dataclass(frozen=True)
class Ranked:
    """The best and the worst setting of a study's grid by one metric.

    Only inputs that were run with all settings are used. Varied keys that have no effect on the metric are omitted from
    both settings.
    """

    metric: Metric
    best: Setting
    worst: Setting
    best_value: Spread
    worst_value: Spread
    #: Names of the inputs that have results for all settings. The next field, `all_inputs`, counts all inputs.
    inputs: tuple[str, ...]
    all_inputs: int
    seeds: int
    #: Settings whose values differ from the best, but that cannot be distinguished from it (`order_of`).
    indistinguishable: tuple[Setting, ...]
    #: Confidence interval of the difference between the worst and the best setting: in percent, or in percentage points
    #: for a share. The confidence level holds for all settings together. None with a single seed.
    interval: Interval | None
    #: Whether the worst setting can be distinguished from the best.
    is_worst_apart: bool
    #: Effect of each varied setting while all other settings stay equal.
    effects: tuple[Effect, ...] = ()
    #: Ranking among only those settings that have the best value of the key `strongest`.
    within: Ranked | None = None

    @property
    def change_pct(self) -> float | None:
        """Change from the best to the worst setting, in percent."""
        return change_pct(self.best_value.mean, self.worst_value.mean)

    @property
    def strongest(self) -> Effect | None:
        """The significant effect with the largest change that is visible after rounding; None if there is none."""
        visible = [effect for effect in self.effects if effect.is_told and not self.is_alike(effect)]
        return max(visible, key=lambda effect: abs(self.change_of(effect)), default=None)

    def is_alike(self, effect: Effect) -> bool:
        """Whether the best and the worst value of an effect look equal after rounding."""
        return self.metric.text(effect.best_mean) == self.metric.text(effect.worst_mean)

    def change_of(self, effect: Effect) -> float:
        """The change from the best to the worst value of a varied key: in percent; of shares, in percentage points."""
        if self.metric.unit == "%" or not effect.best_mean:
            return effect.worst_mean - effect.best_mean
        return 100 * (effect.worst_mean / effect.best_mean - 1)

    @property
    def is_equal(self) -> bool:
        """Whether the best and the worst value are equal when printed."""
        return self.metric.text(self.best_value.mean) == self.metric.text(self.worst_value.mean)

    @property
    def is_distinguishable(self) -> bool:
        """Whether the best setting can be distinguished from the worst one."""
        return not self.is_equal and self.is_worst_apart


@dataclass(frozen=True)
class Summary:
    """Summary of one grid of a study."""

    grid: str
    #: The swept keys, each with its values: `device`, `mode`, and settings by dotted key.
    swept: dict[str, list[Any]]
    points: list[Point]
    ranked: list[Ranked]
    metrics: tuple[Metric, ...] = METRICS


def summaries(results: Results) -> list[Summary]:
    """Summarise each grid of a study, in order."""
    grids: dict[str, list[Run]] = {}
    for run in (*results.runs, *map(Run, results.failures)):
        if run.grid != PROFILE:
            grids.setdefault(run.grid, []).append(run)
    metrics = metrics_of(results.about.get("percentiles", ()))

    def present(runs: list[Run]) -> tuple[Metric, ...]:
        return (*metrics, *(metric for metric in _OPTIONAL if any(metric.of(run) is not None for run in runs)))

    return [_summary(grid, runs, present(runs)) for grid, runs in grids.items()]


def overloaded(summaries: Iterable[Summary]) -> list[Point]:
    """Return the points (an input with a setting) that have overloaded runs."""
    return [point for summary in summaries for point in summary.points if point.overloaded]


def overload_note(summaries: Sequence[Summary]) -> str:
    """Return a note on overloaded runs and what they mean for the results; empty if there are none."""
    if not (points := overloaded(summaries)):
        return ""
    count = sum(point.overloaded for point in points)
    runs = sum(point.seeds for summary in summaries for point in summary.points)
    names = [f"{point.input} on {setting_text(point.setting)}" for point in points[:_NAMED]]
    more = f" and {len(points) - _NAMED:,} more" if len(points) > _NAMED else ""
    return (
        f"{count:,} of {runs:,} simulations were overloaded ({', '.join(names)}{more}): requests arrived faster "
        "than the device serves them, so that response times grow with the length of the trace. Inputs with "
        "such a run do not rank settings by response times; give the study a lower rate, or a faster device"
    )


def swept_keys(runs: Iterable[Run]) -> dict[str, list[Any]]:
    """Return the keys (settings or options) with several values in these runs, with the values.

    The order is that of the runs.

    >>> policies = ("fifo", "cat")
    >>> swept_keys(Run({"device": "a", "settings": {"gc.policy": policy}}) for policy in policies)
    {'gc.policy': ['fifo', 'cat']}
    """
    values: dict[str, list[Any]] = {}
    for run in runs:
        for key, value in _keys(run).items():
            if value not in values.setdefault(key, []):
                values[key].append(value)
    return {key: key_values for key, key_values in values.items() if len(key_values) > 1}


def _keys(run: Run) -> Mapping[str, Any]:
    options = run.get("options", {})
    chosen = {name: value for name, value in options.items() if name in _OPTIONS}
    return {"device": run.device, **chosen, **run.get("settings", {}), **options.get("layer_settings", {})}


def setting_text(setting: Setting) -> str:
    """Format a setting in one line.

    >>> setting_text((("device", "nexus5"), ("gc.policy", "fifo"), ("gc.idle", True)))
    'nexus5, gc.policy = fifo, gc.idle = true'
    """
    words = [str(value) if key in _PLAIN else f"{key} = {plain_value(value)}" for key, value in setting]
    return ", ".join(words)


def plain_value(value: Any) -> str:
    """Format a value as in a study file, without quotes."""
    return str(value).lower() if isinstance(value, bool) else "–" if value is None else str(value)


def _summary(grid: str, runs: list[Run], metrics: tuple[Metric, ...]) -> Summary:
    swept = swept_keys(runs)
    settings = list(swept) or ["device"]
    groups: dict[tuple[str, Setting], list[Run]] = {}
    for run in runs:
        keys = _keys(run)
        setting = tuple((key, keys.get(key)) for key in settings)
        groups.setdefault((run.input, setting), []).append(run)
    points = [_point(name, setting, group, metrics) for (name, setting), group in groups.items()]
    return Summary(grid, swept, points, _ranked(points, groups, metrics), metrics)


def _point(name: str, setting: Setting, runs: list[Run], metrics: Sequence[Metric]) -> Point:
    done = [run for run in runs if run.message is None]
    complete = [run for run in done if run.run.stopped is None]
    by_seed = {
        metric.name: {run.seed: value for run in complete if (value := metric.of(run)) is not None}
        for metric in metrics
    }
    by_seed = {name: values for name, values in by_seed.items() if values}
    return Point(
        name,
        setting,
        {name: _spread(values) for name, values in by_seed.items()},
        by_seed,
        len(complete),
        tuple(dict.fromkeys(reason for run in done if (reason := run.run.stopped) is not None)),
        tuple(dict.fromkeys(run.message for run in runs if run.message is not None)),
        sum(run.run.load.overloaded for run in complete),
    )


def _ranked(
    points: Sequence[Point], groups: dict[tuple[str, Setting], list[Run]], metrics: Sequence[Metric]
) -> list[Ranked]:
    settings = list(dict.fromkeys(point.setting for point in points))
    ranked_metrics = []
    for metric in metrics:
        having = {
            (point.input, point.setting)
            for point in points
            if metric.name in point.figures and not point.ended_early and not point.failed
            if not (metric.is_response and point.overloaded)
        }
        names = dict.fromkeys(point.input for point in points)
        inputs = [name for name in names if all((name, setting) in having for setting in settings)]
        if not inputs:
            continue
        by_seed = {setting: _over_inputs(metric, [groups[name, setting] for name in inputs]) for setting in settings}
        ranked = _rank(metric, by_seed, tuple(inputs), len(names))
        values = {(point.input, point.setting): point.by_seed[metric.name] for point in points if point.input in inputs}
        effects = effects_of(values, highest_is_best=metric.highest_is_best, is_ratio=metric.unit != "%")
        ranked = replace(ranked, effects=tuple(effects))
        if (first := ranked.strongest) is not None:
            chosen = (first.key, first.best)
            inside = {
                tuple(pair for pair in setting if pair != chosen): seed_means
                for setting, seed_means in by_seed.items()
                if chosen in setting
            }
            if len(inside) > 1:
                ranked = replace(ranked, within=_rank(metric, inside, tuple(inputs), len(names)))
        ranked_metrics.append(ranked)
    return ranked_metrics


def _rank(metric: Metric, by_seed: dict[Setting, dict[int, float]], inputs: tuple[str, ...], all_inputs: int) -> Ranked:
    """Rank settings by their means over the seeds, and list those that cannot be distinguished from the best."""
    values = {setting: _spread(figures) for setting, figures in by_seed.items()}
    settings, is_ratio = list(by_seed), metric.unit != "%"
    order = order_of(list(by_seed.values()), highest_is_best=metric.highest_is_best, is_ratio=is_ratio)
    best = settings[order.best]
    worst = (min if metric.highest_is_best else max)(settings, key=lambda setting: values[setting].mean)
    best_text = metric.text(values[best].mean)
    not_told = [settings[place] for place in order.indistinguishable]
    alike = tuple(setting for setting in not_told if metric.text(values[setting].mean) != best_text)
    interval = difference_interval(by_seed[best], by_seed[worst], len(settings) - 1, ratio=is_ratio)
    if worst == best:
        interval = None
    return Ranked(
        metric,
        _essential(best, values, metric),
        _essential(worst, values, metric),
        values[best],
        values[worst],
        inputs,
        all_inputs,
        len(by_seed[best]),
        alike,
        interval and as_change(interval, by_seed[best], by_seed[worst], is_ratio=is_ratio),
        worst not in not_told and worst != best,
    )


def _essential(setting: Setting, values: dict[Setting, Spread], metric: Metric) -> Setting:
    """Return a setting without the keys (such as `gc.policy`) that do not change the printed value of the metric."""
    printed = metric.text(values[setting].mean)

    def matters(key: str) -> bool:
        rest = [pair for pair in setting if pair[0] != key]
        alike = [other for other in values if all(pair in other for pair in rest)]
        return any(metric.text(values[other].mean) != printed for other in alike)

    return tuple(pair for pair in setting if matters(pair[0])) or setting


def _over_inputs(metric: Metric, groups: Sequence[Sequence[Run]]) -> dict[int, float]:
    """Average a metric over the inputs for each seed; geometric means of times keep single inputs from dominating."""
    by_seed: dict[int, list[float]] = {}
    for runs in groups:
        for run in runs:
            value = metric.of(run)
            if value is not None:
                by_seed.setdefault(run.seed, []).append(value)
    return {seed: average(values, arithmetic=metric.unit == "%") for seed, values in by_seed.items()}


def _spread(by_seed: Mapping[int, float]) -> Spread:
    values = by_seed.values()
    return Spread(sum(values) / len(values), min(values), max(values))
