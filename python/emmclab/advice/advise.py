"""Simulates design options of a device under a trace; returns gain and cost of each, and estimates lifetimes."""

import contextlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import as_completed, wait
from dataclasses import asdict, dataclass
from os import fspath
from pathlib import Path
from typing import Any, NamedTuple, cast

from emmclab.advice.device_state import (
    AUTO,
    IMAGES_BYTES,
    NEW,
    USED,
    State,
    collects,
    daily_bytes_of,
    settle,
    shared_images,
    state_of_life,
)
from emmclab.advice.journal_modes import JournalAdvice, advise_journal
from emmclab.advice.lifetime_load import DAY_S, RATES, YEAR_S
from emmclab.comparison.seed_statistics import is_random_run, order_of, untested
from emmclab.errors import ConfigError, EmmclabError
from emmclab.runtime.document import change_pct, signed
from emmclab.runtime.threads import threads
from emmclab.simulation.device import Device
from emmclab.simulation.result import Result
from emmclab.simulation.result_fields import result_field
from emmclab.simulation.result_text import durability_unknown, ended_early, much_wrapped, offered, trusted, without_slc
from emmclab.simulation.run_options import RunOptions, parse_precondition
from emmclab.traces.trace import Trace

#: Result field with the lifetime, in bytes that the host can write.
LIFETIME = result_field("wear.lifetime.even_host_bytes")
GB = 1 << 30
#: Share of the capacity that replays must write for an estimate of the lifetime. There are at most `_MOST_PASSES`
#: replays.
_LIFE_SHARE = 0.01
_MOST_PASSES = 100


@dataclass(frozen=True)
class Life:
    """Lifetime of a device under a trace, measured on a used device."""

    #: Write amplification factor of this run.
    waf: float
    #: Data that the host can write until all blocks of one kind have reached their erase limit, in GB (with perfect
    #: wear levelling).
    host_gb: float
    #: Years until the host has written `host_gb` at `daily_gb` a day; None if the trace has no duration.
    years: float | None
    #: Data written in a day: of a used device that was asked for its own, otherwise at the average rate of the trace.
    daily_gb: float | None
    #: Kind of block that is worn out first, as `wear.kinds` of a result names it.
    ends_first: str
    #: Number of replays of the trace until 1 % of the capacity was written.
    passes: int
    #: Data on the device before the run, as a value of the option `precondition`.
    precondition: str

    @property
    def text(self) -> str:
        """The number of bytes that the host can write until the device is worn out, formatted as text."""
        return lifetime_text(self.host_gb)


def lifetime_text(host_gb: float | None) -> str:
    """Format bytes that the host can write as the lifetime of a run; a dash if unknown.

    >>> lifetime_text(5120.0), lifetime_text(None)
    ('5.50', '–')
    """
    return LIFETIME.text(None if host_gb is None else host_gb * GB)


def life_under(
    device: Device,
    layers: Sequence[str],
    traces: Sequence[Trace],
    base: Result,
    replay: RunOptions,
    daily_bytes: float | None = None,
) -> Life | None:
    """Return the lifetime of a used device under traces.

    Return None if the traces write nothing, the device has no erase limit, or the run stops early. `base` is the run of
    the traces on the device without layers. `replay` contains the options of the run, including the state of the used
    device. With `daily_bytes`, the traces are stretched or compressed to this amount in a day.
    """
    bytes_written = base.requests.bytes_written
    if not bytes_written:
        return None
    passes = min(_MOST_PASSES, math.ceil(_LIFE_SHARE * base.configuration.capacity_bytes / bytes_written))
    aged: RunOptions = {
        "images": replay.get("images"),
        "images_limit": replay.get("images_limit"),
        "precondition": replay["precondition"],
        "seed": replay["seed"],
        "passes": passes,
        "layers": layers,
        "wrap_addresses": True,
    }
    # The request rate in the mode `back_to_back` is not that of the trace, so it determines no lifetime in years.
    seconds = 0.0 if base.run.mode == "back_to_back" else base.run.simulated_s
    own_bytes = bytes_written / seconds * DAY_S if seconds else None
    if own_bytes and daily_bytes:
        aged |= {"mode": "open", "rate": min(max(daily_bytes / own_bytes, RATES[0]), RATES[1])}
    run = device.simulate(*traces, **aged)
    lifetime = run.wear.lifetime
    host_bytes = lifetime.even_host_bytes if lifetime else None
    if host_bytes is None or run.run.stopped:
        return None
    daily = daily_bytes or own_bytes
    years = host_bytes / daily * DAY_S / YEAR_S if daily else None
    waf, precondition = run.write_amplification.waf, str(run.options["precondition"])
    first = min((kind for kind in run.wear.kinds if kind.even_host_bytes), key=lambda kind: kind.even_host_bytes or 0.0)
    return Life(waf, host_bytes / GB, years, daily / GB if daily else None, first.kind, passes, precondition)


