"""What would lengthen the life of a device under a load: changes of device, state and load, each with its price."""

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from emmclab.advice.device_state import shared_images
from emmclab.advice.lifetime import Lifetime, StartingWear, starting_wear_of, years_left
from emmclab.advice.lifetime_load import DAY_S, Load
from emmclab.advice.wear_rate import WearSimulator
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
#: Number of writes that an application writes at once.
_BATCHED = 8
#: Other devices of the same interface that are tried at the same capacity.
_OTHERS = {"emmc": ("emmc51-tlc", "emmc51-cache"), "ufs": ("ufs22", "ufs31", "ufs40")}


@dataclass(frozen=True)
class LifetimeChange:
    """A change and the years with it; None if it is not possible, as `price` then explains."""

    name: str
    about: str
    years: float | None
    gained_years: float | None
    price: str

    def to_dict(self) -> dict[str, object]:
        """Return all fields as JSON values."""
        return asdict(self)


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
    if load.batched is not None:
        batched = load.batched(_BATCHED)
        at_risk_s = _BATCHED * load.write_bytes / load.daily_bytes * DAY_S
        price = f"the application loses up to {at_risk_s:,.3g} s of data with the power"
        yield _Candidate("batching", f"{_BATCHED} writes at once", lambda: device, batched, filled_pct, price)
    for name in _OTHERS[settings["interface"]["kind"]]:
        if not device.name.startswith(name):
            yield _Candidate(
                name,
                "another device of the same capacity",
                lambda name=name: Device.preset(name).with_capacity(device.capacity_bytes),  # type: ignore[misc]
                load,
                filled_pct,
                "another part",
                is_same_part=False,
            )


def lifetime_changes(
    device: Device,
    load: Load,
    life: Lifetime,
    *,
    filled_pct: float,
    registers: StartingWear | None = None,
    images: str | None = None,
    jobs: int = 0,
) -> list[LifetimeChange]:
    """Simulate each change under the same load; return them by the years gained, impossible ones last.

    Args:
        device: the device of the estimate.
        load: its load.
        life: the estimate.
        filled_pct: share of the capacity that holds other data, in percent; with less capacity, the share grows.
        registers: wear so far, which another part does not have.
        images: folder for preconditioned devices; None for a temporary one.
        jobs: number of simulations at a time; 0 for one per processor.
    """

    def years(candidate: _Candidate) -> tuple[float, float]:
        """Return the years with a change, and the change of the capacity in percent."""
        changed = candidate.device()
        filled = candidate.filled_pct * device.capacity_bytes / changed.capacity_bytes
        if filled > 100:
            raise ConfigError("its data would not fit the smaller capacity")
        simulator = WearSimulator(changed, {"precondition": f"sequential:{filled:g}", "seed": 1, "images": folder})
        passes = 2 * max(1, round(life.passes * load.pass_bytes / candidate.load.pass_bytes / 2))
        rate = simulator.measure(candidate.load, passes)
        start = registers if candidate.is_same_part else None
        return (
            years_left(rate, candidate.load, start or starting_wear_of(rate, None)),
            100 * (changed.capacity_bytes / device.capacity_bytes - 1),
        )

    candidates = list(_candidates(device, load, filled_pct))
    with shared_images(images) as folder, threads(jobs) as pool:
        futures = [pool.submit(years, candidate) for candidate in candidates]
        found = []
        for candidate, future in zip(candidates, futures, strict=True):
            try:
                value, capacity_pct = future.result()
            except EmmclabError as error:
                found.append(LifetimeChange(candidate.name, candidate.about, None, None, f"not possible: {error}"))
                continue
            costs = f"{capacity_pct:+.1f} % of the capacity" if abs(capacity_pct) >= 0.05 else ""
            price = "; ".join(filter(None, (costs, candidate.price))) or "none"
            found.append(LifetimeChange(candidate.name, candidate.about, value, value - life.years.value, price))
    if load.batched is None:
        reason = "not known: a trace does not show what the application can write together; record it with the change"
        found.append(LifetimeChange("batching", f"{_BATCHED} writes at once", None, None, reason))
    return sorted(found, key=lambda one: -(one.gained_years if one.gained_years is not None else float("-inf")))
