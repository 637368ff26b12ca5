"""Wear of a real device from its life-time registers at several dates.

A register has steps of 10 % of the life, so each reading is an interval. If the life is used at a constant rate, the
readings bound this rate and the date at which the life ends; the bounds are exact, and there is no better estimate.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from emmclab.advice.lifetime import BEYOND, REGISTERS, Lifetime
from emmclab.advice.lifetime_load import DAY_S, YEAR_S
from emmclab.advice.wear_rate import SLC_KINDS
from emmclab.calibration.registers import Registers
from emmclab.errors import ConfigError
from emmclab.runtime.document import TextTable, significant

#: Registers of a UFS and an eMMC that state how much life is used.
_NAMES = {"emmc": REGISTERS["emmc"], "ufs": (*REGISTERS["ufs"], "bWriteBoosterBufferLifeTimeEst")}
_YEAR_DAYS = YEAR_S / DAY_S
#: Years after which a date is no longer stated: the calendar of Python ends in 9999.
_MOST_YEARS = 1000.0


@dataclass(frozen=True)
class RegisterTrend:
    """The values of a life-time register, and the bounds that follow from them.

    Attributes:
        register: its name in the standard.
        values: value by date (ISO 8601), in steps of 10 %.
        rate_pct: least and largest share of the life that is used in a year, in percent; None if it is not known.
        end: earliest and latest date at which the life is used up; the latest is None if there is no bound.
        reason: why there are no bounds; empty if there are.
    """

    register: str
    values: dict[str, int]
    rate_pct: tuple[float, float] | None = None
    end: tuple[str, str | None] | None = None
    reason: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return all fields as JSON values."""
        return asdict(self)


def trends(readings: Sequence[tuple[datetime, Registers]]) -> list[RegisterTrend]:
    """Return the trend of each life-time register of a device.

    Args:
        readings: dates and registers, in any order; two or more.

    Raises:
        ConfigError: there are fewer than two dates, the registers are those of different devices, or a value went back.
    """
    ordered = sorted(readings, key=lambda reading: reading[0])
    first = ordered[0][1]
    if len({date for date, _ in ordered}) < max(2, len(ordered)):
        raise ConfigError(
            "the wear of a device needs registers of two or more different dates",
            field="--registers",
            hint="give them as FILE@DATE, for example old.txt@2025-06-01 new.txt@2026-06-01",
        )
    for _, other in ordered[1:]:
        sizes = [one.report.capacity and one.report.capacity.bytes for one in (first, other)]
        if first.kind != other.kind or (None not in sizes and sizes[0] != sizes[1]):
            raise ConfigError(
                f"{other.source} has the registers of another device than {first.source}: {_identity(other)} in place "
                f"of {_identity(first)}",
                file=other.source,
                field="--registers",
                hint="give the registers of one device at several dates",
            )
    return [_trend(name, ordered) for name in _NAMES[first.kind]]


def _identity(registers: Registers) -> str:
    capacity = registers.report.capacity
    return f"{registers.standard}{f' of {capacity.bytes:,} bytes' if capacity else ''}"


def _trend(name: str, readings: Sequence[tuple[datetime, Registers]]) -> RegisterTrend:
    values: dict[datetime, int] = {}
    for date, registers in readings:
        value = next((field.value for field in registers.fields if field.name == name), None)
        if isinstance(value, int) and 1 <= value <= BEYOND:
            if values and value < max(values.values()):
                raise ConfigError(
                    f"{registers.source}: {name} went back, from 0x{max(values.values()):02X} to 0x{value:02X}",
                    file=registers.source,
                    field=name,
                    hint="life that is used does not return: check the dates, and that this is the same device",
                )
            values[date] = value
    texts = {date.date().isoformat(): value for date, value in values.items()}
    if len(values) < 2:
        return RegisterTrend(name, texts, reason="the register does not state it at two dates")
    start = next(iter(values))
    points = [_Point((date - start).total_seconds() / YEAR_S, value) for date, value in values.items()]
    rates = _rates(points)
    if rates is None:
        return RegisterTrend(name, texts, reason="the readings contradict a constant rate")
    earliest, latest = _ends(points, *rates)
    end = _date(start, earliest), _date(start, latest)
    rate_pct = 100 * rates[0], 100 * rates[1]
    if end[0] is None:
        return RegisterTrend(name, texts, rate_pct, reason="its life does not end in a thousand years")
    return RegisterTrend(name, texts, rate_pct, (end[0], end[1]))


