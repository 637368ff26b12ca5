"""The declared findings, and the functions that answer them from studies, profiles and data of emmclab."""

import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from statistics import fmean, median
from typing import NamedTuple

from emmclab.apps.solutions import risks
from emmclab.pages.plots import Rows
from emmclab.papers.advil12.bandwidth import lengths
from emmclab.papers.dsn17.journaling import APPLICATIONS, AWARE, BASE, BOUND, JUDGED, over_ideal
from emmclab.papers.iiswc15.hybrid import EIGHT, FOUR, HYBRID, PRIMARY, mean_responses, over_8ps
from emmclab.papers.iiswc15.implications import (
    HELPS_PCT,
    by_input,
    helps,
    published_waits,
    queued_changes,
    waf_by_pages,
)
from emmclab.runtime.document import signed
from emmclab.studies.results import Results
from emmclab.traces.profile import Profile


class Answer(NamedTuple):
    """The answer to the question of a finding, the rows of its chart, and the title of the chart's axis."""

    answer: str
    rows: Rows
    axis: str


def hybrid_merit(results: Results) -> Answer:
    """Compare hybrid page sizes with pages of 8 KB by response time and space utilisation."""
    names = results.applications
    four, eight, hybrid = (mean_responses(results, PRIMARY, device, names) for device in (FOUR, EIGHT, HYBRID))
    shorter = {
        "8 KB": {name: 100 * (1 - eight[name] / four[name]) for name in names},
        "both sizes": {name: 100 * (1 - hybrid[name] / four[name]) for name in names},
    }
    over = fmean(100 * (1 - hybrid[name] / eight[name]) for name in names)
    space = fmean(over_8ps(results)["ratio"])
    return Answer(
        f"The gain comes from large pages: pages of 8 KB shorten the mean response by "
        f"{fmean(shorter['8 KB'].values()):.1f} %, pages of both sizes by "
        f"{fmean(shorter['both sizes'].values()):.1f} % (means over {len(names)} applications), which is "
        f"{over:.1f} % shorter than 8 KB alone. Their additional merit is that they use space {space:.1f} % better.",
        rows_of(shorter),
        "mean response shorter than with pages of 4 KB, %",
    )


def hybrid_worn(results: Results) -> Answer:
    """Measure the write amplification of pages of 4 KB, of 8 KB and of both sizes on a full device."""
    waf = waf_by_pages(results)
    names = list(waf["4 KB"])
    over = {label: median(waf[label][name] / waf["4 KB"][name] for name in names) for label in waf}
    worse = sum(waf["both sizes"][name] > waf["8 KB"][name] for name in names)
    return Answer(
        f"The bytes written to the flash, compared with pages of 4 KB, are x{over['8 KB']:.2f} for pages of 8 KB "
        f"and x{over['both sizes']:.2f} for pages of both sizes (medians of {len(names)} workloads); pages "
        f"of both sizes write more than pages of 8 KB in {worse} of {len(names)}.",
        rows_of(waf),
        "write amplification",
    )


def queues_help(results: Results) -> Answer:
    """Compare the mean response with 32 requests inside the device and with one at a time, in closed loop."""
    changes = queued_changes(results)
    waits = published_waits()
    return Answer(
        f"In closed loop the mean response changes by {signed(median(changes.values()))} % (median), and falls by more "
        f"than {HELPS_PCT:g} % in {helps(changes.values())} of {len(changes)} workloads. This contradicts the words of "
        f"IISWC 2015, but not its Table IV: there requests wait for more than {HELPS_PCT:g} % of the mean response in "
        f"{sum(wait > HELPS_PCT for wait in waits)} of {len(waits)} workloads ({median(waits):.0f} % in the median).",
        rows_of({"32 requests at once": changes}),
        "change of the mean response from one request at a time, %",
    )


def tax_left(results: Results) -> Answer:
    """Compare run times on ext4 without a journal, with its own journal, and with an eMMC-aware journal."""
    over: dict[str, dict[str, float]] = {}
    texts = []
    for device in JUDGED:
        unchanged, aware = (over_ideal(results, device, mode=mode) for mode in (BASE, AWARE))
        over |= {f"unchanged, {device}": unchanged, f"eMMC-aware, {device}": aware}
        costs, left, of_bound = (
            fmean(by_name.values()) for by_name in (unchanged, aware, over_ideal(results, device, BOUND))
        )
        texts.append(
            f"on {device} the journal costs {costs:.0f} % over ext4 without one, and journaling that knows eMMC "
            f"{left:.0f} %; over a bound that writes no metadata, it would seem to cost {of_bound:.0f} %"
        )
    answer = f"{'; '.join(texts)} (means over {len(APPLICATIONS)} applications)."
    return Answer(answer[0].upper() + answer[1:], rows_of(over), "run time over that on ext4 without a journal, %")


