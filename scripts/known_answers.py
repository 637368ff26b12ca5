"""Compares simulations with answers that are known by formula, and writes docs/concepts/known-answers.md.

`python scripts/known_answers.py` writes the page anew; `tests/test_known_answers.py` runs the same cases.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from pathlib import Path
from random import Random
from typing import Any

import pyarrow

import emmclab
from emmclab.simulation.device import Device
from emmclab.simulation.result import Result

PAGE = Path(__file__).parents[1] / "docs" / "concepts" / "known-answers.md"
#: Blocks and pages of 4 KB of the only plane, and the erases after which a block of it dies.
BLOCKS, PAGES, ERASES = 512, 64, 20
#: Shares of spare flash at which collection is compared, in percent.
_SHARES = (7, 15, 28, 50, 100)
#: Harmonic numbers of fractional arguments: their asymptotic series has this constant.
_EULER = 0.5772156649015329
_GREEDY = "Robinson, Operating Systems Review 30(4), 1996; Desnoyers, SYSTOR 2012"
_FIFO = "Desnoyers, SYSTOR 2012; Xiang and Kurkoski, arXiv:1110.4245"


@dataclass(frozen=True)
class KnownAnswer:
    """A case with its formula, the source of the formula, and the difference that is allowed, in percent."""

    subject: str
    case: str
    formula: str
    source: str
    within_pct: float
    #: Returns the figure of the formula and that of the simulation.
    compute: Callable[[], tuple[float, float]]


def _device(**settings: object) -> Device:
    base = {"geometry.block_groups.0.page_kb": 4, "geometry.block_groups.0.blocks": BLOCKS}
    base |= {"geometry.block_groups.0.pages_per_block": PAGES, "geometry.block_groups.0.program_us": 1}
    base |= {"geometry.dies_per_chip": 1, "geometry.planes_per_die": 1, "geometry.chips_per_channel": 1}
    base |= {"geometry.channels": 1}
    given = {key.replace("__", "."): value for key, value in settings.items()}
    return Device.preset("small-1gb").set({**base, **given})


def _run(
    device: Device, ops: Sequence[str], units: Sequence[int], arrivals: Sequence[int] | None = None, **options: Any
) -> Result:
    """Simulate requests of 4 KB."""
    times = range(0, 100_000 * len(units), 100_000) if arrivals is None else arrivals
    columns = {"arrival_ns": pyarrow.array(times, pyarrow.int64()), "op": list(ops)}
    columns |= {"sector": pyarrow.array([8 * unit for unit in units], pyarrow.uint64()), "sectors": [8] * len(units)}
    trace = emmclab.Trace.from_arrow(pyarrow.table(columns))
    return device.simulate(trace, mode="back_to_back" if arrivals is None else "open", **options)


def _root(decreasing: Callable[[float], float], high: float = 1 - 1e-12) -> float:
    low = 0.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if decreasing(middle) > 0 else (low, middle)
    return low


def fifo(spread: float) -> float:
    """Return the WAF of FIFO at so many physical pages per page in use."""
    return 1 / (1 - _root(lambda valid: math.exp(-spread * (1 - valid)) - valid))


def greedy(spread: float) -> float:
    """Return the WAF of greedy."""

    def harmonic(n: float) -> float:
        return math.log(n + 0.5) + _EULER + 1 / (24 * (n + 0.5) ** 2)

    valid = _root(lambda valid: (harmonic(PAGES) - harmonic(PAGES * valid)) / (1 - valid) - spread)
    return 1 / (1 - valid)


def choices(d: int, spread: float) -> float:
    """Return the WAF of the best of d random blocks."""

    def pages(valid: float) -> float:
        above = total = 0.0
        for i in range(PAGES, 0, -1):
            rate, floor = spread * i * (1 - valid), above
            above = _root(lambda share: 1 - share**d - (share - floor) * rate)  # noqa: B023
            total += above
        return total

    return 1 / (1 - _root(lambda valid: PAGES / spread - pages(valid)))


def _spread(device: Device) -> float:
    """Return the physical pages per logical page: a block is free on average, and half of each of the open ones."""
    return (BLOCKS - 2) * PAGES / (device.capacity_bytes // 4096)


def _written(result: Result) -> tuple[int, float]:
    """Return the units that the host wrote, and the pages that were programmed for them."""
    units = result.requests.bytes_written // 4096
    return units, units * result.write_amplification.waf


def _steady_waf(device: Device, trims: float = 0.0) -> float:
    """Return the WAF of random writes, of which a share are trims of pages in use, from 4 to 10 capacities on."""
    units = device.capacity_bytes // 4096
    random = Random(7)
    ops, places, used, place_of = [], [], list(range(units)), list(range(units))
    for _ in range(10 * units):
        if random.random() < trims:
            unit = used[random.randrange(len(used))]
            last, place = used.pop(), place_of[unit]
            if last != unit:
                used[place], place_of[last] = last, place
            place_of[unit] = -1
            ops.append("discard")
        else:
            unit = random.randrange(units)
            if place_of[unit] < 0:
                place_of[unit] = len(used)
                used.append(unit)
            ops.append("write")
        places.append(unit)
    part = 4 * units
    first, both = (
        _written(_run(device, ops[:end], places[:end], precondition="sequential:100")) for end in (part, None)
    )
    return (both[1] - first[1]) / (both[0] - first[0])


def _collecting(policy: str, share: int, **settings: object) -> Device:
    return _device(gc__policy=policy, capacity__over_provisioning_pct=share, **settings)


def collected_waf(policy: str, share: int) -> float:
    """Return the WAF of a policy at a share of spare flash, in percent."""
    return _steady_waf(_collecting(policy, share))


def _collected(
    policy: str, formula: Callable[[float], float], share: int, **settings: object
) -> Callable[[], tuple[float, float]]:
    device = _collecting(policy, share, **settings)
    return lambda: (formula(_spread(device)), _steady_waf(device))


def _trimmed(share: float) -> tuple[float, float]:
    device = _collecting("fifo", 15)
    in_use = (1 - 2 * share) / (1 - share)
    return fifo(_spread(device) / in_use), _steady_waf(device, share)


def _waiting(load: float) -> tuple[float, float]:
    """Return the mean response of reads that arrive at random at one plane, in us."""
    device = _device(geometry__block_groups__0__read_us=100)
    random, count = Random(11), 100_000
    units = [random.randrange(device.capacity_bytes // 4096) for _ in range(count)]
    ops = ["read"] * count
    lone = _run(device, ops[:9], units[:9], range(0, 9 * 10**9, 10**9), precondition="sequential:100")
    service = lone.response.mean_response_ms * 1e6
    gaps = (random.expovariate(load / service) for _ in range(count))
    result = _run(device, ops, units, [round(at) for at in accumulate(gaps)], precondition="sequential:100")
    return service / 1e3 * (1 + load / (2 * (1 - load))), result.response.mean_response_ms * 1e3


def _cached(exponent: float, kept: int) -> tuple[float, float]:
    """Return the hit rate of reads of 8,000 units by Zipf's law in a read cache, in percent."""
    count, part = 8000, 100_000
    weights = [1 / rank**exponent for rank in range(1, count + 1)]
    total = sum(weights)
    shares = [weight / total for weight in weights]
    time = _root(lambda time: kept - sum(1 - math.exp(-share * time) for share in shares), 1e9)
    hits = sum(share * (1 - math.exp(-share * time)) for share in shares)
    random = Random(13)
    places = random.sample(range(count), count)
    units = random.choices(places, weights, k=4 * part)
    device = _device(cache__read_kb=4 * kept)

    def counted(end: int) -> float:
        return end * _run(device, ["read"] * end, units[:end], precondition="sequential:100").cache.read_hit_pct / 100

    return 100 * hits, 100 * (counted(4 * part) - counted(part)) / (3 * part)