class _Point:
    """A reading: time in years, and the least and largest share of the life that is used."""

    def __init__(self, years: float, value: int) -> None:
        self.years = years
        self.low = (value - 1) / 10
        self.high = value / 10 if value < BEYOND else math.inf


def _rates(points: Sequence[_Point]) -> tuple[float, float] | None:
    """Return the least and the largest constant rate, in shares of the life a year; None if there is none.

    For a given rate, every two readings have to allow a common line; by Helly's theorem all of them then do.
    """
    pairs = list(itertools.combinations(points, 2))
    low = max(0.0, *((later.low - first.high) / (later.years - first.years) for first, later in pairs))
    high = min((later.high - first.low) / (later.years - first.years) for first, later in pairs)
    return (low, high) if low <= high else None


def _ends(points: Sequence[_Point], low: float, high: float) -> tuple[float, float]:
    """Return the earliest and the latest time at which a line through all readings reaches the end of the life.

    The lines form a polygon of rate and offset, and the time has its extremes at the corners.
    """
    # A device that is beyond its life may have worn at any rate since the reading before.
    times = [] if math.isfinite(high) else [max(point.years for point in points if math.isfinite(point.high))]
    for rate in {low, *([high] if math.isfinite(high) else []), *_corners(points, low, high)}:
        offsets = (max(p.low - rate * p.years for p in points), min(p.high - rate * p.years for p in points))
        times += [(1 - offset) / rate if rate > 0 else math.inf for offset in offsets if math.isfinite(offset)]
    return min(times), max(times)


def _corners(points: Sequence[_Point], low: float, high: float) -> Iterator[float]:
    """Yield the rates at which two readings bound the offset of a line from the same side."""
    for first, later in itertools.combinations(points, 2):
        for side in ("low", "high"):
            rate = (getattr(later, side) - getattr(first, side)) / (later.years - first.years)
            if math.isfinite(rate) and low <= rate <= high:
                yield rate


def _date(start: datetime, years: float) -> str | None:
    """Return the date after so many years, at most those that a calendar has; None beyond."""
    if years > _MOST_YEARS:
        return None
    return (start + timedelta(days=years * _YEAR_DAYS)).date().isoformat()


def modelled_pct(life: Lifetime, register: str) -> float | None:
    """Return the share of the life of a register's flash that a simulated device uses in a year, in percent."""
    is_slc = register not in [names[1] for names in REGISTERS.values()]
    rates = [
        kind.used_per_year_pct for kind in life.kinds if kind.erase_limit and kind.kind.startswith(SLC_KINDS) == is_slc
    ]
    return max(rates, default=None)


def trends_headline(found: Sequence[RegisterTrend]) -> str:
    """Return when the life of the device ends, by the register that ends first, in one sentence."""
    ends = [(trend.end, trend.register) for trend in found if trend.end is not None]
    if not ends:
        return "The registers do not state when the life of the device ends"
    earliest = min(end[0] for end, _ in ends)
    latest = min((end[1] for end, _ in ends if end[1] is not None), default=None)
    if latest is None:
        return f"The life of the device does not end before {earliest}; the readings state no latest date"
    return f"The life of the device ends between {earliest} and {latest}, if it is used as between the readings"


def trends_table(found: Sequence[RegisterTrend], life: Lifetime | None) -> TextTable:
    """Return the registers with their readings and bounds, and the wear of the simulated device if there is one."""

    def row(trend: RegisterTrend) -> list[str]:
        readings = ", ".join(f"0x{value:02X} on {date}" for date, value in trend.values.items()) or "–"
        rate, end = trend.rate_pct, trend.end
        rate_text = "–" if rate is None else f"{significant(rate[0])} to {significant(rate[1])}"
        if rate is not None and not math.isfinite(rate[1]):
            rate_text = f"{significant(rate[0])} or more"
        end_text = trend.reason if end is None else f"{end[0]} to {end[1]}" if end[1] else f"not before {end[0]}"
        cells = [trend.register, readings, rate_text, end_text]
        if life is None:
            return cells
        modelled = modelled_pct(life, trend.register)
        if modelled is None or rate is None:
            return [*cells, "–"]
        place = "below" if modelled < rate[0] else "above" if modelled > rate[1] else "within"
        return [*cells, f"{significant(modelled)} ({place})"]

    headings = ["Register", "Readings", "Used a year, %", "Life ends"]
    return TextTable(
        "Life-time registers over time",
        headings if life is None else [*headings, "Simulated, % a year"],
        [row(trend) for trend in found],
        4,
        "matrix folds",
    )
