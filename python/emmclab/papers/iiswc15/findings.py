"""Describes findings that go beyond the paper, computed from the results of its study."""

import statistics

from emmclab.papers.iiswc15.hybrid import (
    EIGHT,
    EIGHT_ALIGNED,
    FOUR,
    PRIMARY,
    PUBLISHED,
    SIMPLE,
    Reading,
    mean_gains_over_8ps,
    mean_responses,
    nearest,
    over_8ps,
    readings,
    reductions,
)
from emmclab.runtime.number_format import signed
from emmclab.studies.results import Results
from emmclab.traces.published import published

#: Maximum difference between a measured and a published percentage that counts as near, percentage points.
_NEAR = 5.0


def findings(results: Results) -> list[tuple[str, str]]:
    """Return title and text of each finding."""
    return [
        _readings(results),
        _eight(results),
        _single_application(results),
        _ratio_or_difference(results),
        _collection(results),
        _eager(results),
        _contradictions(),
    ]


def _figures(results: Results, reading: Reading) -> str:
    parts = readings(results)[reading]
    return " / ".join(f"{parts[part]:.1f}" for part in ("worst", "mean", "best")) + " %"


def _readings(results: Results) -> tuple[str, str]:
    figures_by_reading = readings(results)
    best = nearest(figures_by_reading)
    closed = [parts["mean"] for reading, parts in figures_by_reading.items() if reading.mode == "closed"]
    strict = [
        parts["mean"]
        for reading, parts in figures_by_reading.items()
        if reading.write_complete == "programmed" and reading.mode == "open"
    ]
    fitting = [
        reading.text
        for reading, parts in figures_by_reading.items()
        if all(abs(parts[part] - figure) <= _NEAR for part, figure in PUBLISHED.items())
    ]
    verdict = f"All three within {_NEAR:g} points: {'; '.join(fitting) or 'no reading'}."
    return (
        "How much hybrid pages gain depends on what the paper leaves open",
        f"The published 24.0 / 61.9 / 86 % (Movie, mean, Booting) are {_figures(results, PRIMARY)} under "
        f"SSDsim's rules, which the paper states that it used; {_figures(results, SIMPLE)} without its bus, "
        f"alignment and order; and {_figures(results, best)} under the nearest reading ({best.text}). A device "
        f"that completes writes only when the cells are written gains {min(strict):.1f} to {max(strict):.1f} % on "
        "average in open loop. With think times (closed loop) the mean over all readings is "
        f"{min(closed):.1f} to {max(closed):.1f} %. {verdict}",
    )


def _eight(results: Results) -> tuple[str, str]:
    gains, aligned = (statistics.mean(reductions(results, PRIMARY, eight).values()) for eight in (EIGHT, EIGHT_ALIGNED))
    points, aligned_points = (statistics.mean(over_8ps(results, eight)["points"]) for eight in (EIGHT, EIGHT_ALIGNED))
    four, large = (mean_responses(results, PRIMARY, device, results.applications) for device in (FOUR, EIGHT))
    alone = statistics.mean(100 * (1 - large[name] / four[name]) for name in four)
    hybrid = statistics.mean(reductions(results, PRIMARY).values())
    spread = mean_gains_over_8ps(results).values()
    return (
        "What hybrid pages gain over 8 KB pages depends on how those split a write",
        f"Hybrid pages shorten the mean response of 4 KB pages by {hybrid:.1f} %, 8 KB pages alone by "
        f"{alone:.1f} %. The paper splits a write by its size alone, so that 8 KB pages take units of "
        f"4 KB from any address: hybrid pages then respond {gains:.1f} % faster than 8 KB pages and use "
        f"space {points:.1f} points better (means). If 8 KB pages begin at multiples of 8 KB, and a partial page "
        f"is read, modified and written, it is {aligned:.1f} % and {aligned_points:.1f} points. Over "
        f"all readings the gain in time is {signed(min(spread))} to {signed(max(spread))} %.",
    )


def _single_application(results: Results) -> tuple[str, str]:
    plane = Reading("both", "programmed", "open")
    gains = reductions(results, plane)
    losers = [
        f"{name} ({signed(gain)} %)" for name, gain in sorted(gains.items(), key=lambda item: item[1]) if gain < 0
    ]
    text = ", ".join(losers) if losers else "no application"
    return (
        "With full parallelism hybrid pages can lose",
        f"If every plane works independently ({plane.text}), {text} has a longer mean response with hybrid than with "
        "4 KB pages: a request of a few pages then runs fully in parallel, and an 8 KB page takes longer "
        "than a 4 KB one.",
    )


def _ratio_or_difference(results: Results) -> tuple[str, str]:
    utilisations = over_8ps(results)
    ratio, points = utilisations["ratio"], utilisations["points"]
    return (
        "Figure 9's percentages look like differences, not ratios",
        f"The published +24.2 % and +13.1 % fit a difference of normalised utilisations ({max(points):.1f} and "
        f"{statistics.mean(points):.1f} points here) better than a ratio ({signed(max(ratio))} and "
        f"{signed(statistics.mean(ratio))} %).",
    )


def _collection(results: Results) -> tuple[str, str]:
    demand, idle = (
        [run for run in results.select("idle-gc") if bool(run.settings["gc.idle_after_us"]) == flag]
        for flag in (False, True)
    )
    felt = [run.input for run in idle if run.waits.gc_ms >= 0.1]
    waf = [statistics.median(run.write_amplification.waf for run in runs) for runs in (demand, idle)]
    return (
        "Collection in idle gaps is not noticeable, but has a cost",
        f"It removes the wait from {len(idle) - len(felt)} of {len(idle)} applications, not from "
        f"{', '.join(felt)}, which "
        "leave no gaps. Blocks that are collected early contain more valid pages: the median write amplification "
        f"rises from {waf[0]:.1f} to {waf[1]:.1f}. The paper considers only the wait.",
    )


def _eager(results: Results) -> tuple[str, str]:
    eager = list(results.select("eager-gc"))
    lazy = {
        run.input: run.write_amplification.waf for run in results.select("idle-gc") if run.settings["gc.idle_after_us"]
    }
    worst = max(eager, key=lambda run: run.write_amplification.waf / lazy[run.input])
    waf = worst.write_amplification.waf
    return (
        "A larger reserve of free blocks wears the device out",
        f"If idle collection keeps 16 instead of 4 blocks per plane free, {worst.input} programs "
        f"{waf:.0f} bytes for each byte written, instead of {lazy[worst.input]:.0f}: with "
        "over-provisioning of 7 %, only nearly full blocks are left to collect.",
    )


def _contradictions() -> tuple[str, str]:
    entries = published()["inconsistencies"]
    names = list(dict.fromkeys(entry["name"] for entry in entries))
    return (
        "Some published figures contradict each other",
        f"{len(entries)} figures of Tables III and IV, in {len(names)} rows, contradict the rest of their row "
        f"({', '.join(names)}); the request counts of the combos repeat those of seven applications. The "
        "consistent figures were used.",
    )