def _worn() -> tuple[float, float]:
    """Return the GB that the host can write, of which the first capacity needs no collection."""
    limit = {"geometry__block_groups__0__erase_limit": ERASES}
    device = _collecting("fifo", 15, **limit)
    units = device.capacity_bytes // 4096
    programs = BLOCKS * PAGES * (ERASES + 1)
    expected = units + (programs - units) / fifo(_spread(device))
    random = Random(17)
    places = [*range(units), *(random.randrange(units) for _ in range(2 * programs))]
    result = _run(device, ["write"] * len(places), places)
    return expected * 4096 / 1e9, result.requests.bytes_written / 1e9


def _answers() -> Iterator[KnownAnswer]:
    formula = "WAF = 1 / (1 - x), x = exp(-a (1 - x))"
    for share in _SHARES:
        yield KnownAnswer("collection, FIFO", f"{share} % spare", formula, _FIFO, 2, _collected("fifo", fifo, share))
    for share in _SHARES:
        text = "H(n) - H(n x) = a (1 - x), n = 64"
        yield KnownAnswer(
            "collection, greedy", f"{share} % spare", text, _GREEDY, 3, _collected("greedy", greedy, share)
        )
    for d, share in product((1, 3, 10), _SHARES):
        text = "(G(i) - G(i+1)) a i (1 - x) = 1 - G(i)^d"
        compute = _collected("d_choices", lambda spread, d=d: choices(d, spread), share, gc__choices=d)
        yield KnownAnswer(
            "collection, d choices", f"d = {d}, {share} % spare", text, "Van Houdt, SIGMETRICS 2013", 3, compute
        )
    for share in (0.1, 0.2):
        text = "FIFO with a / s, s = (1 - 2 q) / (1 - q) in use"
        source = "Frankie, Hughes and Kreutz-Delgado, arXiv:1208.1794"
        yield KnownAnswer(
            "trim", f"q = {share}, 15 % spare, FIFO", text, source, 3, lambda share=share: _trimmed(share)
        )
    for load in (0.3, 0.6, 0.9):
        text = "response = S (1 + r / (2 (1 - r)))"
        source = "M/D/1: Pollaczek 1930, Khinchine 1932"
        yield KnownAnswer("queueing", f"load r = {load}, us", text, source, 4, lambda load=load: _waiting(load))
    for exponent, kept in ((0.8, 400), (0.8, 2000), (1.2, 400)):
        text = "sum p (1 - exp(-p t)), sum (1 - exp(-p t)) = C"
        source = "Che, Tung and Wang, IEEE JSAC 20(7), 2002"
        compute = lambda exponent=exponent, kept=kept: _cached(exponent, kept)  # noqa: E731
        yield KnownAnswer("LRU read cache", f"Zipf {exponent}, {kept} of 8,000 units, % hits", text, source, 2, compute)
    source = "NAND endurance x capacity / WAF (insignis-tech.com, Write endurance)"
    text = "u + (erases x pages - u) / WAF"
    yield KnownAnswer("endurance", f"{ERASES} erases, FIFO, 15 % spare, GB", text, source, 3, _worn)