def measurement_text(life: Life, base: Result) -> str:
    """Return a sentence that explains how a lifetime was measured."""
    times = "once" if life.passes == 1 else f"{life.passes} times"
    left_out = f"; {text}" if (text := without_slc(base)) else ""
    own_gb = base.requests.bytes_written / base.run.simulated_s * DAY_S / GB if base.run.simulated_s else None
    origin = "the trace's own rate of " if life.daily_gb == own_gb else ""
    in_years = "" if life.daily_gb is None else f"; years at {origin}{life.daily_gb:,.1f} GB a day"
    return (
        "Lifetime: bytes that the host can write until all blocks of one kind (of a block group, or in SLC "
        "mode) have reached their erase limit, on a device in use "
        f"(`--precondition {life.precondition}`, then this trace {times}){in_years}; the {life.ends_first} blocks end "
        f"first{left_out}."
    )


#: Result fields by which options can be ranked. Smaller values are better.
FIGURES = {
    "mean": result_field("response.mean_response_ms"),
    "p99": result_field("response.p99_ms"),
    "waf": result_field("write_amplification.waf"),
}
#: All criteria by which options can be ranked, with their names. For the lifetime, larger values are better.
ORDERS = {**{by: field.name for by, field in FIGURES.items()}, "lifetime": "lifetime"}


#: Smallest change that counts as an improvement, in percent: presets are fitted to published figures of two or
#: three digits, so smaller changes are not significant.
MATERIAL_PCT = 1.0


@dataclass(frozen=True)
class Option:
    """A change of a device: settings by dotted key, with a description."""

    name: str
    about: str
    settings: dict[str, str | float | bool]


