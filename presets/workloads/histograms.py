"""Histograms of sizes, lengths and gaps that have given counts and sums exactly."""

import math
from collections.abc import Callable
from statistics import NormalDist

#: No read of the paper is larger (section III-A).
LARGEST_READ_KB = 256

Histogram = dict[int, int]


def classes(largest_kb: int) -> list[int]:
    """Return sizes above 4 KB: multiples of 4, with larger steps above 64."""
    sizes = [*range(8, 68, 4), *range(72, 129, 8), *range(144, 257, 16)]
    size = 320
    while size < largest_kb:
        sizes.append(size)
        size = int(size * 1.25) // 64 * 64
    return [size for size in sizes if size <= largest_kb]


def bisect(low: float, high: float, too_low: Callable[[float], bool]) -> float:
    """Return the value at which `too_low` ceases to hold."""
    for _ in range(200):
        middle = (low + high) / 2
        if too_low(middle):
            low = middle
        else:
            high = middle
    return (low + high) / 2


def histogram(
    requests: int,
    kb: int,
    small: int,
    largest: int,
    holds_largest: bool,
    favour: Callable[[int], float] = lambda _: 1.0,
) -> Histogram:
    """Return sizes and counts: `requests` with a total of `kb`, at most `small` of them of 4 KB."""
    if holds_largest:
        requests, kb = requests - 1, kb - largest
    small = min(small, requests)
    while kb != 4 * small and (small == requests or kb - 4 * small < 8 * (requests - small)):
        small -= 1
    rest = requests - small
    limit = largest if holds_largest else min(largest, LARGEST_READ_KB)
    counts = _spread(rest, kb - 4 * small, limit, holds_largest, favour) if rest else {}
    if small:
        counts[4] = counts.get(4, 0) + small
    if holds_largest:
        counts[largest] = counts.get(largest, 0) + 1
    return dict(sorted(counts.items()))


def _spread(requests: int, kb: int, limit: int, below_limit: bool, favour: Callable[[int], float]) -> Histogram:
    sizes = classes(limit - 4 if below_limit and limit > 8 else limit)
    widths = [size - before for size, before in zip(sizes, [4, *sizes], strict=False)]

    def weights(slope: float) -> list[float]:
        steps = zip(sizes, widths, strict=True)
        return [favour(size) * width * (size / 8.0) ** -slope for size, width in steps]

    def mean(slope: float) -> float:
        own = weights(slope)
        return sum(size * weight for size, weight in zip(sizes, own, strict=True)) / sum(own)

    own = weights(bisect(-3.0, 9.0, lambda slope: mean(slope) > kb / requests))
    counts, upto, given = [], 0.0, 0
    for weight in own:
        upto += requests * weight / sum(own)
        counts.append(round(upto) - given)
        given += counts[-1]
    counts[0] += requests - sum(counts)
    found = {size: count for size, count in zip(sizes, counts, strict=True) if count > 0}
    missing = (kb - sum(size * count for size, count in found.items())) // 4
    while missing:
        sign = 1 if missing > 0 else -1
        size, step = next(
            (size, step)
            for size in sorted(found, key=lambda size: (-found[size], size))
            for step in range(min(abs(missing), 8), 0, -1)
            if 8 <= size + 4 * sign * step <= limit
        )
        moved = max(1, min(found[size] // 4, abs(missing) // step))
        found[size] -= moved
        found[size + 4 * sign * step] = found.get(size + 4 * sign * step, 0) + moved
        if not found[size]:
            del found[size]
        missing -= sign * step * moved
    return found


def log_normal(mean: float, floor: float, count: int = 40, sigma: float = 1.5) -> list[float]:
    """Evenly likely values with that mean above that floor, or without a floor where the mean is too near."""
    raw = [math.exp(sigma * NormalDist().inv_cdf((i + 0.5) / count)) for i in range(count)]
    floor = 0.0 if mean <= 2 * floor else floor
    return [floor + (mean - floor) * value * count / sum(raw) for value in raw]


def geometric(mean: float, strata: int) -> Histogram:
    """Return how often each length occurs among equally likely ones with this mean, at least 1."""
    counts: Histogram = {}
    for i in range(strata):
        left = 1 - (i + 0.5) / strata
        length = 1 if mean <= 1.0001 else 1 + math.floor(math.log(left) / math.log(1 - 1 / mean))
        counts[length] = counts.get(length, 0) + 1
    return dict(sorted(counts.items()))


def returning(counts: Histogram, share: float) -> Histogram:
    """Return how many requests of each size return: the share falls with the square root of the size."""
    wanted = round(sum(counts.values()) * share / 100)

    def expected(scale: float, size: int) -> float:
        return counts[size] * min(0.95, scale * math.sqrt(4 / size))

    scale = bisect(0.0, 1e3, lambda scale: sum(expected(scale, size) for size in counts) <= wanted)
    found = {size: expected(scale, size) for size in counts}
    return {size: max(1, round(value)) for size, value in found.items() if value >= 0.5} if wanted else {}
