"""The page of the study `implications`: question, answer, chart and verdict of each implication."""

from collections.abc import Mapping

import altair as alt

from emmclab.pages.plots import Rows, dots
from emmclab.papers.iiswc15.implications import (
    by_input,
    by_routing,
    change_pct,
    queued_changes,
    unevenness,
    waf_by_pages,
)
from emmclab.papers.iiswc15.recorded_workload import origin
from emmclab.papers.pages import Drawing, PageContent
from emmclab.runtime.document import Charts, Section
from emmclab.studies.results import Results

_CHANGE = "change of the mean response from the phone without it, %"


def content(results: Results, _measured: Mapping[str, str]) -> PageContent:
    """Return the texts and tables of the page."""
    return PageContent(
        lead=[
            f"{results.about['about']}: {results.about['cells']:,} profiles and simulations of "
            f"{len(results.inputs)} workloads, on a new phone and on an aged one.",
            f"{origin(results)} SLC times are assumptions that the presets state; the cards are fitted to "
            "two figures each.",
        ],
        sections=[Section("figures", "Each implication", [Charts()], "Figures")],
    )


def drawings(results: Results) -> list[Drawing]:
    """Draw one chart for each implication."""
    new, aged = by_input(results, "new"), by_input(results, "aged")
    card = [
        {"trace": name, "option": f"{card}, {routing}", "value": change_pct(new[name], run)}
        for card, by_way in by_routing(results).items()
        for routing, runs in by_way.items()
        for name, run in runs.items()
    ]
    waits = [
        {"trace": name, "option": option, "value": run.waits.gc_ms}
        for option, runs in {
            "when space is short": aged,
            "in pauses": by_input(results, "idle-gc", gc__hpi=True),
            "in pauses, not interrupted": by_input(results, "idle-gc", gc__hpi=False),
        }.items()
        for name, run in runs.items()
    ]
    hits = [
        {"trace": run.input, "option": f"{kind} {run.configuration.ram_kb / 1024:g} MB", "value": run[f"cache.{field}"]}
        for kind, grid, field in (("written", "ram-write", "write_hit_pct"), ("read", "ram-read", "read_hit_pct"))
        for run in results.select(grid)
        if run.settings.get("cache.policy", "lru") == "lru"
    ]
    wear = [
        {"trace": run.input, "option": run.settings["wear.levelling"], "value": unevenness(run)}
        for run in results.select("wear")
    ]
    slc = [
        {"trace": name, "option": f"{state}, {use}", "value": change_pct(base[name], run)}
        for state, base in (("new", new), ("aged", aged))
        for use, grid in (("half of the pages", f"slc-half-{state}"), ("as a cache", f"slc-{state}"))
        for name, run in by_input(results, grid).items()
    ]
    queues = [
        {"trace": name, "option": f"32 requests at once, {loop} loop", "value": change}
        for loop in ("closed", "open")
        for name, change in queued_changes(results, closed=loop == "closed").items()
    ]
    pages = [
        {"trace": name, "option": size, "value": waf}
        for size, by_name in waf_by_pages(results).items()
        for name, waf in by_name.items()
    ]
    service = [
        {"trace": name, "option": "service time", "value": run.service.mean_service_ms} for name, run in new.items()
    ]
    return [
        _points("sleep", "Characteristic 4: mean service time of quiet applications", service, "mean service time, ms"),
        _points("card", "Implication 1: mean response with an external card in parallel", card, _CHANGE),
        _points("queues", "Implication 1: mean response with parallel request queues", queues, _CHANGE),
        _points(
            "pauses",
            "Implication 2: wait for garbage collection, on demand and in pauses",
            waits,
            "mean wait for collection, ms",
        ),
        _points("ram", "Implication 3: hits of RAM for data", hits, "units that were in RAM, %"),
        _points("wear", "Implication 4: evenness of wear by levelling", wear, "most worn block over the mean"),
        _points("slc", "Implication 5: mean response with small writes in SLC mode", slc, _CHANGE),
        _points("pages", "Section V: what is written to a full device by page size", pages, "write amplification"),
    ]


_SOURCES = {
    "sleep": "IISWC15 Characteristic 4",
    "card": "IISWC15 Implication 1",
    "pauses": "IISWC15 Implication 2",
    "ram": "IISWC15 Implication 3",
    "wear": "IISWC15 Implication 4",
    "slc": "IISWC15 Implication 5",
    "queues": "IISWC15 Implication 1",
    "pages": "IISWC15 V",
}


def _points(name: str, title: str, rows: Rows, axis: str) -> Drawing:
    """Draw a point for each workload and option."""
    chart = dots(rows, "trace", alt.X("value:Q", title=axis), "option")
    return Drawing(name, title, f"One point for each workload: {axis}.", rows, chart, _SOURCES[name], wide=True)
