"""Converts percentiles, widths of bins and sizes of caches from text or numbers to the core's form."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import NotRequired, TypedDict, TypeVar

from emmclab import _core
from emmclab.errors import ConfigError
from emmclab.runtime.lists import between_commas, once

_Member = TypeVar("_Member")

_NS = {"us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_KB = {"KB": 1, "MB": 2**10, "GB": 2**20, "TB": 2**30}
#: Page size of the cache simulation, KB.
_PAGE_KB = 4


def profiler(
    name: str,
    *,
    percentiles: Iterable[float] | str | None = None,
    bin: str | float | None = None,
    cache_policies: Sequence[str] | str = (),
    cache_sizes: Sequence[str | int] | str | None = None,
    cache_ops: str = "all",
    cache_exact: bool = False,
    activity: str | None = None,
) -> _core.Profiler:
    """Start a profile with the options of `Trace.profile`; the waits of an `activity` are divided into parts.

    Raises:
        ConfigError: an option is invalid.

    >>> import json
    >>> sum(sum(one["counts"]) for one in json.loads(profiler("chat").histograms()))
    0
    """
    return _core.Profiler(
        name,
        percentiles=percentiles_of(percentiles),
        bin_ns=bin_ns(bin),
        caches=cache_options(cache_policies, cache_sizes, cache_ops, exact=cache_exact),
        activity=activity,
    )


def percentiles_of(values: Iterable[float] | str | None) -> list[float]:
    """Return percentiles in ascending order without duplicates, from numbers or from comma-separated text.

    >>> percentiles_of("99.9,50"), percentiles_of([99, 99.0]), percentiles_of(None)
    ([50.0, 99.9], [99.0], [])

    Raises:
        ConfigError: one is not a number above 0 and up to 100, or the text contains none.
    """
    if values is None:
        return []
    found = set()
    for part in _members(values, "percentiles"):
        try:
            percent = float(part)
        except (TypeError, ValueError):
            percent = math.nan
        if not 0 < percent <= 100:
            raise ConfigError(
                f"`{part}` is not a percentile",
                kind="config",
                field="percentiles",
                hint="give numbers above 0 and up to 100, for example `50,90,99,99.9`",
            )
        found.add(percent)
    return sorted(found)


def _members(values: Iterable[_Member] | str, option: str) -> Iterable[_Member | str]:
    """Return the members of a list or of comma-separated text; a blank text is its only member."""
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

    Raises:
        ConfigError: it is not a time of at least 1 us and at most 1,000 h.
    """
    if width is None:
        return 0
    found = re.fullmatch(r"\s*([0-9.]+)\s*(us|ms|s|m|h)\s*", width) if isinstance(width, str) else None
    try:
        ns = float(found[1]) * _NS[found[2]] if found else float(width) * 10**9
    except ValueError:
        ns = math.nan
    if not _NS["us"] <= ns <= 1000 * _NS["h"] or (isinstance(width, str) and not found):
        raise ConfigError(
            f"`{width}` is not the width of a bin",
            kind="config",
            field="bin",
            hint="give 1us to 1000h, a number with us, ms, s, m or h, for example `100ms`",
        )
    return round(ns)


def cache_sizes_kb(sizes: Iterable[str | int] | str | None) -> list[int] | None:
    """Return sizes of caches in KB, from text with units or from KB; None for the default sizes.

    >>> cache_sizes_kb("512KB,16MB"), cache_sizes_kb([4096]), cache_sizes_kb(None)
    ([512, 16384], [4096], None)

    Raises:
        ConfigError: one is not a size, or not a multiple of a page of 4 KB.
    """
    if sizes is None:
        return None
    found = []
    for part in _members(sizes, "cache-sizes"):
        match = (
            re.fullmatch(r"\s*([0-9]+)\s*([KMGT])i?B?\s*", part, re.IGNORECASE)
            if isinstance(part, str)
            else None
        )
        size = part if isinstance(part, int) else int(match[1]) * _KB[f"{match[2].upper()}B"] if match else 0
        if not 0 < size <= 64 * _KB["TB"] or size % _PAGE_KB:
            raise ConfigError(
                f"`{part}` is not the size of a cache",
                kind="config",
                field="cache-sizes",
                hint="give multiples of 4 KB up to 64 TB, for example `512KB,16MB,1GB`",
            )
        found.append(size)
    return once(found)


def size_text(kb: int) -> str:
    """Format a size in the largest unit without a fraction.

    >>> size_text(512), size_text(16384), size_text(1536)
    ('512 KB', '16 MB', '1536 KB')
    """
    unit = max((unit for unit in _KB.items() if kb % unit[1] == 0), key=lambda unit: unit[1])
    return f"{kb // unit[1]} {unit[0]}"


def cache_policies_of(names: Sequence[str] | str) -> list[str]:
    """Return names of cache policies from comma-separated text; `all` is every policy.

    >>> cache_policies_of("lru, arc"), cache_policies_of("all")[0]
    (['lru', 'arc'], 'lru')

    Raises:
        ConfigError: there is no such policy.
    """
    known = [name for name, _ in _core.cache_policies()]
    found = [name.strip().lower() for name in _members(names, "cache-policies")]
    for name in found:
        if name not in (*known, "all"):
            raise ConfigError(
                f"`{name}` is not a cache policy",
                kind="config",
                field="cache-policies",
                hint=f"use one of {', '.join(known)}, or `all`",
            )
    return known if "all" in found else once(found)


class CacheOptions(TypedDict):
    """The options of the cache simulation in the core's form; without sizes, the core uses its defaults."""

    policies: list[str]
    ops: str
    exact: bool
    sizes_kb: NotRequired[list[int]]


def cache_options(
    policies: Sequence[str] | str, sizes: Iterable[str | int] | str | None, ops: str, *, exact: bool
) -> CacheOptions | None:
    """Return the options of the cache simulation; None if no policy is given.

    >>> cache_options((), None, "all", exact=False) is None
    True

    Raises:
        ConfigError: a policy, a size or `ops` is invalid.
    """
    if not policies:
        return None
    if ops not in ("all", "read", "write"):
        raise ConfigError(
            f"`{ops}` does not name requests",
            kind="config",
            field="cache-ops",
            hint="use all, read or write",
        )
    options: CacheOptions = {"policies": cache_policies_of(policies), "ops": ops, "exact": exact}
    if (chosen := cache_sizes_kb(sizes)) is not None:
        options["sizes_kb"] = chosen
    return options