def logging_length(results: Results) -> Answer:
    """Measure the gain of Advil and ReSSD by the length of a recording."""
    length_rows = lengths(results)
    gains: dict[str, dict[str, float]] = {}
    for row in length_rows:
        for gain, until in ((row["gain"], ""), (row["drained"], ", log moved back")):
            gains.setdefault(f"{row['layer']}{until}", {})[f"{row['requests']:,} requests"] = gain
    advil = [row for row in length_rows if row["layer"] == "Advil"]
    best = max(advil, key=lambda row: row["gain"])
    pays = next((row["requests"] for row in advil if row["drained"] > 1 + HELPS_PCT / 100), None)
    since = "in no recording" if pays is None else f"from {pays:,} requests on"
    return Answer(
        f"Until the last request Advil gains most in a recording of {best['requests']:,} requests "
        f"({best['gain']:.2f} times the bandwidth); with the log moved back it gains more than "
        f"{HELPS_PCT:g} % {since}.",
        rows_of(gains),
        "write bandwidth over the bare device",
    )


def logging_wal(results: Results) -> Answer:
    """Measure the logged share of SQLite's writes in each journal mode, and the gain from logging."""
    bare, advil = (by_input(results, f"programs-{layer}") for layer in ("bare", "advil"))
    logged = {name: 100 * run.layers[0]["logged_writes"] / run.requests.write for name, run in advil.items()}
    gain = {name: 100 * (bare[name].run.simulated_s / run.run.simulated_s - 1) for name, run in advil.items()}
    logged_text = ", ".join(f"{name} {share:.0f} % ({signed(gain[name], 0)} %)" for name, share in logged.items())
    return Answer(
        f"Share of the writes that is logged, and bandwidth gained: {logged_text}.",
        rows_of({"logged, % of writes": logged, "bandwidth gained, %": gain}),
        "%",
    )


def sqlite_lost() -> Answer:
    """Count the crash states that lost acknowledged data, by solution and workload."""
    shares: dict[str, dict[str, float]] = {}
    broken = []
    for solution, rows in risks()["solutions"].items():
        for row in rows:
            lost = row["lost_states"] + row["documented_states"]
            shares.setdefault(row["workload"], {})[solution] = 100 * lost / row["states"]
            if row["lost_states"]:
                broken.append(f"{solution} ({row['workload']})")
    documented = shares.get("sqlite-delete", {})
    lossless = [name for name, by_solution in shares.items() if not any(by_solution.values())]
    return Answer(
        "Beyond the documented losses of SQLite, acknowledged data is lost below "
        f"{', '.join(broken) or 'none of them'}. With a rollback journal the last transaction is rolled back in "
        f"{min(documented.values()):.0f} to {max(documented.values()):.0f} % of the states below each, as "
        f"documented; {', '.join(lossless)} lose nothing.",
        rows_of(shares),
        "states that lost an acknowledged operation, %",
    )


def link_power_saving(profiles: Sequence[Profile]) -> Answer:
    """Count the requests that a driver re-issued when the link woke up, and their effect on the figures."""
    texts, shares = [], {}
    for profile in profiles:
        reissues = profile["reissues"]
        if not reissues or not reissues["reissued"]:
            texts.append(f"{profile.name}: no request is suspected to be issued again")
            continue
        shares[profile.name] = reissues["reissued_pct"]
        as_recorded, without = (reissues[key]["temporal_locality_pct"] for key in ("figures", "figures_without"))
        texts.append(
            f"{profile.name}: the link is awake up to {reissues['awake_up_to_ms']} ms after a request and "
            f"asleep from {reissues['asleep_from_ms']} ms on; {reissues['reissued_pct']:.1f} % of the requests are "
            f"issued a second time, {reissues['median_until_again_ms']:.2f} ms later (median), which turns a "
            f"temporal locality of {without:.1f} % into {as_recorded:.1f} %"
        )
    return Answer(f"{'; '.join(texts)}.", rows_of({"issued again": shares}), "requests that are issued again, %")


def rows_of(values: dict[str, dict[str, float]]) -> Rows:
    """Convert values by option and trace to rows."""
    return [
        {"trace": trace, "option": option, "value": value}
        for option, by_trace in values.items()
        for trace, value in by_trace.items()
    ]


@dataclass(frozen=True)
class Finding:
    """A finding as declared in `findings.toml`."""

    id: str
    question: str
    method: str
    limits: str
    #: The observation that would refute the answer.
    refuted_by: str
    #: Function that computes the answer, as `MODULE.FUNCTION` in this package.
    measure: str
    command: str
    #: Name of the study whose results are needed for the answer; empty if no study is needed.
    study: str = ""
    #: Whether the answer needs profiles of recorded traces.
    traces: bool = False

    def answer(self, results: Mapping[str, Results], profiles: Sequence[Profile]) -> Answer | None:
        """Return the answer to the finding's question; None if it needs recorded traces and there are none."""
        module, _, function = self.measure.partition(".")
        measure = getattr(import_module(f"{__package__}.{module}"), function)
        result: Answer | None
        if self.traces:
            result = measure(profiles) if profiles else None
        else:
            result = measure(results[self.study]) if self.study else measure()
        return result


@functools.cache
def declared() -> tuple[Finding, ...]:
    """Return all findings in their order.

    >>> [one.id for one in declared()][:2]
    ['hybrid-merit', 'hybrid-worn']
    """
    text = files(__package__).joinpath("findings.toml").read_text("utf-8")
    return tuple(Finding(**entry) for entry in tomllib.loads(text)["finding"])


def studies() -> list[str]:
    """Return the studies that the findings need, without duplicates.

    >>> studies()
    ['iiswc15', 'implications', 'dsn17', 'advil12', 'phones']
    """
    return list(dict.fromkeys(finding.study for finding in declared() if finding.study))
