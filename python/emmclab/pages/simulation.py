"""The page of simulated runs: one run beside what was recorded, or devices side by side."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from emmclab.devices.device import Device
from emmclab.devices.result import DURABILITY, Result, ufs_facts
from emmclab.devices.result_text import (
    beside_rows,
    comparison_headlines,
    device_before,
    headline,
    mode_line,
    warnings,
)
from emmclab.devices.sources_apart import sources_apart
from emmclab.pages.assemble import assemble
from emmclab.pages.head import Head, Notice, Provenance, Tile, lost, tile
from emmclab.pages.run_figures import FIGURES, OF_SEVERAL, rows_of
from emmclab.runtime.files import write_whole
from emmclab.traces.ledger import ledger_line

_COLUMNS = (
    ("response.mean_response_ms", "Mean response", "ms", 3),
    ("response.p50_ms", "p50", "ms", 3),
    ("response.p99_ms", "p99", "ms", 3),
    ("response.read.mean_ms", "Reads", "ms", 3),
    ("response.write.mean_ms", "Writes", "ms", 3),
    ("service.mean_service_ms", "Mean service", "ms", 3),
    ("requests.no_wait_pct", "No-wait", "%", 2),
    *((path, label, unit, digits) for label, path, digits, unit in DURABILITY),
    ("space.space_utilisation", "Space utilisation", "", 4),
    ("write_amplification.waf", "WAF", "", 3),
    ("energy.total_mj", "Energy", "mJ", 1),
    ("run.simulated_s", "Simulated", "s", 1),
    ("run.throughput_mb_per_s", "Throughput", "MB/s", 3),
)


#: What the device did, in numbers: path, label.
_EVENTS = (
    ("requests.read", "Reads of the host"),
    ("requests.write", "Writes of the host"),
    ("requests.other", "Flushes and discards of the host"),
    ("flash.page_reads.host", "Page reads for the host"),
    ("flash.page_reads.read_modify_write", "Page reads to complete partial writes"),
    ("flash.page_reads.gc", "Page reads of garbage collection"),
    ("flash.page_reads.wear", "Page reads of wear levelling"),
    ("flash.page_reads.map", "Page reads of the map"),
    ("flash.page_programs.host", "Page programs for the host"),
    ("flash.page_programs.read_modify_write", "Page programs of partial writes"),
    ("flash.page_programs.gc", "Page programs of garbage collection"),
    ("flash.page_programs.wear", "Page programs of wear levelling"),
    ("flash.page_programs.map", "Page programs of the map"),
    ("flash.block_erases", "Blocks erased"),
    ("gc.blocks", "Blocks collected"),
    ("gc.idle_blocks", "Blocks collected in idle time"),
    ("gc.interruptions", "Collections interrupted by requests"),
    ("slc.folded_blocks", "SLC blocks folded"),
    ("wear.moved_blocks", "Blocks moved by wear levelling"),
    ("wear.bad_blocks", "Blocks that went bad"),
    ("cache.flushes", "Flushes of the write buffer"),
    ("power.wake_ups", "Wake-ups"),
)

#: Runs whose means stand above the tables.
_TILES = 6


def render(
    results: Sequence[Result], devices: Sequence[Device], made: Mapping[str, Any] | None = None
) -> str:
    """Return the page for runs of one or several traces on one or several devices; same results, same bytes.

    `made` is the group `provenance` of results of the command line.
    """
    traces = list(dict.fromkeys(result["trace"] for result in results))
    first = {result["trace"]: result for result in reversed(results)}
    one = len(results) == 1
    return assemble(
        "simulation.html.j2",
        [figure for figure in FIGURES if not (one and figure.name in OF_SEVERAL)],
        rows_of(list(results), first),
        traces,
        title=_title(results, traces),
        head=_head(results, first),
        provenance=_provenance(results, first, made or _made(results)),
        one=one,
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
        columns=_COLUMNS,
        runs=[_run(result, first[result["trace"]]) for result in results],
        events=_events(results, traces),
        devices=[_device(device) for device in devices],
    )


def _title(results: Sequence[Result], traces: Sequence[str]) -> str:
    names = ", ".join(traces[:3]) + (" and others" if len(traces) > 3 else "")
    return f"{names} on {', '.join(dict.fromkeys(result.run_name for result in results))}"


def _head(results: Sequence[Result], first: dict[str, Result]) -> Head:
    one = len(results) == 1
    run = results[0]
    answers = [f"{run.run_name}: {headline(run)}"] if one else comparison_headlines(results)
    options = run["options"]
    passes = options["passes"]
    checked = ", every operation checked against a reference model" if options["check"] else ""
    return Head(
        answer=answers[0],
        lead=[
            *answers[1:],
            f"{_title(results, list(first))}: simulated replay, {mode_line(run)}; {device_before(run)}. "
            f"Rate x{options['rate']:g}, {passes} pass{'es' if passes != 1 else ''}, seed "
            f"{options['seed']}{checked}.",
        ],
        notices=[
            Notice("caution", f"{result['trace']} on {result.run_name}: {text}")
            for result in results
            for text in warnings(result)
        ]
        + [Notice("caution", text) for text in sources_apart(results)],
        tiles=_tiles(results, first),
        picture="response_cdf" if one else "waits",
    )


def _provenance(results: Sequence[Result], first: dict[str, Result], made: Mapping[str, Any]) -> Provenance:
    ledgers = {trace: result["ledger"] for trace, result in first.items()}
    lines = [(f"Ledger of {trace}", ledger_line(ledger)) for trace, ledger in ledgers.items()]
    digests = [(f"Result of {run['trace']} on {run.run_name}", f"SHA-256 {_digest(run)}") for run in results]
    summary = lines[0][1] if len(lines) == 1 else f"{len(lines)} traces: ledger of each"
    kept = [_figures(run) for run in results]
    return Provenance(summary, [*lines, *digests], lost(ledgers.values()), made, kept)


def _made(results: Sequence[Result]) -> dict[str, Any]:
    """Return the provenance of all runs as one, where Python calls."""
    parts = [result["provenance"] for result in results if "provenance" in result]
    if not parts:
        return {}
    inputs = {json.dumps(one, sort_keys=True): one for part in parts for one in part["inputs"]}
    settings = {name: changes for part in parts for name, changes in part["settings"].items()}
    return {"version": parts[0]["version"], "inputs": list(inputs.values()), "settings": settings}


def _events(results: Sequence[Result], traces: Sequence[str]) -> dict[str, Any]:
    """Return a row for each event that happened in any run, with its count in each."""
    rows = []
    for path, label in _EVENTS:
        counts = [result.shown(path) for result in results]
        if any(counts):
            rows.append((label, counts))
    names = [
        result.run_name if len(traces) == 1 else f"{result['trace']}, {result.run_name}" for result in results
    ]
    return {"runs": names, "rows": rows}


def _run(result: Result, first: Result) -> dict[str, Any]:
    base = first["response.mean_response_ms"]
    return {
        "trace": result["trace"],
        "device": result.run_name,
        "cells": [(result.shown(name), digits) for name, _, _, digits in _COLUMNS],
        "change_pct": 100 * (result["response.mean_response_ms"] / base - 1)
        if base and result is not first
        else None,
    }


def _digest(result: Result) -> str:
    """Return SHA-256 of the result, first 16 digits, without what was asked for beside it."""
    fields = {name: group for name, group in _figures(result).items() if name != "provenance"}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def _figures(result: Result) -> dict[str, Any]:
    """Return a result without what was asked for beside it, for charts."""
    asked = ("percentiles", "response_distribution", "over_time")
    return {name: group for name, group in result.deterministic().items() if name not in asked}


def _tiles(results: Sequence[Result], first: dict[str, Result]) -> list[Tile]:
    """Pick the numbers that a reader wants first: of one run several, of several runs the mean of each."""
    if len(results) == 1:
        facts = (
            ("Mean response", "response.mean_response_ms", "ms"),
            ("p99 response", "response.p99_ms", "ms"),
            ("Mean of reads", "response.read.mean_ms", "ms"),
            ("Mean of writes", "response.write.mean_ms", "ms"),
            ("Flushes and discards", "requests.other", ""),
            ("Write amplification", "write_amplification.waf", ""),
        )
        return [tile(label, results[0].shown(path), unit) for label, path, unit in facts]
    tiles = []
    for result in results[:_TILES]:
        change = _run(result, first[result["trace"]])["change_pct"]
        name = result.run_name if len(first) == 1 else f"{result['trace']} on {result.run_name}"
        note = "mean response" + ("" if change is None else f", {change:+.1f} %")
        tiles.append(tile(name, result["response.mean_response_ms"], "ms", note=note))
    return tiles


def _device(device: Device) -> dict[str, Any]:
    rows = device.explain()
    return {
        "name": device.name,
        "digest": device.digest,
        "about": next((row["value"].strip('"') for row in rows if row["key"] == "about"), ""),
        "rows": [row for row in rows if row["origin"] != "default" and row["key"] not in ("name", "about")],
    }


def write_simulation_report(
    results: Sequence[Result],
    devices: Sequence[Device],
    path: str | Path,
    made: Mapping[str, Any] | None = None,
) -> None:
    """Write the page for simulated runs; the file appears when it is whole, and never otherwise."""
    write_whole(path, render(results, devices, made))
