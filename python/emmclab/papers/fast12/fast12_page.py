"""The page of `fast12`: claims, what users wait for on each device, and whether it still holds today."""

from collections.abc import Sequence
from typing import TypedDict

import altair as alt

from emmclab.apps.closed_loop import STATES
from emmclab.pages.plots import Rows, chart_of
from emmclab.pages.theme import STATE_COLOURS
from emmclab.papers.claims import Claim
from emmclab.papers.fast12.applications import (
    APPLICATIONS,
    CARDS,
    INTERNAL,
    KINGSTON,
    NETWORKS,
    OTHERS,
    PRESET_LOG_BLOCKS,
    runs_of,
    seconds,
    spread,
)
from emmclab.papers.fast12.log_block_fit import Point, best, held_out, kingston, miss, points
from emmclab.papers.page_charts import Drawing
from emmclab.papers.pages import assemble_page
from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run

#: All devices of the talk; the internal flash is the first.
DEVICES = (INTERNAL, *CARDS.values())
TODAY = "today"


def render(results: Results, judged: Sequence[Claim], drawn: Sequence[Drawing]) -> str:
    """Return the page; the same results give the same bytes."""
    measured = {claim.id: claim.measured for claim in judged}
    return assemble_page(
        results,
        judged,
        drawn,
        answer=f"WebBench varies with the card by {measured['fast12-webbench-spread']}; the applications by "
        f"{measured['fast12-apps-vary']} (published: 100 to 300 %). {_today_answer(results)}",
        lead=[
            f"{results.about['about']}: {results.about['cells']:,} runs of {len(APPLICATIONS)} applications "
            "in closed loop. The applications are programs whose figures come from other sources (emmclab "
            "apps show NAME); processor times, file sizes and the internal flash are assumptions. The "
            "charts of the talk have no numbers but spreads and the ends of their axes.",
            "Six cards of the talk have 2.6 to 5 random writes a second. A card that maps blocks has them, "
            "and so has one with a log block for each block written (bast); the two differ where one place "
            "is written again, as SQLite does. The presets map blocks, and the second table below has both.",
        ],
        facts=[("Inputs", "no traces: what reaches a device follows from the programs")],
        devices=DEVICES,
        assumed=(INTERNAL,),
        networks=NETWORKS,
        runtimes={network: list(_runtimes(results, network)) for network in NETWORKS},
        schemes=list(_schemes(results)),
        yardstick={run["options"]["network"]: seconds(run) for run in results.select("yardstick")},
        background=_background(results),
        background_devices=list(dict.fromkeys(run["device"] for run in results.select("background"))),
        **_fit(results),
        today=list(_today(results)),
        today_devices=_today_devices(results),
    )


def storage_pct(run: Run) -> float:
    """Return the share of the run time that is caused by the device, in percent."""
    return 100 * float(run["app"]["storage_s"]) / seconds(run)


def _runtimes(results: Results, network: str) -> list[tuple[str, list[float], list[float], float]]:
    """Return run times, shares of storage and the spread without Kingston for each application."""
    rows = []
    for name in APPLICATIONS:
        runs = runs_of(results, name, network)
        ordered = [runs[device] for device in DEVICES]
        rows.append((name, [*map(seconds, ordered)], [*map(storage_pct, ordered)], spread(runs, OTHERS)))
    return rows


def _schemes(results: Results) -> list[tuple[str, list[tuple[str, float, float]]]]:
    """Return the run time of each application under both mapping schemes, on the cards that ran both."""
    rows = []
    for name in APPLICATIONS:
        plain = runs_of(results, name, "wifi")
        other = runs_of(results, name, "wifi", PRESET_LOG_BLOCKS)
        both = [card for card in other if other[card] is not plain[card]]
        rows.append((name, [(card, seconds(plain[card]), seconds(other[card])) for card in both]))
    return rows


def _background(results: Results) -> list[tuple[str, list[tuple[float, float]]]]:
    """Return the run time of each application alone and with background applications, by device."""
    rows: dict[str, list[tuple[float, float]]] = {}
    for run in results.select("background"):
        name = run["input"].split(" + ")[0]
        alone = runs_of(results, name, "wifi")[run["device"]]
        rows.setdefault(name, []).append((seconds(alone), seconds(run)))
    return list(rows.items())


