"""How long a device lasts under a load: its own wear in simulated runs, divided into the erase limits of its blocks.

A load is replayed until the device works at a constant rate. The erases of each kind of block per byte give the data
that the host can write (TBW) and the years at the daily amount of the load. Each assumption is then varied.
"""

import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from emmclab.advice.device_state import IMAGES_BYTES, shared_images
from emmclab.advice.lifetime_load import DAY_S, YEAR_S, Load, hours_text
from emmclab.advice.wear_rate import SLC_KINDS, STEADY_PCT, KindRate, WearRate, WearSimulator
from emmclab.comparison.seed_statistics import is_random
from emmclab.core_types import HealthReport, RegisterReport
from emmclab.errors import ConfigError, EmmclabError
from emmclab.runtime.document import decimal_size
from emmclab.runtime.threads import threads
from emmclab.simulation.device import Device
from emmclab.simulation.result_text import durability_unknown
from emmclab.simulation.run_options import RunOptions
from emmclab.traces.trace import Trace

#: Factor within which the erase limits are known, unless another is given: data sheets of TLC state 1,500 to 5,000
#: erases, and limits of real parts are seldom published.
LIMIT_FACTOR = 2.0
#: Share of the capacity that holds data that the load does not write, in percent, unless another is given.
FILLED_PCT = 75
#: Share that is tried instead.
_OTHER_FILL_PCT = 95
#: Number of writes between two flushes that is tried for a load without flushes.
_FLUSH_EVERY = 8
#: Hours of use in a day that are tried for a recording that is shorter than a day.
_HOURS_OF_USE = 8
#: Names of the life-time registers of flash in SLC mode (type A) and of other flash (type B); SD cards have none.
REGISTERS = {
    "emmc": ("DEVICE_LIFE_TIME_EST_TYP_A", "DEVICE_LIFE_TIME_EST_TYP_B"),
    "ufs": ("bDeviceLifeTimeEstA", "bDeviceLifeTimeEstB"),
}
#: Value of a life-time register beyond the life.
BEYOND = 11
_COLD = "data that is never written again stays in its blocks"


@dataclass(frozen=True)
class StartingWear:
    """Shares of their life that the flash in SLC mode (A) and the other flash (B) have used, each as an interval.

    `is_of_own_limit` is set if the shares are of the true limit, as registers state them; otherwise they are erases.
    """

    slc: tuple[float, float] = (0.0, 0.0)
    others: tuple[float, float] = (0.0, 0.0)
    is_of_own_limit: bool = False

    def of(self, kind: str) -> tuple[float, float]:
        """Return the interval of a kind of block."""
        return self.slc if kind.startswith(SLC_KINDS) else self.others


def starting_wear(report: RegisterReport) -> tuple[StartingWear, list[str]]:
    """Return the wear that the life-time registers of a device state, and notes on what they do not state."""
    values = {field.name: field.value for field in report.fields}
    names = REGISTERS[report.kind]
    intervals, notes = [], []
    for name in names:
        value = values.get(name)
        if not isinstance(value, int) or not 1 <= value <= BEYOND:
            intervals.append((0.0, 0.0))
            notes.append(f"{name} does not state how much life is used; none is assumed")
        else:
            intervals.append(((value - 1) / 10, min(value, 10) / 10))
            if value == BEYOND:
                notes.append(f"{name} is 0x0B: the device has exceeded the life that its manufacturer states")
    return StartingWear(intervals[0], intervals[1], is_of_own_limit=True), notes


def wear_of_counts(report: HealthReport, device: Device) -> tuple[StartingWear, list[str]]:
    """Return the wear that the erase counts of a health report state, as shares of the erase limits of a device.

    Raises:
        ConfigError: the report has no mean erases of the main flash, or the device has several limits for it.
    """
    means = {counts.area: counts.mean for counts in report.erases}
    main = next((means[area] for area in ("MLC/TLC", "all") if means.get(area) is not None), None)
    if main is None:
        raise ConfigError(f"the health report {report.format} states no mean erases", field="--health")
    settings = tomllib.loads(device.to_toml())
    limits = {group["erase_limit"] for group in settings["geometry"]["block_groups"]} - {0}
    if len(limits) > 1:
        raise ConfigError(
            f"the blocks of {device.name} have several erase limits, and the report does not separate them",
            field="--health",
            hint="choose a device with one kind of block",
        )
    slc, slc_limit = means.get("SLC"), settings["slc"]["erase_limit"]
    used = [
        erases / limit if erases and limit else 0.0
        for erases, limit in ((slc, slc_limit), (main, max(limits, default=0)))
    ]
    notes = []
    if slc is None and slc_limit:
        notes.append(f"{report.format} does not count the erases of flash in SLC mode; none are assumed")
    if report.rated_erases and limits != {report.rated_erases}:
        key = "geometry.block_groups.0.erase_limit"
        notes.append(
            f"{report.format} rates the flash for {report.rated_erases:,} erases: --set {key}={report.rated_erases}"
        )
    return StartingWear((used[0],) * 2, (used[1],) * 2), notes