@dataclass(frozen=True)
class Advice:
    """Effect of one design option under a trace, compared with the unchanged device."""

    option: str
    about: str
    settings: dict[str, str | float | bool]
    mean_response_ms: float
    mean_change_pct: float
    p99_response_ms: float
    p99_change_pct: float
    waf: float
    #: Lifetime; None if it was not requested, or if the device has no erase limit or does not collect garbage.
    life: Life | None
    #: Energy in mJ; None if the device has no energy figures.
    energy_mj: float | None
    #: Change of the capacity that the host can use, in percent of the capacity without the option.
    capacity_change_pct: float
    #: Additional RAM that the device needs with the option, in KB.
    ram_kb: int
    #: Whether the result is reliable: the device served all requests and kept up with their arrivals.
    trusted: bool
    #: Further risks and requirements of the option.
    note: str
    #: Value of the ranking criterion for each random seed.
    by_seed: dict[int, float]

    def to_dict(self) -> dict[str, object]:
        """Return all fields as a dictionary of JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Advised:
    """Results: the unchanged device, the options (best first), and the rejected options with the reason."""

    base: Result
    life: Life | None
    options: list[Advice]
    refused: dict[str, str]
    #: Criterion by which the options are ranked: a key of `ORDERS`.
    by: str
    #: Results for the modes of the layer `journal`.
    journal: JournalAdvice
    #: Value of the ranking criterion for the unchanged device, for each random seed.
    base_by_seed: dict[int, float]
    #: State of the devices before the runs, and how well it matches the recording.
    state: State

    @property
    def headline(self) -> str:
        """Return the best option and its effect on the figure by which the options are ranked."""
        sound = [advice for advice in self.options if advice.trusted]
        if not sound:
            return "No option serves the trace to its end at this load" if self.options else "No option is possible"
        best, metric = sound[0], ORDERS[self.by]
        if self.by == "lifetime":
            if best.life is None or self.life is None or not self.life.host_gb:
                return "No lifetime is known: the device collects no garbage, or has no erase limit"
            field, scale = LIFETIME, GB
        else:
            field, scale = FIGURES[self.by], 1
        before, after = _mean(self.base_by_seed), _mean(best.by_seed)
        change = change_pct(before, after) or 0.0
        numbers = " -> ".join(field.compared_texts(scale * before, scale * after))
        line = f"{best.option}: {signed(change, _digits(change))} % {metric} ({numbers})"
        is_random, highest = is_random_run(self.base), self.by == "lifetime"
        measured = [advice for advice in sound if advice.by_seed]
        order = order_of([advice.by_seed for advice in measured], highest_is_best=highest, is_random=is_random)
        against_base = order_of([best.by_seed, self.base_by_seed], highest_is_best=highest, is_random=is_random)
        if against_base.indistinguishable:
            line = f"No option improves the {metric} by more than chance; the best is {line}"
        elif against_base.best:
            line = f"No option improves the {metric}; the best is {line}"
        elif abs(change) < MATERIAL_PCT:
            line = (
                f"No option inside the device improves the {metric} by {MATERIAL_PCT:g} % or more; "
                f"the largest change is {line}"
            )
        elif order.indistinguishable:
            line += f"; not told apart: {', '.join(measured[place].option for place in order.indistinguishable)}"
        return line if order.is_tested else f"{line}; {untested('--seeds 5')}"

    @property
    def cautions(self) -> list[str]:
        """Warnings about the ranking, such as runs that ended early, overloaded runs, or wrapped addresses."""
        texts = [text] if (text := self.state.caution) else []
        if self.base.run.load.overloaded:
            texts.append(
                f"{_overload(self.base)}, so the ranking compares devices that are too slow for the trace; "
                "use a lower --rate or --mode closed"
            )
        if early := ended_early(self.base):
            texts.append(f"the unchanged device {early}")
        texts += filter(None, (much_wrapped(self.base), durability_unknown(self.base)))
        names = [advice.option for advice in self.options if not advice.trusted]
        if names:
            texts.append(f"ranked last, because they ended early or were overloaded: {', '.join(names)}")
        return texts


_NOTES = {
    "write buffer": "written data is lost with the power until a flush",
    "command queue": "needs eMMC 5.1 and a host that uses it",
    "packed writes": "needs eMMC 4.5 and a host that packs",
    "SLC cache": "assumed: SLC mode has half the read time, and a third of the program and erase times",
}


def options(device: Device) -> list[Option]:
    """List the options that apply to a device; times and sizes are derived from its settings."""
    values = {row.key: row.value for row in device.explain()}

    def number(key: str) -> float:
        return float(values[key])

    group = "geometry.block_groups.0."
    slc_blocks = max(int(number(group + "blocks") // 8), int(number("gc.low_watermark")) + 3)
    candidates = [
        Option("packed writes", "the host packs up to 32 waiting writes", {"host.packed_writes": 32}),
        Option(
            "request merging",
            "the host merges requests of neighbouring addresses up to 512 KB",
            {"host.merge_max_kb": 512},
        ),
        Option("command queue", "the device accepts up to 32 commands at a time", {"controller.queue_depth": 32}),
        Option("write buffer", "a buffer of 512 KB, written back at once", {"cache.size_kb": 512}),
        Option(
            "write buffer, 4 MB",
            "a buffer of 4 MB, written back in whole erase blocks when it is full",
            {"cache.size_kb": 4096, "cache.policy": "block_lru", "cache.write_back": "when_full"},
        ),
        Option("read cache", "a cache of 4 MB for data that was read before", {"cache.read_kb": 4096}),
        Option(
            "collection in pauses",
            "garbage is collected after 10 ms without requests",
            {
                "gc.idle_after_us": 10000,
                "gc.high_watermark": max(int(number("gc.high_watermark")), int(number("gc.low_watermark")) + 2),
            },
        ),
        Option(
            "SLC cache",
            "an eighth of the first block group in SLC mode, for writes up to 16 KB",
            {
                "slc.mode": "cache",
                "slc.blocks": slc_blocks,
                "slc.max_kb": 16,
                "slc.read_us": number(group + "read_us") / 2,
                "slc.program_us": number(group + "program_us") / 3,
                "slc.erase_us": number(group + "erase_us") / 3,
                # The erase limit of SLC blocks is set only if the other blocks have a limit.
                "slc.erase_limit": _SLC_ERASES if number(group + "erase_limit") else 0,
                "slc.fold_after_us": 10000,
            },
        ),
        Option("parallel planes", "the planes of a die work independently", {"timing.parallelism": "both"}),
        Option("static wear levelling", "wear levelling also moves cold data", {"wear.levelling": "static"}),
    ]
    return [option for option in candidates if _changes(option, values)]


def _already_there(option: Option, device: Device) -> str | None:
    """Return a note that the device already has the feature of an option; None if it does not."""
    values = {row.key: row.value.strip('"') for row in device.explain()}
    if "slc.mode" not in option.settings or values["slc.mode"] == "off":
        return None
    kind = "a WriteBooster" if values["interface.kind"] == "ufs" else "flash in SLC mode"
    return f"{device.name} has {kind} already"


def _changes(option: Option, values: dict[str, str]) -> bool:
    """Return whether an option changes any setting of the device."""
    planes = [values[f"geometry.{part}"] for part in ("dies_per_chip", "planes_per_die")]
    if option.name == "parallel planes" and planes == ["1", "1"]:
        return False
    return any(values.get(key, "").strip('"') != str(value) for key, value in option.settings.items())


#: Assumed erase limit of a block with one bit per cell, as in the preset emmc51-cache.
_SLC_ERASES = 30_000


def advise(
    device: Device,
    traces: Sequence[Trace],
    *,
    by: str = "mean",
    lifetime: bool = False,
    progress: Callable[[int, int], None] | None = None,
    jobs: int = 0,
    seeds: int = 1,
    planned: Callable[[int, float], None] | None = None,
    **replay: Any,
) -> Advised:
    """Simulate every option on traces; `replay` contains options of `Device.simulate`.

    `planned` is called before the first run. Its arguments are the number of devices that are preconditioned, and the
    maximum number of bytes that this writes, in the requested state or in that of a phone after a year. Options that do
    not change the contents share a device.

    With several `seeds`, each figure is the mean of this many runs, with consecutive seeds from that of `replay`. An
    option is called the best only if its difference from the others is significant over the seeds.

    `jobs` simulations run in parallel; 0 means one per processor. The results do not depend on it.

    Without `precondition`, or with `auto`, the devices are in the state whose response is nearest to the recorded one
    (`settle`). If no response is recorded, they are in the state of a phone after a year. `precondition="none"`
    simulates new devices. Preconditioning takes seconds for each different device and 32 GB; it is done only once if
    `images` is a folder.

    Options whose run ended early or was overloaded come last. If the trace contains the roles of written blocks, the
    modes of the layer `journal` are tried.

    On a short trace a new device never collects garbage, so that no lifetime can be estimated. With `lifetime`, or if
    the options are ranked by it, every option is run once more. This run repeats the traces until they have written 1 %
    of the capacity, on a used device (`USED`) if new devices were requested. This takes seconds for each option and 32
    GB; it is done only once if `images` is a folder.

    Raises:
        ConfigError: there is no such order, or the unchanged device cannot run the traces.

    >>> import emmclab
    >>> trace = emmclab.read(emmclab.bundled()[0])
    >>> found = advise(Device.preset("nexus5"), [trace], precondition="none").options
    >>> found[0].mean_change_pct <= found[-1].mean_change_pct
    True
    """
    if by not in ORDERS:
        raise ConfigError(f"options cannot be ranked by `{by}`", field="by", hint=f"rank by one of {', '.join(ORDERS)}")
    lifetime = lifetime or by == "lifetime"
    candidates = options(device)
    advices, refused = [], {}
    run_options = cast("RunOptions", replay)
    own_images = run_options.get("images")
    with shared_images(None if own_images is None else fspath(own_images)) as folder, threads(jobs) as pool:
        if own_images is None:
            run_options["images"], run_options["images_limit"] = folder, IMAGES_BYTES
        is_collecting = collects(device)
        changed: list[Device] = []
        for option in list(candidates):
            try:
                changed.append(device.set(option.settings))
            except ConfigError as error:
                refused[option.name] = _already_there(option, device) or str(error)
                candidates.remove(option)
        all_seeds = [run_options.get("seed", 1) + offset for offset in range(seeds)]
        if planned is not None:
            given = run_options.get("precondition")
            states = {USED if is_collecting else NEW} if given in (None, AUTO) else {fspath(given)}
            if lifetime and is_collecting and NEW in states:
                states.add(USED)
            pairs = itertools.product((device, *changed), states, all_seeds)
            images = {image for pair in pairs if (image := _image(*pair)) is not None}
            planned(len(images), sum(image.most_bytes for image in images))

        def as_it_is_in(precondition: str | Path) -> Result:
            return device.simulate(*traces, **run_options | {"precondition": fspath(precondition)})

        state, base = settle(as_it_is_in, pool, run_options, collects=is_collecting)
        run_options["precondition"] = state.precondition
        daily_bytes = daily_bytes_of(state)
        aged_life = state_of_life(state) if lifetime and is_collecting else None
        aged = () if aged_life is None else all_seeds if by == "lifetime" else all_seeds[:1]
        # Many options share a preconditioned device; each device is preconditioned once, before the runs.
        prepared = [pool.submit(_prepare, variant, run_options) for variant in changed]

        def life_of(changed: Device, layers: Sequence[str], seed: int) -> Life | None:
            if aged_life is None or not collects(changed):
                return None
            aged: RunOptions = {**run_options, "precondition": aged_life, "seed": seed}
            return life_under(changed, layers, traces, base, aged, daily_bytes)

        def runs(changed: Device, first: Result | None = None) -> Runs:
            """Run a device with every seed, and measure its lifetime with the seeds in `aged`."""
            by_seed = {all_seeds[0]: first or changed.simulate(*traces, **run_options)}
            by_seed |= {seed: changed.simulate(*traces, **run_options | {"seed": seed}) for seed in all_seeds[1:]}
            return Runs(by_seed, {seed: life_of(changed, (), seed) for seed in aged})

        def life_gb(layers: Sequence[str]) -> float | None:
            life = life_of(device, layers, all_seeds[0]) if lifetime else None
            return None if life is None else life.host_gb

        based = pool.submit(runs, device, base)
        futures = [pool.submit(runs, variant) for variant in changed]
        wait(prepared)
        for count, future in enumerate(as_completed(futures), 1):
            future.exception()
            if progress is not None:
                progress(count, len(futures))
        as_it_is = based.result()
        for option, future in zip(candidates, futures, strict=True):
            try:
                advices.append(_advice(option, as_it_is, future.result(), by))
            except ConfigError as error:
                refused[option.name] = str(error)
        journal = advise_journal(device, traces, as_it_is.by_seed, life_gb, **run_options)
    ranked = sorted(advices, key=lambda advice: (not advice.trusted, _order(advice, by), advice.option))
    return Advised(base, as_it_is.life, ranked, refused, by, journal, as_it_is.values(by), state)


class _Image(NamedTuple):
    """A preconditioned device that several runs share: the key of its contents, and the maximum bytes written."""

    contents: str
    most_bytes: float


def _image(device: Device, precondition: str, seed: int) -> _Image | None:
    """Return the preconditioned device of a run; None for a new device, or one that a trace preconditions."""
    parsed = parse_precondition(precondition)
    if parsed.trace is not None or not (most := parsed.way.most_bytes(device.capacity_bytes)):
        return None
    contents = device.core.deciding_contents(parsed.text.startswith("used:"))
    return _Image(f"{contents}\n{parsed.text} seed {seed if parsed.way.is_random else ''}", most)


def _prepare(device: Device, replay: RunOptions) -> None:
    """Precondition a device for a run; errors are ignored here, because the run reports them."""
    images = replay.get("images")
    if images is None:
        return
    with contextlib.suppress(EmmclabError):
        device.precondition(
            images, replay["precondition"], seed=replay.get("seed", 1), images_limit=replay.get("images_limit")
        )


class Runs(NamedTuple):
    """Runs of one device by seed, with the lifetime that each yields."""

    by_seed: dict[int, Result]
    lives: dict[int, Life | None]

    def mean(self, path: str) -> float:
        """Return the mean of a figure over the seeds."""
        return _mean({seed: run[path] for seed, run in self.by_seed.items()})

    def values(self, by: str) -> dict[int, float]:
        """Return the figure by which options are ranked, for each seed that has it."""
        if by == "lifetime":
            return {seed: life.host_gb for seed, life in self.lives.items() if life}
        return {seed: run[FIGURES[by].path] for seed, run in self.by_seed.items()}

    @property
    def life(self) -> Life | None:
        """The mean of the lifetimes; None if one of the runs has none."""
        lives = [life for life in self.lives.values() if life]
        if not lives or len(lives) < len(self.lives):
            return None
        years = [life.years for life in lives if life.years is not None]
        return Life(
            sum(life.waf for life in lives) / len(lives),
            sum(life.host_gb for life in lives) / len(lives),
            sum(years) / len(years) if years else None,
            lives[0].daily_gb,
            lives[0].ends_first,
            lives[0].passes,
            lives[0].precondition,
        )


def _digits(change_pct: float) -> int:
    """Return the number of decimals for a change: one, or more if the change would be printed as 0.0.

    >>> _digits(-12.34), _digits(-0.004), _digits(0.0)
    (1, 3, 1)
    """
    return max(1, -math.floor(math.log10(abs(change_pct)))) if change_pct else 1


def _mean(values: Mapping[int, float]) -> float:
    return sum(values.values()) / len(values) if values else 0.0


def _advice(option: Option, base: Runs, runs: Runs, by: str) -> Advice:
    def change(path: str) -> float:
        return change_pct(base.mean(path), runs.mean(path)) or 0.0

    name = option.name.partition(",")[0]
    all_runs = list(runs.by_seed.values())
    doubts = dict.fromkeys(text for run in all_runs for text in (ended_early(run), _overload(run)) if text)
    device = next(iter(base.by_seed.values()))
    energy = [total for run in all_runs if (total := run.energy.total_mj) is not None]
    return Advice(
        option=option.name,
        about=option.about,
        settings=option.settings,
        mean_response_ms=runs.mean("response.mean_response_ms"),
        mean_change_pct=change("response.mean_response_ms"),
        p99_response_ms=runs.mean("response.p99_ms"),
        p99_change_pct=change("response.p99_ms"),
        waf=runs.mean("write_amplification.waf"),
        life=runs.life,
        energy_mj=sum(energy) / len(energy) if len(energy) == len(all_runs) else None,
        capacity_change_pct=change("configuration.capacity_bytes"),
        ram_kb=all_runs[0].configuration.ram_kb - device.configuration.ram_kb,
        trusted=all(map(trusted, all_runs)),
        note="; ".join([*doubts, *filter(None, [_NOTES.get(name, "")])]),
        by_seed=runs.values(by),
    )


def _overload(run: Result) -> str:
    return f"overloaded: {offered(run)} it serves" if run.run.load.overloaded else ""


def _order(advice: Advice, by: str) -> float:
    mean = _mean(advice.by_seed)
    return -mean if by == "lifetime" else mean
