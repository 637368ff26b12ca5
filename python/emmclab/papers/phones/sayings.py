"""The sentences of the page's sections, with figures computed from the results."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable

from emmclab.pages.plots import Rows
from emmclab.papers.phones.figures import file_system_blocks, fill_levels, page_layouts
from emmclab.papers.phones.runs import (
    UFS,
    as_recorded,
    booster_life_tb,
    by_input,
    cells_life_tb,
    device_of,
    in_use,
    mean_ms,
    on_new,
    swept,
    ufs_devices,
    workloads_of,
)
from emmclab.runtime.number_format import significant
from emmclab.simulation.result import at
from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run

#: WriteBooster blocks of the preset in the sweep.
_BOOSTER = 60
#: Differences below this count as none, percent.
_NOTICEABLE_PCT = 2


def _range(values: Iterable[float], digits: int = 3) -> str:
    found = list(values)
    return f"{significant(min(found), digits)} to {significant(max(found), digits)}"


def _worst(runs: dict[str, Run], value: Callable[[Run], float]) -> str:
    return max(runs, key=lambda name: value(runs[name]))


def responses(results: Results) -> list[str]:
    """Compare the devices."""
    said = []
    for name in in_use(results)[:1]:
        means = {
            device_of(run): mean_ms(run)
            for device in {device_of(run): None for run in results.select("new")}
            if (run := on_new(results, device).get(name)) is not None
        }
        text = ", ".join(f"{device} {significant(value)}" for device, value in means.items())
        said.append(f"Mean response of {name} in ms: {text}.")
    queued = {device: on_new(results, device) for device in ufs_devices(results)}
    shares = [
        100 * run["waits"]["queue_ms"] / mean_ms(run)
        for runs in queued.values()
        for name, run in runs.items()
        if name in workloads_of(results)
    ]
    said.append(
        f"On UFS {_range(shares, 2)} % of the mean response is waiting behind earlier requests. Traces are "
        "replayed in open loop: where a device saturates, its figures say no more than that."
    )
    return said


def used(results: Results) -> list[str]:
    """Describe how a used device differs from a new one."""
    ratios: dict[str, dict[str, float]] = {}
    for run in results.select("filled"):
        new = on_new(results, device_of(run)).get(run["input"])
        if new is not None:
            ratios.setdefault(device_of(run), {})[run["input"]] = mean_ms(run) / mean_ms(new)
    parts = []
    for device, found in ratios.items():
        name = max(found, key=lambda one: found[one])
        parts.append(f"{device} at most x{significant(found[name])} ({name})")
    return [
        f"Mean response when 90 % full over that of a new device: {'; '.join(parts)}. Used devices are "
        "filled in order, and a UFS has hibernated since: fragmentation by months of use is not included."
    ]


def booster(results: Results) -> list[str]:
    """Describe the gain of WriteBooster, the size at which it runs full, and its cost."""
    without = by_input(results, "no-booster")
    with_it = by_input(results, "booster", slc__blocks=_BOOSTER)
    gain = {name: mean_ms(without[name]) / mean_ms(with_it[name]) for name in without}
    most = max(gain, key=lambda name: gain[name])
    least = min(gain, key=lambda name: gain[name])
    said = [
        f"On {UFS}, 80 % full, WriteBooster of 4 GB makes the mean response {significant(gain[least])} "
        f"({least}) to {significant(gain[most])} times ({most}) as short."
    ]
    cliffs = []
    for blocks in swept(results, "booster", "slc.blocks"):
        runs = by_input(results, "booster", slc__blocks=blocks)
        past = {name: at(run, "ufs.write_booster.bytes_past_it") for name, run in runs.items()}
        full = [name for name in past if past[name]]
        size = at(next(iter(runs.values())), "ufs.write_booster.size_bytes") / 2**30
        if full:
            cliffs.append(
                f"{size:.1f} GB are too little for {', '.join(full)} "
                f"({sum(past.values()) / 1e6:,.0f} MB go past it)"
            )
        else:
            cliffs.append(f"{size:.1f} GB are enough for every workload")
            break
    said.append(f"The cliff: {'; '.join(cliffs)}.")
    said.append(_fullness(results))
    worst = _worst(with_it, lambda run: run["write_amplification"]["waf"])
    waf = [runs[worst]["write_amplification"]["waf"] for runs in (with_it, without)]
    said.append(
        f"Its cost: data is written to its blocks, and later to other blocks, WAF {waf[0]:.2f} in place of "
        f"{waf[1]:.2f} ({worst})." + _lives(with_it[worst], without[worst], worst)
    )
    return said


def _fullness(results: Results) -> str:
    """Describe how much slower a full device is, and whether its WriteBooster ran full."""
    rows = fill_levels(results)
    most = max(row["full_pct"] for row in rows)
    new = {row["trace"]: row["mean_ms"] for row in rows if not row["full_pct"]}
    full = {row["trace"]: row for row in rows if row["full_pct"] == most}
    slower = {name: row["mean_ms"] / new[name] for name, row in full.items()}
    name = max(slower, key=lambda one: slower[one])
    past = [row for row in rows if row["past_it_mb"]]
    ran_full = ", ".join(f"{row['trace']} at {row['full_pct']} %" for row in past) or "no workload"
    return (
        f"How full the device is: at {most} % the mean response is at most x{significant(slower[name])} that "
        f"of a new one ({name}), {significant(statistics.median(slower.values()))} in the median. "
        f"WriteBooster ran full under {ran_full}."
    )


def _lives(with_it: Run, without: Run, name: str) -> str:
    own, behind, alone = booster_life_tb(with_it), cells_life_tb(with_it), cells_life_tb(without)
    if own is None or behind is None or alone is None:
        return ""
    return (
        f" Its own blocks endure {own:,.0f} TB of {name}, those behind it {behind:,.0f}, and those of a "
        f"device without it {alone:,.0f}."
    )


def pages(results: Results) -> list[str]:
    """Describe whether pages of two sizes pay off."""
    rows = page_layouts(results)

    def pick(pages: str, state: str, booster: str) -> dict[str, dict[str, float]]:
        return {
            row["trace"]: row
            for row in rows
            if (row["pages"], row["state"], row["booster"]) == (pages, state, f"{booster} booster")
        }

    large, both, small = (pick(one, "new", "without") for one in ("16 KB", "1/8 of 4 KB", "4 KB"))
    said = [
        f"Without WriteBooster, new: pages of both sizes program less than pages of 16 KB for "
        f"{_fewer(both, large, 'waf')} workloads (WAF {_of(both, 'waf')} in place of {_of(large, 'waf')}, "
        f"space utilisation {_of(both, 'utilisation')} in place of {_of(large, 'utilisation')}) and respond "
        f"faster for {_fewer(both, large, 'mean_ms')} (mean response {_ratio(both, large)} times). Pages of "
        f"4 KB alone have a WAF of {_of(small, 'waf')} and respond in {_ratio(small, large)} times the time: "
        "a program moves a quarter of the data in nearly the same time."
    ]
    used_large = pick("16 KB", "80 % full", "without")
    for share, found in (
        ("an eighth", pick("1/8 of 4 KB", "80 % full", "without")),
        ("half", pick("1/2 of 4 KB", "80 % full", "without")),
    ):
        name = max(found, key=lambda one: found[one]["mean_ms"] / used_large[one]["mean_ms"])
        said.append(
            f"80 % full, with {share} of the flash in pages of 4 KB: less programmed for "
            f"{_fewer(found, used_large, 'waf')} workloads (WAF {_of(found, 'waf')}), mean response "
            f"{_ratio(found, used_large)} times that of pages of 16 KB, most for {name}."
        )
    boosted, plain = pick("1/8 of 4 KB", "new", "with"), pick("16 KB", "new", "with")
    said.append(
        f"With WriteBooster, which takes all writes in pages of 16 KB: less programmed for "
        f"{_fewer(boosted, plain, 'waf')} workloads (WAF {_of(boosted, 'waf')} in place of "
        f"{_of(plain, 'waf')}), faster for {_fewer(boosted, plain, 'mean_ms')} (mean response "
        f"{_ratio(boosted, plain)} times)."
    )
    said.append(
        f"Less and faster count from {_NOTICEABLE_PCT} % on. The times of pages of 4 KB are assumed: those "
        "of 16 KB divided by the ratio of Table V for each doubling, 1.525 for reads and 1.077 for programs."
    )
    return said


def _fewer(rows: dict[str, dict[str, float]], base: dict[str, dict[str, float]], field: str) -> str:
    """Count the workloads whose figure is noticeably lower than in the base, in words."""
    lower = sum(rows[name][field] < (1 - _NOTICEABLE_PCT / 100) * base[name][field] for name in rows)
    return f"{lower} of {len(rows)}"


def _of(rows: dict[str, dict[str, float]], field: str) -> str:
    return _range(row[field] for row in rows.values())


def _ratio(rows: dict[str, dict[str, float]], base: dict[str, dict[str, float]]) -> str:
    return _range(rows[name]["mean_ms"] / base[name]["mean_ms"] for name in rows)


def blocks(results: Results) -> list[str]:
    """Describe the effect of file-system blocks of 16 KB."""
    rows = file_system_blocks(results)

    def pick(size: str, booster: str) -> Rows:
        return [row for row in rows if (row["blocks"], row["booster"]) == (size, f"{booster} booster")]

    said = []
    for booster in ("without", "with"):
        wide, narrow = pick("16 KB", booster), pick("4 KB", booster)
        if booster == "without":
            said.append(
                f"The host writes {_range(row['host_ratio'] for row in wide)} times as many bytes in blocks "
                "of 16 KB as in blocks of 4 KB."
            )
        most = max(wide, key=lambda row: row["slower_pct"])
        said.append(
            f"{booster.capitalize()} WriteBooster the flash is programmed with "
            f"{_range(row['flash_ratio'] for row in wide)} bytes for each byte that blocks of 4 KB write, in "
            f"place of {_range(row['flash_ratio'] for row in narrow)}: {_filled_up(wide, narrow)}. The mean "
            f"response changes by {_range(row['slower_pct'] for row in wide)} %, most for {most['trace']}."
        )
    return said


def _filled_up(wide: Rows, narrow: Rows) -> str:
    """Describe for how many workloads larger blocks cause no further writes to the flash."""
    before = {row["trace"]: row["flash_ratio"] for row in narrow}
    same = sum(row["flash_ratio"] <= (1 + _NOTICEABLE_PCT / 100) * before[row["trace"]] for row in wide)
    return (
        f"no more than before (within {_NOTICEABLE_PCT} %) for {same} of {len(wide)} workloads, as a small "
        "write takes a page of 16 KB in any case"
    )


def reissues(results: Results) -> list[str]:
    """Describe the effect of dropping re-issues and mending clock jumps."""
    raw = as_recorded(results)
    if not raw:
        return []
    gaps = {
        name: [1000 / results.profiles[one]["arrival_rate_per_s"] for one in (name, source)]
        for name, source in raw.items()
    }
    new = on_new(results, UFS)
    slower = [mean_ms(new[source]) / mean_ms(new[name]) for name, source in raw.items()]
    longest = max(gaps, key=lambda name: gaps[name][1] / gaps[name][0])
    return [
        "The traces hold requests that are suspected to be issued twice while the link wakes up, and clocks "
        "that were set. Verdicts are those of the traces without both; the tables of characteristics say "
        "what they would be as recorded.",
        f"The mean gap of {longest} is {significant(gaps[longest][0])} ms, as recorded "
        f"{significant(gaps[longest][1])} ms. On {UFS} the mean response as recorded is "
        f"{_range(slower)} times the other, median {significant(statistics.median(slower))}.",
    ]