@dataclass(frozen=True)
class Interval:
    """A value with its lower and upper bound."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Assumption:
    """An assumption of an estimate, and the years if something else is assumed; None if they are not known."""

    name: str
    here: str
    instead: str
    years: float | None
    reason: str = ""


@dataclass(frozen=True)
class KindLife:
    """The life of a kind of block under a load."""

    kind: str
    blocks: int
    erase_limit: int | None
    #: Bytes that the host can write in the whole life of these blocks; None without a limit, or if none is worn.
    host_bytes: float | None
    #: Years until these blocks are worn out, from now on.
    years: float | None
    #: Share of their life that is used now, in percent.
    used_now_pct: float
    #: Share of their life that is used each year, in percent.
    used_per_year_pct: float


@dataclass(frozen=True)
class RegisterRow:
    """What the life-time registers read after a time, in steps of 10 % (11: beyond the life; 0: unknown)."""

    years: float
    type_a: Interval
    type_b: Interval


@dataclass(frozen=True)
class Lifetime:
    """How long a device lasts under a load. Bytes are host writes; TB and GB in texts are decimal."""

    device: str
    interface: str
    load: str
    daily_bytes: float
    origin: str
    precondition: str
    #: Years from now on, with bounds from seeds, erase limits and the starting wear together.
    years: Interval
    years_by_seed: dict[int, float]
    #: Years with the erase limits divided by and multiplied with the factor; the same for the starting wear.
    years_of_limits: tuple[float, float]
    years_of_start: tuple[float, float]
    limit_factor: float
    #: Bytes that the host can write in the whole life (TBW), and from now on.
    host_bytes: Interval
    left_bytes: float
    ends_first: str
    kinds: list[KindLife]
    waf: float
    waf_parts: dict[str, float]
    #: Assumptions by their effect, the largest first.
    assumptions: list[Assumption]
    registers: list[RegisterRow]
    passes: int
    written_bytes: float
    is_steady: bool
    change_pct: float
    #: Shares of the bytes written that are a file system's journal and metadata, in percent; None if not recorded.
    journal_pct: float | None
    metadata_pct: float | None
    notes: list[str]
    provenance: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)

    @property
    def matters_most(self) -> Assumption | None:
        """The assumption with the largest effect; None if no variation changes the years."""
        return next((one for one in self.assumptions if one.years is not None and one.years != self.years.value), None)


@dataclass(frozen=True)
class _Estimate:
    """Years of a device from its wear, for changed limits and starting wear."""

    load: Load
    start: StartingWear

    def per_year(self, kind: KindRate) -> float:
        return kind.share * self.load.passes_per_year

    def left(self, kind: KindRate, factor: float, bound: int | None) -> float:
        """Return the share of the erases until the nominal limit that is left, if the limit is `factor` times this."""
        interval = self.start.of(kind.kind)
        used = sum(interval) / 2 if bound is None else interval[bound]
        return max(0.0, factor * (1 - used) if self.start.is_of_own_limit else factor - used)

    def years(self, rate: WearRate, factor: float = 1.0, bound: int | None = None, even: float = 1.0) -> float:
        """Return the years until the first kind of block is worn out.

        `bound` selects the least (0) or largest (1) starting wear, otherwise its middle. `even` is the share of the
        blocks outside SLC mode that take part in the wear.
        """
        years = [
            self.left(kind, factor, bound) * (1.0 if kind.is_slc else even) / self.per_year(kind)
            for kind in rate.kinds
            if kind.share > 0
        ]
        return min(years, default=math.inf)


def estimate_lifetime(
    device: Device,
    load: Load,
    *,
    filled_pct: float = FILLED_PCT,
    used: str | None = None,
    registers: StartingWear | None = None,
    seeds: int = 3,
    limit_factor: float = LIMIT_FACTOR,
    trace: Trace | None = None,
    images: str | None = None,
    jobs: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Lifetime:
    """Estimate how long a device lasts under a load, and what the estimate depends on.

    Args:
        device: the device; at least one kind of its blocks needs an erase limit.
        load: what is written.
        filled_pct: share of the capacity that holds other data, in percent.
        used: state of a used device as `used:AGE...`, in place of `filled_pct`; its wear so far counts.
        registers: wear so far, as the registers of the real device state it.
        seeds: number of seeds, if the run has random choices.
        limit_factor: factor within which the erase limits are known, 1 or more.
        trace: the recording of the load, from which the shares of journal and metadata are read.
        images: folder for preconditioned devices; None for a temporary one.
        jobs: number of simulations at a time; 0 for one per processor.
        progress: called with the number of simulations done and their total.

    Raises:
        ConfigError: no block has an erase limit, or the device cannot serve the load.

    >>> from emmclab.advice.lifetime_load import load_of_pattern
    >>> device = Device.preset("nexus5", capacity="1GB")
    >>> life = estimate_lifetime(device, load_of_pattern(1e9, size=65536), seeds=1)
    >>> life.years.low < life.years.value < life.years.high
    True
    """
    settings = tomllib.loads(device.to_toml())
    _require_limit(settings, device.name)
    if limit_factor < 1:
        raise ConfigError(
            f"the erase limits cannot be known within a factor of {limit_factor:g}",
            field="--limit-factor",
            hint="give 1 if they are known exactly, or a larger factor",
        )
    state = used or f"sequential:{filled_pct:g}"
    all_seeds = range(1, 1 + seeds) if load.is_random or is_random(settings, state) else range(1, 2)
    with shared_images(images) as folder, threads(jobs) as pool:

        def simulator(seed: int, precondition: str) -> WearSimulator:
            options: RunOptions = {"precondition": precondition, "seed": seed, "percentiles": [99]}
            return WearSimulator(device, {**options, "images": folder, "images_limit": IMAGES_BYTES})

        base = pool.submit(simulator(1, state).measure, load).result()
        trials = _trials(load, base, filled_pct if used is None else None)
        total = 1 + len(trials) + len(all_seeds) - 1
        if progress is not None:
            progress(1, total)
        futures = [pool.submit(simulator(seed, state).measure, load, base.passes) for seed in all_seeds[1:]]
        tried = [
            pool.submit(
                simulator(1, f"sequential:{trial.filled_pct:g}" if trial.filled_pct else state).measure,
                trial.load,
                _scaled(base.passes, load, trial.load),
            )
            for trial in trials
        ]
        for done, future in enumerate((*futures, *tried), 2):
            future.exception()
            if progress is not None:
                progress(done, total)
        rates = [base, *(future.result() for future in futures)]
        found: list[WearRate | EmmclabError] = []
        for future in tried:
            try:
                found.append(future.result())
            except EmmclabError as error:
                found.append(error)
    start = registers or starting_wear_of(base, used)
    estimate = _Estimate(load, start)
    by_seed = {seed: estimate.years(rate) for seed, rate in zip(all_seeds, rates, strict=True)}
    years = sum(by_seed.values()) / len(by_seed)
    if not math.isfinite(years):
        raise ConfigError(
            f"{load.name} erases no block of {device.name} that has an erase limit",
            field="--device",
            hint="set the limits of all kinds, for example --set slc.erase_limit=30000",
        )
    assumptions = [
        Assumption(trial.name, trial.here, trial.instead, *_years_of(trial, rate, start))
        for trial, rate in zip(trials, found, strict=True)
    ]
    uneven = _evenness(base, load, settings, device, None if used else filled_pct)
    if isinstance(uneven, float):
        worn = estimate.years(base, even=uneven)
        assumptions.append(Assumption("wear levelling", "all blocks wear evenly", _COLD, worn))
    elif uneven:
        assumptions.append(Assumption("wear levelling", "all blocks wear evenly", _COLD, None, uneven))
    if load.hours is not None and load.hours < 24:
        here = f"{hours_text(load.hours)} stand for the whole day"
        instead = f"the device is used {_HOURS_OF_USE} hours a day"
        assumptions.append(Assumption("day", here, instead, years * 24 / _HOURS_OF_USE))
    limits = tuple(estimate.years(base, factor) for factor in (1 / limit_factor, limit_factor))
    if limit_factor > 1:
        for word, of_limit in zip(("lower", "higher"), limits, strict=True):
            text = f"they are {word} by a factor of {limit_factor:g}"
            assumptions.append(Assumption("erase limits", "as the device states them", text, of_limit))
    worst = min(estimate.years(rate, 1 / limit_factor, 1) for rate in rates)
    best = max(estimate.years(rate, limit_factor, 0) for rate in rates)
    whole = _Estimate(load, StartingWear())
    host_bytes = [whole.years(rate) * YEAR_S / DAY_S * load.daily_bytes for rate in rates]
    middle = sum(host_bytes) / len(host_bytes)
    ends = min(
        (kind for kind in base.kinds if kind.share > 0),
        key=lambda kind: estimate.left(kind, 1.0, None) / estimate.per_year(kind),
    )
    journal, metadata = _recorded_shares(trace)
    return Lifetime(
        device=device.name,
        interface=settings["interface"]["kind"],
        load=load.name,
        daily_bytes=load.daily_bytes,
        origin=load.origin,
        precondition=str(base.result.options["precondition"]),
        years=Interval(years, worst, best),
        years_by_seed=by_seed,
        years_of_limits=(limits[0], limits[1]),
        years_of_start=(estimate.years(base, bound=1), estimate.years(base, bound=0)),
        limit_factor=limit_factor,
        host_bytes=Interval(middle, min(host_bytes) / limit_factor, max(host_bytes) * limit_factor),
        left_bytes=years * YEAR_S / DAY_S * load.daily_bytes,
        ends_first=ends.kind,
        kinds=[_kind_life(kind, estimate, whole) for kind in base.kinds],
        waf=sum(base.waf.values()),
        waf_parts=base.waf,
        assumptions=sorted(assumptions, key=lambda one: -_effect(one, years)),
        registers=list(_registers(base, estimate, years, limit_factor)),
        passes=base.passes,
        written_bytes=base.passes * load.pass_bytes,
        is_steady=base.is_steady,
        change_pct=base.change_pct,
        journal_pct=journal,
        metadata_pct=metadata,
        notes=list(_notes(base, load)),
        provenance=dict(base.result.provenance or {}),
    )


def years_left(rate: WearRate, load: Load, start: StartingWear) -> float:
    """Return the years until the first kind of block is worn out."""
    return _Estimate(load, start).years(rate)


@dataclass(frozen=True)
class _Trial:
    """A run with another assumption."""

    name: str
    here: str
    instead: str
    load: Load
    filled_pct: float | None = None


def _trials(load: Load, base: WearRate, filled_pct: float | None) -> list[_Trial]:
    """Return the runs that try other assumptions; `filled_pct` is None if the state of the device was given."""
    trials = [_Trial(*other) for other in load.others]
    if filled_pct is not None and filled_pct != _OTHER_FILL_PCT:
        here, instead = f"{filled_pct:g} % of the capacity", f"it is {_OTHER_FILL_PCT} %"
        trials.append(_Trial("data on the device", here, instead, load, _OTHER_FILL_PCT))
    unknown = load.is_made or durability_unknown(base.result)
    if base.result.configuration.write_buffer_kb and not load.flush_every and unknown:
        instead = f"one follows every {_FLUSH_EVERY} writes"
        trials.append(
            _Trial("flushes", "none are known, so none are sent", instead, replace(load, flush_every=_FLUSH_EVERY))
        )
    return trials


def _scaled(passes: int, load: Load, other: Load) -> int:
    """Return as many passes of another load as write the same bytes, an even number."""
    return 2 * max(1, round(passes * load.pass_bytes / other.pass_bytes / 2))


def _years_of(trial: _Trial, rate: WearRate | EmmclabError, start: StartingWear) -> tuple[float | None, str]:
    """Return the years of a trial, or the reason why they are not known."""
    if isinstance(rate, EmmclabError):
        return None, str(rate)
    years = years_left(rate, trial.load, start)
    return (years, "") if math.isfinite(years) else (None, "it wears no block with an erase limit")


def _effect(assumption: Assumption, years: float) -> float:
    """Return how much an assumption changes the years, as the logarithm of the factor; -1 if it is not known."""
    if assumption.years is None:
        return -1.0
    return abs(math.log(assumption.years / years)) if assumption.years > 0 and years > 0 else math.inf


def starting_wear_of(base: WearRate, used: str | None) -> StartingWear:
    """Return the wear of a used device before the run; none for a device that was only filled."""
    if used is None:
        return StartingWear()
    shares = {is_slc: _share_of(base.kinds, lambda kind: kind.used_before, is_slc) for is_slc in (True, False)}
    slc, others = (shares[is_slc] or 0.0 for is_slc in (True, False))
    return StartingWear((slc, slc), (others, others))


def _share_of(kinds: Sequence[KindRate], value: Callable[[KindRate], float], is_slc: bool) -> float | None:
    """Return the mean of a share over the blocks in SLC mode or the others, by erases; None without a limit."""
    limited = [kind for kind in kinds if kind.erase_limit and kind.is_slc == is_slc]
    erases = [(kind.erase_limit or 0) * kind.blocks for kind in limited]
    return sum(value(kind) * most for kind, most in zip(limited, erases, strict=True)) / sum(erases) if erases else None


def _evenness(
    base: WearRate, load: Load, settings: Mapping[str, Any], device: Device, filled_pct: float | None
) -> float | str:
    """Return the share of the blocks that wear if data that is never written again stays in place.

    Returns the reason if it is not known; empty if the device moves such data itself.
    """
    if settings["wear"]["levelling"] == "static":
        return ""
    if filled_pct is None or load.touched_bytes is None:
        return "the data that the load does not write is not known"
    cold = filled_pct / 100 * device.capacity_bytes - min(load.touched_bytes, device.capacity_bytes)
    flash = sum(kind.flash_bytes for kind in base.kinds if not kind.is_slc)
    return 1 - max(0.0, cold) / flash


def _kind_life(kind: KindRate, estimate: _Estimate, whole: _Estimate) -> KindLife:
    is_worn = kind.share > 0
    yearly_bytes = YEAR_S / DAY_S * estimate.load.daily_bytes
    return KindLife(
        kind.kind,
        kind.blocks,
        kind.erase_limit,
        yearly_bytes / whole.per_year(kind) if is_worn else None,
        estimate.left(kind, 1.0, None) / estimate.per_year(kind) if is_worn else None,
        100 * sum(estimate.start.of(kind.kind)) / 2,
        100 * estimate.per_year(kind),
    )


#: Steps between the rows of the registers, in years; one that gives at most 12 rows is chosen.
_STEPS = (1 / 365.25, 7 / 365.25, 1 / 12, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 50.0, 100.0)
_ROWS = 12


def _registers(base: WearRate, estimate: _Estimate, years: float, factor: float) -> Iterator[RegisterRow]:
    """Yield what the life-time registers read, until the life has ended."""
    step = next((step for step in _STEPS if years / step <= _ROWS - 1), years / (_ROWS - 2))
    per_year = {is_slc: _share_of(base.kinds, estimate.per_year, is_slc) for is_slc in (True, False)}
    for number in range(math.ceil(years / step - 1e-9) + 1):
        after = number * step
        yield RegisterRow(
            after,
            *(
                _register(per_year[is_slc], start, after, factor, is_share=estimate.start.is_of_own_limit)
                for is_slc, start in ((True, estimate.start.slc), (False, estimate.start.others))
            ),
        )


def _register(
    per_year: float | None, start: tuple[float, float], years: float, factor: float, *, is_share: bool
) -> Interval:
    """Return the value of a register after a time; 0 if the flash has no limit."""
    if per_year is None:
        return Interval(0, 0, 0)

    def steps(used: float, factor: float) -> int:
        share = used + per_year * years / factor if is_share else (used + per_year * years) / factor
        return min(BEYOND, max(1, math.ceil(10 * share - 1e-9)))

    return Interval(steps(sum(start) / 2, 1.0), steps(start[0], factor), steps(start[1], 1 / factor))


def _recorded_shares(trace: Trace | None) -> tuple[float | None, float | None]:
    """Return the shares of the bytes written that are journal and metadata, in percent; None if not recorded."""
    if trace is None or trace.is_job_file:
        return None, None
    journal = trace.journal()
    if not journal.by_roles:
        return journal["journal_pct"], None
    shares = {row["kind"]: row["written_pct"] for row in journal["by_kind"]}
    return shares.get("journal", 0.0), shares.get("home metadata", 0.0)


def _notes(base: WearRate, load: Load) -> Iterator[str]:
    """Yield notes on what limits the estimate."""
    written = decimal_size(base.passes * load.pass_bytes)
    if not base.is_steady and abs(base.change_pct) > STEADY_PCT:
        yield (
            f"the wear is not steady: after {written} written it still changes by {abs(base.change_pct):.0f} % from "
            "one half of the run to the next"
        )
    if not base.collects:
        yield f"{written} written did not use up the free flash, so the write amplification is without collection"
    if load.mode == "back_to_back":
        yield (
            f"{load.name} has no times and is replayed without pauses, in which a device folds its SLC cache; "
            "describe it with --pattern and --size to spread it over the day"
        )
    if wrapped := base.result.requests.wrapped_pct:
        yield f"{wrapped:.0f} % of the requests had addresses beyond the device, which were wrapped"


def _require_limit(settings: Mapping[str, Any], name: str) -> None:
    limits = [group["erase_limit"] for group in settings["geometry"]["block_groups"]]
    if not any(limits):
        raise ConfigError(
            f"{name} states no erase limit of its blocks, so they never wear out",
            field="geometry.block_groups.0.erase_limit",
            hint="give the limit of its flash, for example --set geometry.block_groups.0.erase_limit=3000",
        )
