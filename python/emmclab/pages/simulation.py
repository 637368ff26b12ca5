"""The page of simulated runs: one run compared with the recording, or several devices compared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from emmclab.calibration.fit_sources import runs_note
from emmclab.comparison.fastest_device import comparison_headlines
from emmclab.comparison.recorded_vs_simulated import comparison_rows
from emmclab.pages.assemble import assemble
from emmclab.pages.first_screen import Head, Notice, Provenance, Tile, lost, note_notices, tile
from emmclab.pages.run_figures import FIGURES, OF_SEVERAL, rows_of
from emmclab.runtime.files import write_atomically
from emmclab.runtime.number_format import signed
from emmclab.simulation.device import Device
from emmclab.simulation.result import DURABILITY, Result, ufs_figures
from emmclab.simulation.result_fields import result_field, shown_fields
from emmclab.simulation.result_text import device_before, headline, mode_line, notes_by_text, warnings_by_text
from emmclab.simulation.setting_types import ExplainedSetting
from emmclab.traces.ledger_text import ledger_line
from emmclab.traces.provenance_types import ProvenanceFields

_COLUMNS = shown_fields(
    (
        "response.mean_response_ms",
        "response.p50_ms",
        "response.p99_ms",
        "response.read.mean_ms",
        "response.write.mean_ms",
        "service.mean_service_ms",
        "requests.no_wait_pct",
        *DURABILITY,
        "space.space_utilisation",
        "write_amplification.waf",
        "energy.total_mj",
        "run.simulated_s",
        "run.throughput_mb_per_s",
    )
)
#: Figures of the work of the device.
_EVENTS = shown_fields(
    (
        "requests.read",
        "requests.write",
        "requests.other",
        "flash.page_reads.host",
        "flash.page_reads.read_modify_write",
        "flash.page_reads.gc",
        "flash.page_reads.wear",
        "flash.page_reads.map",
        "flash.page_programs.host",
        "flash.page_programs.read_modify_write",
        "flash.page_programs.gc",
        "flash.page_programs.wear",
        "flash.page_programs.map",
        "flash.block_erases",
        "gc.blocks",
        "gc.idle_blocks",
        "gc.interruptions",
        "slc.folded_blocks",
        "wear.moved_blocks",
        "wear.bad_blocks",
        "cache.flushes",
        "power.wake_ups",
    )
)
#: Figures of a single run above the tables.
_MAIN = shown_fields(
    (
        "response.mean_response_ms",
        "response.p99_ms",
        "response.read.mean_ms",
        "response.write.mean_ms",
        "requests.other",
        "write_amplification.waf",
    )
)

#: Maximum number of runs whose means are shown above the tables.
_TILES = 6


def render(results: Sequence[Result], devices: Sequence[Device], made: ProvenanceFields | None = None) -> str:
    """Return the page for runs of traces on devices; the same results produce the same bytes.

    `made` is the group `provenance` of command-line results.
    """
    traces = list(dict.fromkeys(result.fields["trace"] for result in results))
    first = {result.fields["trace"]: result for result in reversed(results)}
    one = len(results) == 1
    return assemble(
        "simulation.html.j2",
        [figure for figure in FIGURES if not (one and figure.name in OF_SEVERAL)],
        rows_of(list(results), first),
        traces,
        title=_title(results, traces),
        head=_head(results, first),
        provenance=_provenance(results, first, made or _combined_provenance(results)),
        one=one,
        besides=[
            (result.fields["trace"], result.run_name, comparison_rows(result))
            for result in results
            if result.fields["recorded"]["response"]["all"]["recorded_ms"] is not None
        ],
        links=[
            (
                result.fields["trace"],
                result.run_name,
                [
                    (field.label, field.text(value), field.display_unit)
                    for field, value in ufs_figures(result["ufs"])
                ],
            )
            for result in results
            if "ufs" in result
        ],
        columns=_COLUMNS,
        notes=notes_by_text(results),
        runs=[_run(result, first[result.fields["trace"]]) for result in results],
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
    options = run.fields["options"]
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
            *(Notice("caution", f"{runs}: {text}") for runs, text in warnings_by_text(results)),
            *note_notices(runs_note(results)),
        ],
        tiles=_tiles(results, first),
        picture="response_cdf" if one else "waits",
    )


def _provenance(results: Sequence[Result], first: dict[str, Result], made: ProvenanceFields) -> Provenance:
    ledgers = {trace: result.fields["ledger"] for trace, result in first.items()}
    lines = [(f"Ledger of {trace}", ledger_line(ledger)) for trace, ledger in ledgers.items()]
    digests = [(f"Result of {run['trace']} on {run.run_name}", f"SHA-256 {_digest(run)}") for run in results]
    summary = lines[0][1] if len(lines) == 1 else f"{len(lines)} traces: ledger of each"
    kept = [_figures(run) for run in results]
    return Provenance(summary, [*lines, *digests], lost(ledgers.values()), made, kept)


def _combined_provenance(results: Sequence[Result]) -> ProvenanceFields:
    """Combine the provenance of all runs, if the page is made from Python."""
    parts = [result.fields["provenance"] for result in results if "provenance" in result]
    if not parts:
        return {}
    inputs = {json.dumps(one, sort_keys=True): one for part in parts for one in part["inputs"]}
    settings = {name: changes for part in parts for name, changes in part["settings"].items()}
    return {"version": parts[0]["version"], "inputs": list(inputs.values()), "settings": settings}


class _Events(TypedDict):
    """Events in runs: the names of the runs, and for each event its label and its count in each run."""

    runs: list[str]
    rows: list[tuple[str, list[str]]]


class _RunRow(TypedDict):
    """A run in the tables: value and text of each column, and the change relative to the first run."""

    trace: str
    device: str
    cells: list[tuple[Any, str]]
    change_pct: float | None


class _DeviceRows(TypedDict):
    """A device, with its settings that differ from the defaults."""

    name: str
    digest: str
    about: str
    rows: list[ExplainedSetting]


def _events(results: Sequence[Result], traces: Sequence[str]) -> _Events:
    """Return a row for each event that occurred in any run, with its count in each run."""
    rows = []
    for field in _EVENTS:
        counts = [result.shown(field.path) for result in results]
        if any(counts):
            rows.append((field.label, [field.text(count) for count in counts]))
    names = [
        result.run_name if len(traces) == 1 else f"{result.fields['trace']}, {result.run_name}"
        for result in results
    ]
    return {"runs": names, "rows": rows}


def _run(result: Result, first: Result) -> _RunRow:
    base = first.fields["response"]["mean_response_ms"]
    return {
        "trace": result.fields["trace"],
        "device": result.run_name,
        "cells": [(value, field.text(value)) for field in _COLUMNS for value in [result.shown(field.path)]],
        "change_pct": 100 * (result.fields["response"]["mean_response_ms"] / base - 1)
        if base and result is not first
        else None,
    }


def _digest(result: Result) -> str:
    """Return the SHA-256 of the result, first 16 digits, without the requested additions."""
    fields = {name: group for name, group in _figures(result).items() if name != "provenance"}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def _figures(result: Result) -> dict[str, object]:
    """Return a result without the requested additions, for charts."""
    asked = ("percentiles", "response_distribution", "over_time")
    return {name: group for name, group in result.deterministic().items() if name not in asked}


def _tiles(results: Sequence[Result], first: dict[str, Result]) -> list[Tile]:
    """Return tiles of the most important figures: of one run several, of several runs the mean of each."""
    if len(results) == 1:
        return [tile(field.label, results[0].shown(field.path), field.unit) for field in _MAIN]
    tiles = []
    for result in results[:_TILES]:
        change = _run(result, first[result.fields["trace"]])["change_pct"]
        name = result.run_name if len(first) == 1 else f"{result.fields['trace']} on {result.run_name}"
        mean = result_field("response.mean_response_ms")
        note = mean.name + ("" if change is None else f", {signed(change)} %")
        tiles.append(tile(name, result[mean.path], mean.unit, note=note))
    return tiles


def _device(device: Device) -> _DeviceRows:
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
    made: ProvenanceFields | None = None,
) -> None:
    """Write the page for simulated runs, atomically."""
    write_atomically(path, render(results, devices, made))