ANSWERS = tuple(_answers())


def row(answer: KnownAnswer) -> tuple[str, float]:
    """Run a case, and return its row of the page and its difference in percent."""
    expected, found = answer.compute()
    difference = 100 * (found / expected - 1)
    figures = f"{expected:.4g}", f"{found:.4g}", f"{difference:+.2f}"
    cells = (answer.subject, answer.case, f"`{answer.formula}`", answer.source, *figures)
    return f"| {' | '.join(cells)} |", difference


_HEAD = f"""# Known answers

Some questions have an answer in closed form. This page compares the simulation with these formulas:
`scripts/known_answers.py` runs the cases and writes the page, and `tests/test_known_answers.py` fails if a row
differs or is too far from its formula.

The device has one plane of {BLOCKS} blocks of {PAGES} pages of 4 KB. Writes are uniformly random; *a* is the number
of physical pages per logical page, *x* the share of valid pages in a collected block, *q* the share of trims among
requests, *S* the service time of a lone read, *p* the popularity of a unit, *C* the units in the cache, *u* the
logical pages.

| subject | case | formula | source | formula gives | simulation gives | difference, % |
| --- | --- | --- | --- | --- | --- | --- |
"""
_TAIL = """
Service times that vary at random (M/M/1) are not in the model: a device is deterministic, except
`controller.read_stalls`. Comparisons with published figures and with real devices are on other pages: [the
device](device.md#validation) and [real devices](../guides/real-devices.md).
"""


def page(rows: Sequence[str]) -> str:
    """Return the page."""
    return f"{_HEAD}{chr(10).join([*rows, ''])}{_TAIL}"


if __name__ == "__main__":
    PAGE.write_text(page([row(answer)[0] for answer in ANSWERS]), encoding="utf-8")
