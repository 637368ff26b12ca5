"""What would lengthen the life of a device under a load: changes of device, state and load, each with its price."""

import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from emmclab.advice.device_state import shared_images
from emmclab.advice.lifetime import Lifetime, StartingWear, starting_wear_of, years_left
from emmclab.advice.lifetime_load import DAY_S, Load, Writer
from emmclab.advice.wear_rate import WearRate, WearSimulator
from emmclab.errors import ConfigError, EmmclabError
from emmclab.runtime.document import size
from emmclab.runtime.threads import threads
from emmclab.simulation.device import Device

#: Additional over-provisioning, in points of a percent.
_MORE_SPARE_PCT = 7
#: Size of a larger write buffer, KB.
_LARGER_BUFFER_KB = 4096
#: Share of the capacity that is kept free in addition, in percent.
_MORE_FREE_PCT = 25
#: Other devices of the same interface that are tried at the same capacity.
_OTHERS = {
    "emmc": ("emmc51-tlc", "emmc51-cache"),
    "ufs": ("ufs22", "ufs31", "ufs40"),
    "sd": ("sandisk-extreme-a1", "sandisk-extreme-a2"),
}


@dataclass(frozen=True)
class LifetimeChange:
    """A change and the years with it; None if it is not possible, as `price` then explains."""

    name: str
    about: str
    years: float | None
    gained_years: float | None
    price: str


@dataclass(frozen=True)
class _Candidate:
    """A change before it is simulated; `device` returns the changed device, or raises a ConfigError."""

    name: str
    about: str
    device: Callable[[], Device]
    load: Load
    filled_pct: float
    price: str = ""
    is_same_part: bool = True


def _candidates(device: Device, load: Load, filled_pct: float) -> Iterator[_Candidate]:
    settings = tomllib.loads(device.to_toml())
    spare_pct = settings["capacity"]["over_provisioning_pct"] + _MORE_SPARE_PCT
    slc, cache = settings["slc"], settings["cache"]["size_kb"]

    def changed(name: str, about: str, price: str = "", **values: str | float) -> _Candidate:
        keys = {key.replace("__", "."): value for key, value in values.items()}
        return _Candidate(name, about, lambda: device.set(keys), load, filled_pct, price)

    yield changed(
        "over-provisioning", f"{_MORE_SPARE_PCT} points more spare flash", capacity__over_provisioning_pct=spare_pct
    )
    if slc["mode"] == "cache":
        yield changed("SLC cache", "twice as many blocks in SLC mode", slc__blocks=2 * slc["blocks"])
    if cache < _LARGER_BUFFER_KB:
        at_risk_s = _LARGER_BUFFER_KB * 1024 / load.daily_bytes * DAY_S
        price = (
            f"{size((_LARGER_BUFFER_KB - cache) * 1024)} of RAM; without a flush, data of {at_risk_s:,.0f} s is lost "
            "with the power"
        )
        about = f"a write buffer of {size(_LARGER_BUFFER_KB * 1024)}, written back when it is full"
        yield changed("write buffer", about, price, cache__size_kb=_LARGER_BUFFER_KB, cache__write_back="when_full")
    if filled_pct > _MORE_FREE_PCT:
        about = f"{filled_pct - _MORE_FREE_PCT:g} % of the capacity hold data, and the rest is trimmed"
        price = f"{_MORE_FREE_PCT} % of the capacity stay free"
        yield _Candidate("free space", about, lambda: device, load, filled_pct - _MORE_FREE_PCT, price)
    for name in _OTHERS[settings["interface"]["kind"]]:
        if not device.name.startswith(name):
            yield _Candidate(
                name,
                "",
                lambda name=name: Device.preset(name).with_capacity(device.capacity_bytes),  # type: ignore[misc]
                load,
                filled_pct,
                "another part",
                is_same_part=False,
            )


@dataclass(frozen=True)
class WriterWear:
    """A process or file with what it writes in a day, and its part of the wear."""

    name: str
    about: str
    daily_bytes: float
    #: Share of all bytes that are written, in percent.
    bytes_pct: float
    mean_kb: float
    small_pct: float | None
    sequential_pct: float | None
    #: Part of the wear of the blocks that end first, simulated without its writes, in percent; None if not simulated.
    wear_pct: float | None


