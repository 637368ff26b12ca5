"""Wear of a device by a load, measured in simulated runs that are long enough for constant work."""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from emmclab.advice.lifetime_load import DAY_S, Load
from emmclab.errors import ConfigError
from emmclab.runtime.document import TextTable, decimal_size
from emmclab.simulation.device import Device
from emmclab.simulation.result import Result
from emmclab.simulation.result_text import ended_early
from emmclab.simulation.run_options import RunOptions
from emmclab.traces.workload import pattern

#: First words of the kinds of blocks in SLC mode, as the wear of a result names them.
SLC_KINDS = ("WriteBooster", "SLC", "enhanced area", "conventional zones")
#: The work of the device is constant if it changes by at most this much from the first half of a run to the second.
STEADY_PCT = 2.0
#: Blocks in SLC mode end the life whatever collection does, if they are worn this many times as much as the others: the
#: wear of an SLC cache does not depend on collection, which begins only when the free flash is used up.
_FAR = 10.0
#: Erase limit of the simulated blocks, which no run reaches.
_ENDLESS = 1_000_000_000
#: Share of the capacity that the shortest run writes.
_LEAST_SHARE = 0.01
#: Maximum number of requests and page programs of a run, which takes some 10 s.
_MOST_OPERATIONS = 8_000_000


@dataclass(frozen=True)
class KindRate:
    """Wear of a kind of block (a block group, or the blocks in SLC mode) by a pass of a load."""

    kind: str
    blocks: int
    #: Bytes of the blocks that hold data, without spare blocks.
    flash_bytes: float
    erase_limit: int | None
    #: Share of all erases until the limit that a pass uses.
    share: float
    #: Share of the limit that the blocks had used before the run, on average.
    used_before: float

    @property
    def is_slc(self) -> bool:
        """Whether the blocks are in SLC mode."""
        return self.kind.startswith(SLC_KINDS)


@dataclass(frozen=True)
class WearRate:
    """Wear by a pass of a load, when the device works at a constant rate."""

    kinds: tuple[KindRate, ...]
    #: Bytes programmed per byte of the host, by part; their sum is the write amplification.
    waf: dict[str, float]
    passes: int
    is_steady: bool
    #: Whether blocks outside SLC mode were erased, so that garbage collection takes part.
    collects: bool
    #: Change of the life from the first half of the run to the second, in percent.
    change_pct: float
    result: Result


#: Parts of the write amplification: key, name, and whether a part of 0 is listed.
WAF_PARTS = (
    ("data", "data of the host", True),
    ("small_writes", "small writes", True),
    ("collection", "garbage collection", True),
    ("folding", "folding of the SLC cache", True),
    ("levelling", "wear levelling", False),
    ("refresh", "refresh of data that was read often", False),
    ("map", "map on the flash", False),
)


class _Work:
    """The work of a device in a run, as totals that can be subtracted."""

    def __init__(self, result: Result) -> None:
        parts, written = result.write_amplification, float(result.requests.bytes_written)
        folded = float(result.slc.folded_bytes)
        self.written = written
        self.parts = {
            "data": written,
            "small_writes": (parts.host - 1) * written,
            "collection": parts.gc * written - folded,
            "folding": folded,
            "levelling": parts.wear * written,
            "refresh": parts.refresh * written,
            "map": parts.map * written,
        }
        #: Share of the erases until the limit, by kind.
        self.used = [written / kind.even_host_bytes if kind.even_host_bytes else 0.0 for kind in result.wear.kinds]
        self.erases = sum(
            kind.mean_erases * kind.blocks for kind in result.wear.kinds if not kind.kind.startswith(SLC_KINDS)
        )


class _Flash(NamedTuple):
    """Bytes of a block (on average, spare blocks have none) and erase limit of each block group, then of SLC mode."""

    block_bytes: float
    erase_limit: int | None


def erase_limits(device: Device) -> TextTable:
    """Return the erase limit of each kind of block of a device."""
    kinds = device.simulate(pattern(1, reads_pct=100, size=4096, span=4096)).wear.kinds
    rows = [
        [kind.kind, f"{kind.blocks:,}", "none stated" if kind.erase_limit is None else f"{kind.erase_limit:,}"]
        for kind in kinds
    ]
    return TextTable("Erase limits by kind of block", ["Kind", "Blocks", "Erase limit"], rows)


