"""The page of simulated runs: devices side by side, Figures 8 and 9 of IISWC 2015 for the given traces."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from emmclab.device import Device, Result
from emmclab.plots import Figure, Row, Rows, simulated
from emmclab.profile import ledger_line
from emmclab.report.assemble import assemble

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
    ("flash.page_reads.total", "Page reads", "", 0),
    ("flash.page_programs.total", "Page programs", "", 0),
    ("flash.block_erases", "Erases", "", 0),
    ("gc.blocks", "Collections", "", 0),
    ("energy.total_mj", "Energy", "mJ", 1),
    ("run.simulated_s", "Simulated", "s", 1),
)


def render(results: Sequence[Result], devices: Sequence[Device]) -> str:
    """Give the page for runs of one or several traces on one or several devices; same results, same bytes."""
    traces = list(dict.fromkeys(result["trace"] for result in results))
    first = {result["trace"]: result for result in reversed(results)}
    return assemble(
        "simulation.html.j2",
        FIGURES,
        {
            name: [
                {"trace": r["trace"], "device": r["device"], **row} for r in results for row in rows(r, first)
            ]
            for name, rows in _ROWS.items()
        },
        traces,
        title=", ".join(traces[:3])
        + (" and others" if len(traces) > 3 else "")
        + " on "
        + ", ".join(dict.fromkeys(result["device"] for result in results)),
        one=len(results) == 1,
        columns=_COLUMNS,
        runs=[_run(result, first[result["trace"]]) for result in results],
        provenance=[(trace, ledger_line(first[trace]["ledger"])) for trace in traces],
        warnings=list(dict.fromkeys(warning for result in results for warning in result.warnings)),
        options=first[traces[0]]["options"],
        devices=[_device(device) for device in devices],
    )


def _run(result: Result, first: Result) -> dict[str, Any]:
    base = first["response.mean_response_ms"]
    return {
        "trace": result["trace"],
        "device": result["device"],
        "parallelism": result["configuration.parallelism"],
        "write_complete": result["configuration.write_complete"],
        "cells": [(result.shown(name), digits) for name, _, _, digits in _COLUMNS],
        "change_pct": 100 * (result["response.mean_response_ms"] / base - 1)
        if base and result is not first
        else None,
        "stopped": result["run.stopped"],
        "digest": hashlib.sha256(json.dumps(result.deterministic(), sort_keys=True).encode()).hexdigest()[
            :16
        ],
    }


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


def _percentiles(result: Result, _first: dict[str, Result]) -> Rows:
    points = ("mean", "p50", "p90", "p99", "p999", "max")
    return [
        {
            "op": op,
            "point": point.replace("p999", "p99.9"),
            "response_ms": result["response"][op][f"{point}_ms"],
        }
        for op in ("read", "write")
        if result["requests"][op]
        for point in points
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
    "response_percentiles": _percentiles,
    "waits": _waits,
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
        "response_percentiles",
        "Response time percentiles",
        "By operation, in ms.",
        simulated.response_percentiles,
        each=True,
    ),
    Figure(
        "waits",
        "Parts of the response time",
        "Means; the parts add up to the mean response.",
        simulated.waits,
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