@dataclass(frozen=True)
class Remedies:
    """What would lengthen a life, by the years gained, and who writes, the largest first; empty if it is not known."""

    changes: Sequence[LifetimeChange] = ()
    writers: Sequence[WriterWear] = ()

    def to_dict(self) -> dict[str, object]:
        """Return all fields as JSON values."""
        return {"changes": [asdict(one) for one in self.changes], "writers": [asdict(one) for one in self.writers]}


def remedies(
    device: Device,
    load: Load,
    life: Lifetime,
    *,
    filled_pct: float,
    used: str | None = None,
    registers: StartingWear | None = None,
    images: str | None = None,
    jobs: int = 0,
) -> Remedies:
    """Simulate each change under the same load, and the load without each of its largest writers.

    Changes are in the order of the years gained, those that are impossible or not known last.

    Args:
        device: the device of the estimate.
        load: its load.
        life: the estimate.
        filled_pct: share of the capacity that holds other data, in percent; with less capacity, the share grows.
        used: state of a used device, in place of `filled_pct`.
        registers: wear so far, which another part does not have.
        images: folder for preconditioned devices; None for a temporary one.
        jobs: number of simulations at a time; 0 for one per processor.
    """

    def measured(candidate: _Candidate) -> tuple[WearRate, float]:
        """Return the wear with a change, and the change of the capacity in percent."""
        changed = candidate.device()
        filled = candidate.filled_pct * device.capacity_bytes / changed.capacity_bytes
        if filled > 100:
            raise ConfigError("its data would not fit the smaller capacity")
        state = used or f"sequential:{filled:g}"
        simulator = WearSimulator(changed, {"precondition": state, "seed": 1, "images": folder})
        passes = 2 * max(1, round(life.passes * load.pass_bytes / candidate.load.pass_bytes / 2))
        return simulator.measure(candidate.load, passes), 100 * (changed.capacity_bytes / device.capacity_bytes - 1)

    with (
        shared_images(images) as folder,
        tempfile.TemporaryDirectory(prefix="emmclab-loads-") as loads,
        threads(jobs) as pool,
    ):
        candidates, found = list(_candidates(device, load, filled_pct)), list[LifetimeChange]()
        if used is not None:
            candidates = [one for one in candidates if one.filled_pct == filled_pct]
        for change in load.changes(Path(loads)) if load.changes is not None else ():
            name, about, changed, price = change.name, change.about, change.load, change.price
            if changed is None:
                found.append(LifetimeChange(name, about, None, None, price))
            else:
                candidates.append(_Candidate(name, about, lambda: device, changed, filled_pct, price))
        writers = load.writers(Path(loads)) if load.writers is not None else ()
        spared = {
            one.name: pool.submit(measured, _Candidate(one.name, "", lambda: device, one.without, filled_pct))
            for one in writers
            if one.without is not None
        }
        futures = [pool.submit(measured, candidate) for candidate in candidates]
        for candidate, future in zip(candidates, futures, strict=True):
            try:
                rate, capacity_pct = future.result()
            except EmmclabError as error:
                found.append(LifetimeChange(candidate.name, candidate.about, None, None, f"not possible: {error}"))
                continue
            start = (registers if candidate.is_same_part else None) or starting_wear_of(rate, used)
            value = years_left(rate, candidate.load, start)
            costs = f"{capacity_pct:+.1f} % of the capacity" if abs(capacity_pct) >= 0.05 else ""
            price = "; ".join(filter(None, (costs, candidate.price))) or "none"
            found.append(LifetimeChange(candidate.name, candidate.about, value, value - life.years.value, price))
        without = {name: future.result()[0] for name, future in spared.items()}
        worn = [_writer_wear(writer, load, life, without.get(writer.name)) for writer in writers]
    found.sort(key=lambda one: -(one.gained_years if one.gained_years is not None else float("-inf")))
    return Remedies(found, worn)


def _writer_wear(writer: Writer, load: Load, life: Lifetime, without: WearRate | None) -> WriterWear:
    share = None
    if without is not None and writer.without is not None:
        ends = next(kind for kind in life.kinds if kind.kind == life.ends_first)
        spared = next(kind for kind in without.kinds if kind.kind == life.ends_first)
        share = 100 - 100 * 100 * spared.share * writer.without.passes_per_year / ends.used_per_year_pct
    elif writer.written == load.pass_bytes:
        share = 100.0
    return WriterWear(
        writer.name,
        writer.about,
        load.daily_bytes * writer.written / load.pass_bytes,
        100 * writer.written / load.pass_bytes,
        writer.written / writer.requests / 1024,
        writer.small_pct,
        writer.sequential_pct,
        share,
    )