class _Fit(TypedDict):
    """The search for the number of log blocks.

    For each number `tried` has the number, its miss in octaves, the applications that fit the axis and the
    spread, and the run time of WebBench on Kingston, in s and in times that of the internal flash.
    """

    tried: list[tuple[int, float, int, int, float, float]]
    best: int
    held_out: list[tuple[str, tuple[int, Point]]]


def _fit(results: Results) -> _Fit:
    """Return the search for the number of log blocks: all tried numbers, and each held-out application."""
    found = points(results)
    tried = [
        (
            count,
            miss(found, count),
            sum(by_count[count].on_axis for by_count in found.values()),
            sum(by_count[count].as_spread for by_count in found.values()),
            slow,
            times,
        )
        for count, slow, times in kingston(results)
    ]
    return {"tried": tried, "best": best(found), "held_out": list(held_out(found).items())}


def _today_devices(results: Results) -> list[str]:
    return list(dict.fromkeys(run["device"] for run in results.select(TODAY, network="wifi")))


def _today(results: Results) -> list[tuple[str, list[float], list[float]]]:
    """Return run times and shares of storage of each application on a phone of 2020."""
    rows = []
    for name in APPLICATIONS:
        runs = list(results.select(TODAY, input=name, network="wifi"))
        rows.append((name, [*map(seconds, runs)], [*map(storage_pct, runs)]))
    return rows


def _today_answer(results: Results) -> str:
    """Return a sentence on whether the result still holds for devices of today, without the cards."""
    shares: list[float] = []
    spreads = []
    for name in APPLICATIONS:
        runs = {
            run["device"]: run
            for run in results.select(TODAY, input=name, network="wifi")
            if run["device"] not in CARDS.values()
        }
        shares += map(storage_pct, runs.values())
        spreads.append(spread(runs, runs))
    return (
        f"On a phone of 2020 with eMMC {min(shares):.0f} to {max(shares):.0f} % of the waiting is storage, "
        f"and the device decides {min(spreads):.0f} to {max(spreads):.0f} %."
    )


def drawings(results: Results) -> list[Drawing]:
    """Draw each application on each device, and the same for the devices of today."""
    cards = [_states(name, results, DEVICES) for name in APPLICATIONS]
    return [*cards, _still(results)]


def _rows(name: str, runs: Sequence[Run]) -> Rows:
    return [
        {"trace": name, "device": run["device"], "state": words, "s": run["app"]["states"][state] / 1e9}
        for run in runs
        for state, words in STATES.items()
        if run["app"]["states"][state]
    ]


def _states(name: str, results: Results, devices: Sequence[str]) -> Drawing:
    runs = runs_of(results, name, "wifi")
    rows = _rows(name, [runs[device] for device in devices])
    slowest, fastest = (pick(devices, key=lambda one: seconds(runs[one])) for pick in (max, min))
    bars = (
        chart_of(rows, 200)
        .mark_bar()
        .encode(
            x=alt.X("s:Q", title="s", stack="zero"), y=alt.Y("device:N", title=None, sort=list(devices)), color=_color()
        )
    )
    about = (
        f"{seconds(runs[fastest]):,.1f} s on {fastest}, {seconds(runs[slowest]):,.1f} s on {slowest}. Over "
        "WiFi, along the critical path."
    )
    return Drawing(f"states-{name}", f"{name}: waits of the user", about, rows, bars)


def _color() -> alt.Color:
    scale = alt.Scale(domain=list(STATE_COLOURS), range=list(STATE_COLOURS.values()))
    return alt.Color("state:N", title=None, scale=scale, legend=alt.Legend(columns=4, orient="bottom"))


def _still(results: Results) -> Drawing:
    rows: Rows = [
        {"trace": name, "device": run["device"], "storage_pct": storage_pct(run)}
        for name in APPLICATIONS
        for run in results.select(TODAY, input=name, network="wifi")
    ]
    order = _today_devices(results)
    bars = (
        chart_of(rows, 260)
        .mark_bar()
        .encode(
            x=alt.X("trace:N", title=None, sort=None, axis=alt.Axis(labelAngle=-30, labelOverlap=False)),
            xOffset=alt.XOffset("device:N", sort=order),
            y=alt.Y("storage_pct:Q", title="% of the runtime"),
            color=alt.Color("device:N", title=None, sort=order, legend=alt.Legend(columns=5, orient="bottom")),
        )
    )
    about = f"Waiting for reads, syncs and writes held back, on a phone of 2020 over WiFi; {KINGSTON} as in 2012."
    return Drawing("still", "Share of storage in the waits of users, 2012 and 2020", about, rows, bars, wide=True)