def _flash(device: Device) -> list[_Flash]:
    settings = tomllib.loads(device.to_toml())
    groups = settings["geometry"]["block_groups"]
    slc, kinds = settings["slc"], []
    for number, group in enumerate(groups):
        own = group["blocks"] - (slc["blocks"] if slc["group"] == number else 0)
        block_bytes = group["pages_per_block"] * group["page_kb"] * 1024
        kinds.append(_Flash(block_bytes * (1 - group["spare_blocks"] / own), group["erase_limit"] or None))
    return [*kinds, _Flash(kinds[slc["group"]].block_bytes, slc["erase_limit"] or None)]


class WearSimulator:
    """Runs loads on one device in one state. Its blocks do not wear out in a run, because their limits are raised."""

    def __init__(self, device: Device, options: RunOptions) -> None:
        self.device, self.options, self.flash = device, options, _flash(device)
        raised = {f"geometry.block_groups.{number}.erase_limit": _ENDLESS for number in range(len(self.flash) - 1)}
        self.endless = device.set({**raised, "slc.erase_limit": _ENDLESS})

    def run(self, load: Load, passes: int) -> Result:
        """Replay passes of a load. Raises: ConfigError if the device stops early or cannot keep up."""
        options: RunOptions = {
            **self.options,
            "mode": load.mode,
            "rate": load.rate,
            "flush_every": load.flush_every,
            "wrap_addresses": True,
        }
        result = self.endless.simulate(load.trace(passes, self.options.get("seed", 1)), **options)
        if early := ended_early(result):
            raise ConfigError(
                f"the life of {self.device.name} cannot be estimated: the run {early}",
                field="--device",
                hint="fill a smaller share (--filled), or choose another device or state",
            )
        needed = load.daily_bytes / DAY_S
        served = result.run.throughput_mb_per_s * (1 << 20)
        if (load.mode == "back_to_back" and served < needed) or result.run.load.overloaded:
            raise ConfigError(
                f"{self.device.name} cannot write {decimal_size(load.daily_bytes)} a day of {load.name}"
                f" ({needed / 1e6:,.1f} MB/s on average{', with its pauses' if load.mode == 'open' else ''})",
                field="--daily",
                hint="give a smaller amount per day, or a faster device",
            )
        return result

    def measure(self, load: Load, passes: int | None = None) -> WearRate:
        """Return the wear of the second half of a run that is long enough, or of `passes` passes."""
        if passes is not None:
            return _between(self.flash, self.run(load, passes // 2), self.run(load, passes), passes)
        half = max(1, math.ceil(_LEAST_SHARE / 2 * self.device.capacity_bytes / load.pass_bytes))
        short = self.run(load, half)
        while True:
            long = self.run(load, 2 * half)
            rate = _between(self.flash, short, long, 2 * half)
            operations = long.flash.page_programs.total + long.requests.total
            if rate.is_steady or 2 * operations > _MOST_OPERATIONS:
                return rate
            short, half = long, 2 * half


def _between(flash: Sequence[_Flash], short: Result, long: Result, passes: int) -> WearRate:
    """Return the wear between the ends of two runs, of which the longer has twice the passes."""
    first, both = _Work(short), _Work(long)
    written = both.written - first.written
    waf = {name: (both.parts[name] - first.parts[name]) / written for name in both.parts}
    half = passes - passes // 2
    kinds = tuple(
        KindRate(
            kind=late.kind,
            blocks=late.blocks,
            flash_bytes=own.block_bytes * late.blocks,
            erase_limit=own.erase_limit,
            share=max(0.0, used[1] - used[0]) / half * _ENDLESS / own.erase_limit if own.erase_limit else 0.0,
            used_before=max(0.0, 2 * early.mean_erases - late.mean_erases) / own.erase_limit
            if own.erase_limit
            else 0.0,
        )
        for own, early, late, used in zip(
            flash, short.wear.kinds, long.wear.kinds, zip(first.used, both.used, strict=True), strict=False
        )
    )
    shares = [kind.share for kind in kinds]
    most = max(range(len(shares)), key=shares.__getitem__)
    grown = both.used[most] - first.used[most]
    change = 100 * (first.used[most] / (passes // 2) * half / grown - 1) if grown else 0.0
    if kinds[most].is_slc and all(_FAR * kind.share < shares[most] for kind in kinds if not kind.is_slc):
        is_steady = abs(change) <= STEADY_PCT
    else:
        moved = 100 * (sum(first.parts.values()) / first.written / sum(waf.values()) - 1)
        change = max(change, moved, key=abs)
        is_steady = abs(change) <= STEADY_PCT and both.erases > first.erases > 0
    return WearRate(kinds, waf, passes, is_steady, both.erases > first.erases, change, long)
