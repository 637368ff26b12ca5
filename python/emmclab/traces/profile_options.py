"""Converts percentiles and widths of time bins from text or numbers to the form of the Rust core."""

import math
import re
from collections.abc import Iterable
from typing import TypeVar

from emmclab import _core
from emmclab.errors import ConfigError
from emmclab.runtime.lists import between_commas

_Member = TypeVar("_Member")

_NS = {"us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


def profiler(
    name: str,
    *,
    percentiles: Iterable[float] | str | None = None,
    bin: str | float | None = None,
    activity: str | None = None,
) -> _core.Profiler:
    """Create a profiler with the options of `Trace.profile`.

    If `activity` is given, the profiler divides the waits for durability in it into parts.

    Raises:
        ConfigError: an option is invalid.

    >>> sum(sum(histogram["counts"]) for histogram in profiler("chat").histograms())
    0
    """
    return _core.Profiler(name, percentiles=percentiles_of(percentiles), bin_ns=bin_ns(bin), activity=activity)


def percentiles_of(values: Iterable[float] | str | None) -> list[float]:
    """Return percentiles in ascending order without duplicates, from numbers or from comma-separated text.

    >>> percentiles_of("99.9,50"), percentiles_of([99, 99.0]), percentiles_of(None)
    ([50.0, 99.9], [99.0], [])
    """
    if values is None:
        return []
    percentiles = set()
    for part in _members(values, "percentiles"):
        try:
            percent = float(part)
        except (TypeError, ValueError):
            percent = math.nan
        if not 0 < percent <= 100:
            raise ConfigError(
                f"`{part}` is not a percentile",
                field="percentiles",
                hint="give percentiles above 0 and up to 100, for example `50,90,99,99.9`",
            )
        percentiles.add(percent)
    return sorted(percentiles)


def _members(values: Iterable[_Member] | str, option: str) -> Iterable[_Member | str]:
    """Return the members of a list or of comma-separated text; return blank text as a single member."""
    return (between_commas(values, option) or [values]) if isinstance(values, str) else values


def percentile_label(percent: float) -> str:
    """Return the name of a percentile.

    >>> percentile_label(99.9), percentile_label(50.0)
    ('p99.9', 'p50')
    """
    return f"p{percent:.10g}"


def bin_ns(width: str | float | None) -> int:
    """Return the width of a time bin in ns, from text or from seconds; 0 for an automatic width.

    >>> bin_ns("100ms"), bin_ns(1), bin_ns(None)
    (100000000, 1000000000, 0)
    """
    if width is None:
        return 0
    match = re.fullmatch(r"\s*([0-9.]+)\s*(us|ms|s|m|h)\s*", width) if isinstance(width, str) else None
    try:
        ns = float(match[1]) * _NS[match[2]] if match else float(width) * 10**9
    except ValueError:
        ns = math.nan
    if not _NS["us"] <= ns <= 1000 * _NS["h"] or (isinstance(width, str) and not match):
        raise ConfigError(
            f"`{width}` is not the width of a bin",
            field="bin",
            hint="give a width of 1us to 1000h, for example `100ms`; the units are us, ms, s, m and h",
        )
    return round(ns)
