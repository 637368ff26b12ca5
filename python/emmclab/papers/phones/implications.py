"""The five implications of IISWC 2015 on a UFS, by the experiments of the study `implications`."""

from __future__ import annotations

import statistics

from emmclab.papers.phones.judging import NO, STILL, Finding, by_majority, of_parts
from emmclab.papers.phones.runs import UFS, by_input, mean_ms, on_new
from emmclab.runtime.number_format import signed
from emmclab.simulation.result import at
from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run

#: If requests wait for collection for less than this on average, it is not noticed, ms.
_UNFELT_MS = 0.1
#: A hit rate below this is low, percent.
_LOW_PCT = 50.0
#: Maximum wear of the most worn block under simple levelling, as a ratio.
_SIMPLE = 1.25
#: WriteBooster blocks in the sweep that are those of the preset.
_BOOSTER = 60


def implications(results: Results) -> list[Finding]:
    """Judge each implication by the criterion of the paper's own study."""
    return [_card(results), _pauses(results), _ram(results), _levelling(results), _slc(results)]


def _card(results: Results) -> Finding:
    alone = on_new(results, UFS)
    ratios = [mean_ms(run) / mean_ms(alone[run["input"]]) for run in results.select("card")]
    slower = sum(ratio > 1 for ratio in ratios)
    return Finding(
        id="card",
        number=1,
        finding="a card in parallel can slow the whole",
        published="an eMMC is three times as fast as the best card",
        measured=f"slower in {slower} of {len(ratios)} pairs of workload and way of sharing, by a factor of "
        f"{statistics.median(ratios):,.0f} in the median",
        verdict=by_majority(slower, len(ratios)),
        note=f"The card of 2015 (preset sdcard) beside {UFS}; the phone of 2022 has no slot.",
    )


def _pauses(results: Results) -> Finding:
    runs = by_input(results, "filled", UFS)
    unfelt = sum(run["waits"]["gc_ms"] < _UNFELT_MS for run in runs.values())
    emptied = sum(at(run, "ufs.write_booster.bytes_past_it") == 0 for run in runs.values())
    asleep = statistics.median(run["ufs"]["hibernated_pct"] for run in runs.values())
    new = on_new(results, UFS)
    slower = {name: mean_ms(run) / mean_ms(new[name]) for name, run in runs.items()}
    worst = max(slower, key=lambda name: slower[name])
    return Finding(
        id="pauses",
        number=2,
        finding="pauses are long enough for collection",
        published="no collection that a request waits for",
        measured=f"unfelt (mean wait below 0.1 ms) in {unfelt} of {len(runs)} workloads on {UFS}, 90 % full",
        verdict=by_majority(unfelt, len(runs)),
        note=f"The work of pauses is now to empty WriteBooster: {emptied} of {len(runs)} workloads never "
        f"found it full, yet {worst} waits {slower[worst]:.2f} times as long as on a new device. Such a "
        f"device hibernates {asleep:.0f} % of the time (median).",
    )


def _ram(results: Results) -> Finding:
    runs = by_input(results, "ram", UFS)
    write = statistics.median(at(run, "cache.write_hit_pct") for run in runs.values())
    reading = [at(run, "cache.read_hit_pct") for run in runs.values() if run["requests"]["read"]]
    read = statistics.median(reading) if reading else 0.0
    base = on_new(results, UFS)
    slower = statistics.median(mean_ms(run) / mean_ms(base[name]) for name, run in runs.items())
    waf, before = (
        statistics.median(run["write_amplification"]["waf"] for run in found)
        for found in (runs.values(), [base[name] for name in runs])
    )
    return Finding(
        id="ram",
        number=3,
        finding="a large RAM buffer in the device is hardly hit",
        published="low hit rates",
        measured=f"median at 4 MB: {write:.1f} % of written and {read:.1f} % of read units were there",
        verdict=STILL if max(write, read) < _LOW_PCT else NO,
        note="A buffer that is written back only when it is full gathers pages: WAF "
        f"{before:.2f} -> {waf:.2f} against one of 2 MB that is written back at once, mean response "
        f"x{slower:.2f} (medians).",
    )


def _levelling(results: Results) -> Finding:
    most = {
        level: {
            name: max(run["wear"]["erase_counts"]["max"], 1)
            for name, run in by_input(results, "wear", wear__levelling=level).items()
        }
        for level in ("dynamic", "static")
    }
    ratio = {name: worn / most["static"][name] for name, worn in most["dynamic"].items()}
    worst = max(ratio, key=lambda name: ratio[name])
    return Finding(
        id="levelling",
        number=4,
        finding="simple wear levelling is enough",
        published="simple suffices",
        measured=f"most worn block x{statistics.median(ratio.values()):.2f} of that under static levelling "
        f"in the median of {len(ratio)} workloads, at most x{ratio[worst]:.2f} ({worst})",
        verdict=STILL if ratio[worst] <= _SIMPLE else NO,
        note="Enough is at most 25 % more. On 512 MB, which 300,000 requests wear many times; cold data that "
        "stays for years is not in it.",
    )


def _slc(results: Results) -> Finding:
    states = {
        "new": (by_input(results, "pages-16k", UFS), on_new(results, UFS)),
        "used": (by_input(results, "no-booster", UFS), by_input(results, "booster", slc__blocks=_BOOSTER)),
    }
    said, verdicts = [], []
    for state, (without, boosted) in states.items():
        gains = [_change_pct(without[name], boosted[name]) for name in without]
        faster = sum(gain < 0 for gain in gains)
        verdicts.append(by_majority(faster, len(gains)))
        said.append(
            f"{state}: {faster} of {len(gains)} faster, {signed(statistics.median(gains), 0)} % (median)"
        )
    return Finding(
        id="slc",
        number=5,
        finding="blocks in SLC mode speed small writes up",
        published="faster, for half of the capacity of these blocks",
        measured="; ".join(said),
        verdict=of_parts(verdicts),
        note="WriteBooster consists of such blocks, for writes of every size; SLC mode costs two thirds of "
        "the capacity of its blocks, which store three bits per cell otherwise.",
    )


def _change_pct(before: Run, after: Run) -> float:
    return 100 * (mean_ms(after) / mean_ms(before) - 1)
