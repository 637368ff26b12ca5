"""The page of simulated runs: devices side by side, Figures 8 and 9 of IISWC 2015 for the given traces."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from emmclab.answers import (
    beside_rows,
    comparison_headlines,
    device_before,
    headline,
    mode_line,
    warnings,
)
from emmclab.device import Device
from emmclab.plots import Figure, Row, Rows, simulated
from emmclab.profile import ledger_line
from emmclab.report.assemble import assemble
from emmclab.result import Result, ufs_facts

_COLUMNS = (
    ("response.mean_response_ms", "Mean response", "ms", 3),
    ("response.p50_ms", "p50", "ms", 3),
    ("response.p99_ms", "p99", "ms", 3),
    ("response.read.mean_ms", "Reads", "ms", 3),
    ("response.write.mean_ms", "Writes", "ms", 3),
    ("service.mean_service_ms", "Mean service", "ms", 3),
    ("requests.no_wait_pct", "No-wait", "%", 2),
    ("space.space_utilisation", "Space utilisation", "", 4),
    ("write_amplification.waf", "WAF", "", 3),
    ("cache.flushes", "Flushes", "", 0),
    ("flash.page_reads.total", "Page reads", "", 0),
    ("flash.page_programs.total", "Page programs", "", 0),
    ("flash.block_erases", "Erases", "", 0),
    ("gc.blocks", "Collections", "", 0),
    ("energy.total_mj", "Energy", "mJ", 1),
    ("run.simulated_s", "Simulated", "s", 1),
)


#: Runs whose means stand above the tables.
_TILES = 6


#: Figures that compare runs.
_OF_SEVERAL = ("mean_response", "space_utilisation")


def render(results: Sequence[Result], devices: Sequence[Device]) -> str:
    """Give the page for runs of one or several traces on one or several devices; same results, same bytes."""
    traces = list(dict.fromkeys(result["trace"] for result in results))
    first = {result["trace"]: result for result in reversed(results)}
    one = len(results) == 1
    return assemble(
        "simulation.html.j2",
        [figure for figure in FIGURES if not (one and figure.name in _OF_SEVERAL)],
        {
            name: [
                {"trace": r["trace"], "device": r.run_name, **row} for r in results for row in rows(r, first)
            ]
            for name, rows in _ROWS.items()
        },
        traces,
        title=", ".join(traces[:3])
        + (" and others" if len(traces) > 3 else "")
        + " on "
        + ", ".join(dict.fromkeys(result.run_name for result in results)),
        one=one,
        headlines=[f"{results[0].run_name}: {headline(results[0])}"]
        if one
        else comparison_headlines(results),
        cautions=[
            (f"{result['trace']} on {result.run_name}", text)
            for result in results
            for text in warnings(result)
        ],
        besides=[
            (result["trace"], result.run_name, beside_rows(result))
            for result in results
            if result["recorded.response.all.recorded_ms"] is not None
        ],
        links=[
            (result["trace"], result.run_name, ufs_facts(result["ufs"]))
            for result in results
            if "ufs" in result
        ],
        mode=mode_line(first[traces[0]]),
        before=device_before(first[traces[0]]),
        columns=_COLUMNS,
        tiles=_tiles(results, first),
        runs=[_run(result, first[result["trace"]]) for result in results],
        provenance=[(trace, ledger_line(first[trace]["ledger"])) for trace in traces],
        options=first[traces[0]]["options"],
        devices=[_device(device) for device in devices],
    )


def _run(result: Result, first: Result) -> dict[str, Any]:
    base = first["response.mean_response_ms"]
    return {
        "trace": result["trace"],
        "device": result.run_name,
        "parallelism": result["configuration.parallelism"],
        "write_complete": result["configuration.write_complete"],
        "cells": [(result.shown(name), digits) for name, _, _, digits in _COLUMNS],
        "change_pct": 100 * (result["response.mean_response_ms"] / base - 1)
        if base and result is not first
        else None,
        "stopped": result["run.stopped"],
        "digest": _digest(result),
    }


def _digest(result: Result) -> str:
    """Give SHA-256 of the result, first 16 digits, without what was asked for beside it."""
    asked = ("percentiles", "response_distribution", "over_time")
    fields = {name: group for name, group in result.deterministic().items() if name not in asked}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def _tiles(results: Sequence[Result], first: dict[str, Result]) -> list[tuple[str, str, str]]:
    """Pick the numbers that a reader wants first: of one run several, of several runs the mean of each."""
    if len(results) == 1:
        facts = (
            ("Mean response", "response.mean_response_ms", 3, "ms"),
            ("p99 response", "response.p99_ms", 3, "ms"),
            ("No-wait", "requests.no_wait_pct", 1, "%"),
            ("Write amplification", "write_amplification.waf", 2, ""),
        )
        shown = ((label, results[0].shown(path), digits, unit) for label, path, digits, unit in facts)
        return [
            (label, "–" if value is None else f"{value:,.{digits}f} {unit}".strip(), "")
            for label, value, digits, unit in shown
        ]
    tiles = []
    for result in results[:_TILES]:
        run = _run(result, first[result["trace"]])
        change = run["change_pct"]
        name = result.run_name if len(first) == 1 else f"{result['trace']} on {result.run_name}"
        mean = f"{result['response.mean_response_ms']:,.3f} ms"
        tiles.append((name, mean, "mean response" + ("" if change is None else f", {change:+.1f} %")))
    return tiles


def _device(device: Device) -> dict[str, Any]:
    rows = device.explain()
    return {
        "name": device.name,
        "digest": device.digest,
        "about": next((row["value"].strip('"') for row in rows if row["key"] == "about"), ""),
        "rows": [row for row in rows if row["origin"] != "default" and row["key"] not in ("name", "about")],
    }


def _mean(result: Result, first: dict[str, Result]) -> Rows:
    base = first[result["trace"]]["response.mean_response_ms"]
    mean = result["response.mean_response_ms"]
    return [{"mean_response_ms": mean, "against_first_pct": 100 * mean / base if base else None}]


def _space(result: Result, _first: dict[str, Result]) -> Rows:
    return (
        [{"space_utilisation": result["space.space_utilisation"]}] if result["requests.bytes_written"] else []
    )


def _cdf(result: Result, _first: dict[str, Result]) -> Rows:
    return [dict(row) for row in result.get("response_distribution", ())]


def _histogram(result: Result, _first: dict[str, Result]) -> Rows:
    """Sum the ranges of reads and writes up to those that end at powers of two of a nanosecond."""
    counts: Counter[int] = Counter()
    for row in result.get("response_distribution", ()):
        counts[round(row["up_to_ms"] * 1e6).bit_length()] += row["requests"]
    total = counts.total()
    return [
        {"up_to_ms": 2**power / 1e6, "requests": counts[power], "pct": 100 * counts[power] / total}
        for power in (range(min(counts), max(counts) + 1) if counts else ())
    ]


def _end_s(result: Result) -> float:
    """Give the end of the last bin of time, so that all charts over time end there."""
    return max((row["time_s"] + row["width_s"] for row in result.get("over_time", ())), default=0.0)


def _over_time(result: Result, _first: dict[str, Result]) -> Rows:
    fields = ("time_s", "width_s", "response_mean_ms", "response_p99_ms", "response_max_ms", "gc_ms")
    found = (row for row in result.get("over_time", ()) if row["response_mean_ms"] is not None)
    end = {"end_s": _end_s(result)}
    return [{**{name: row[name] for name in (*fields, "wake_up_ms")}, **end} for row in found]


def _work(result: Result, _first: dict[str, Result]) -> Rows:
    return [
        {
            "lane": f"{result.run_name}: {heading}",
            "time_s": row["time_s"],
            "width_s": row["width_s"],
            "count": row[name],
            "end_s": _end_s(result),
        }
        for name, heading in (("collections", "collections"), ("wake_ups", "wake-ups"))
        for row in result.get("over_time", ())
        if row[name]
    ]


def _waits(result: Result, _first: dict[str, Result]) -> Rows:
    return [
        {"cause": name.removesuffix("_ms").replace("_", "-"), "wait_ms": value}
        for name, value in result["waits"].items()
    ]


def _programmed(result: Result, _first: dict[str, Result]) -> Rows:
    shares = dict(result["write_amplification"])
    return [
        {"cause": cause, "waf": share} for cause, share in shares.items() if cause != "waf" and shares["waf"]
    ]


def _busy(result: Result, _first: dict[str, Result]) -> Rows:
    parts = (("channel", "channels_pct"), ("die", "dies_pct"), ("plane", "planes_pct"))
    return [
        {"part": f"{part} {number}", "busy_pct": share}
        for part, field in parts
        for number, share in enumerate(result["utilisation"][field])
    ]


def _steps(path: str) -> Callable[[Result, dict[str, Result]], Rows]:
    def rows(result: Result, _first: dict[str, Result]) -> Rows:
        found = result[path]
        pairs = zip(found["from"], found["blocks"], strict=True)
        made: list[Row] = [{"from": low, "blocks": blocks} for low, blocks in pairs]
        return made if found["max"] else []

    return rows


_ROWS: dict[str, Callable[[Result, dict[str, Result]], Rows]] = {
    "mean_response": _mean,
    "space_utilisation": _space,
    "response_cdf": _cdf,
    "waits": _waits,
    "response_over_time": _over_time,
    "work_over_time": _work,
    "response_histogram": _histogram,
    "waf_by_cause": _programmed,
    "utilisation": _busy,
    "erase_counts": _steps("wear.erase_counts"),
    "valid_units": _steps("gc.valid_units"),
}

FIGURES = (
    Figure(
        "mean_response",
        "Figure 8: mean response time",
        "Mean of complete - arrival.",
        simulated.mean_response,
        paper=True,
    ),
    Figure(
        "space_utilisation",
        "Figure 9: space utilisation",
        "Bytes the host wrote over flash bytes that they took; a 4 KB page device has 1.",
        simulated.space_utilisation,
        paper=True,
    ),
    Figure(
        "response_cdf",
        "Response times, cumulative",
        "Share of requests that took at most so long; the further left, the faster.",
        simulated.response_cdf,
        each=True,
    ),
    Figure(
        "waits",
        "Where the time goes",
        "Parts of the mean response, in ms; they add up to it.",
        simulated.waits,
    ),
    Figure(
        "response_over_time",
        "Response times over time",
        "Mean and 99th percentile (at most 3 % too high) of the requests that arrive in a step.",
        simulated.response_over_time,
        each=True,
        wide=True,
    ),
    Figure(
        "work_over_time",
        "Collection and wake-ups over time",
        "Blocks that the device collected, and times that it woke up, in the same steps.",
        simulated.work_over_time,
        each=True,
        wide=True,
    ),
    Figure(
        "response_histogram",
        "Response times, distribution",
        "Reads and writes together, in ranges that double.",
        simulated.response_histogram,
        each=True,
    ),
    Figure(
        "waf_by_cause",
        "Write amplification by cause",
        "Bytes programmed over bytes the host wrote.",
        simulated.waf_by_cause,
    ),
    Figure(
        "utilisation",
        "Utilisation of the device",
        "Share of the simulated time.",
        simulated.utilisation,
        each=True,
        wide=True,
    ),
    Figure(
        "erase_counts", "Erase counts", "Blocks by erases, in equal steps.", simulated.erase_counts, each=True
    ),
    Figure(
        "valid_units",
        "Valid data in full blocks",
        "Full blocks by valid map units, which a collection would have to move.",
        simulated.valid_units,
        each=True,
    ),
)
