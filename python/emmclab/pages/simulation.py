"""The page of simulated runs: one run compared with the recording, or several devices compared."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from emmclab.calibration.fit_sources import runs_note
from emmclab.comparison.comparison_tables import comparison_tables, recorded_table
from emmclab.comparison.seed_statistics import comparison_headlines
from emmclab.pages.assemble import Head, Notice, Provenance, Tile, assemble, lost, note_notices, tile
from emmclab.pages.run_figures import FIGURES as CHARTS
from emmclab.pages.run_figures import OF_SEVERAL, rows_of
from emmclab.runtime.document import Cells, Charts, Column, Folded, Note, Part, Section, TextTable, change_pct, signed
from emmclab.runtime.files import write_atomically
from emmclab.simulation.device import Device
from emmclab.simulation.fio_figures import fio_table
from emmclab.simulation.result import Result
from emmclab.simulation.result_fields import ResultField, result_field, shown_fields
from emmclab.simulation.result_text import (
    FIGURES,
    device_before,
    headline,
    mode_line,
    notes_by_text,
    part_tables,
    response_table,
    run_table,
    warnings_by_text,
)
from emmclab.traces.inputs import ProvenanceFields
from emmclab.traces.profile_fields import ledger_line

#: Figures in the table of the device's work.
_EVENTS = shown_fields(
    (
        "requests.read",
        "requests.write",
        "requests.other",
        "flash.page_reads.host",
        "flash.page_reads.read_modify_write",
        "flash.page_reads.gc",
        "flash.page_reads.wear",
        "flash.page_reads.refresh",
        "flash.page_reads.map",
        "flash.page_programs.host",
        "flash.page_programs.read_modify_write",
        "flash.page_programs.gc",
        "flash.page_programs.wear",
        "flash.page_programs.refresh",
        "flash.page_programs.map",
        "flash.block_erases",
        "flash.retried_reads",
        "flash.read_retries",
        "flash.suspended_erases",
        "flash.suspended_moves",
        "flash.suspended_programs",
        "flash.refreshed_blocks",
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
#: Figures of a single run on the first screen of the page.
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

#: Maximum number of runs whose means are shown on the first screen of the page.
_TILES = 6


def render(results: Sequence[Result], devices: Sequence[Device], made: ProvenanceFields | None = None) -> str:
    """Return the HTML page for runs of traces on devices; equal results produce equal bytes.

    `made` is the group `provenance` of command-line results.
    """
    traces = list(dict.fromkeys(result.trace for result in results))
    first = {result.trace: result for result in reversed(results)}
    is_single = len(results) == 1
    return assemble(
        [figure for figure in CHARTS if not (is_single and figure.name in OF_SEVERAL)],
        rows_of(list(results), first),
        traces,
        title=_title(results, traces),
        head=_head(results, first),
        provenance=_provenance(results, first, made or _combined_provenance(results)),
        sections=[
            Section("results", "Results", _results(results), nav="Results"),
            *_recorded(results),
            *_parts(results),
            Section("figures", "Figures", [Charts()], nav="Figures"),
            Section(
                "events",
                "Events of the device",
                [
                    _events(results, traces),
                    Note("Events that did not occur in any run are left out; each event is a field of `--json`."),
                ],
                nav="Events",
            ),
            Section("devices", "Devices", [_device(device) for device in devices], nav="Devices"),
        ],
    )


def _results(results: Sequence[Result]) -> list[Part]:
    """Return the tables of a single run, or the tables that compare several runs.

    For several runs, a further table contains the figures that the other tables leave out.
    """
    if len(results) == 1:
        tables, style = [run_table(results[0]), response_table(results[0])], "folds"
    else:
        tables, style = comparison_tables(results, is_joined=True), "sortable folds results"
        headings = {heading for table in tables for heading in table.headings}
        fields = [field for field in FIGURES if field.heading not in headings and _is_time_or_space(field)]
        rows: list[Cells] = [
            [run.trace, run.run_name, *(field.cell(run.measured(field.path)) for field in fields)] for run in results
        ]
        tables.append(TextTable("Other figures", ["Trace", "Device", *(field.heading for field in fields)], rows, 2))
    if results[0].fio:
        tables.insert(0, fio_table(results))
    gain = (
        "A gain in space utilisation is a ratio to another device, or the difference from a device with 4 KB "
        "pages, whose utilisation is 1."
    )
    titled = [part for table in tables for part in table._replace(style=style).titled()]
    return [*titled, *(Note(text, "quiet") for text in (gain, *notes_by_text(results)))]


def _is_time_or_space(field: ResultField) -> bool:
    """Return whether a figure is about times or space; counts of device events have a separate table."""
    return field.path.partition(".")[0] not in ("flash", "gc")


def _recorded(results: Sequence[Result]) -> list[Section]:
    """Return the section that compares each run with its recording; empty if none is recorded."""
    runs = [run for run in results if run.recorded.response.all.recorded_ms is not None]
    parts = []
    for run in runs:
        table = recorded_table([run])
        label, recorded, simulated, error = table.rows[0]
        name = f"{run.trace} on {run.run_name}"
        error_text = "" if error == "–" else f" ({error})"
        summary = f"{name}: {str(label).lower()} {recorded} recorded, {simulated} simulated{error_text}"
        titled = table._replace(title=f"{table.title}, {name}", style="folds")
        parts.append(Folded(summary, [titled], is_open=len(runs) == 1))
    return [Section("recorded", "Recorded and simulated", parts, nav="Recorded")] if parts else []


def _parts(results: Sequence[Result]) -> list[Section]:
    """Return the tables of links, layers and second devices."""
    parts: list[Part] = []
    for run in results:
        name = f", {run.trace} on {run.run_name}" if len(results) > 1 else ""
        for table in part_tables(run):
            parts += table._replace(title=f"{table.title}{name}").titled()
    return [Section("parts", "Link, layers and second device", parts)] if parts else []


def _title(results: Sequence[Result], traces: Sequence[str]) -> str:
    names = ", ".join(traces[:3]) + (" and others" if len(traces) > 3 else "")
    return f"{names} on {', '.join(dict.fromkeys(result.run_name for result in results))}"


def _head(results: Sequence[Result], first: dict[str, Result]) -> Head:
    is_single = len(results) == 1
    run = results[0]
    answers = [f"{run.run_name}: {headline(run)}"] if is_single else comparison_headlines(results)
    options = run.options
    passes = options["passes"]
    checked = ", every operation checked against a reference model" if options["check"] else ""
    return Head(
        answer=answers[0],
        lead=[
            *answers[1:],
            f"{_title(results, list(first))}: simulated replay, {mode_line(run)}; {device_before(run)}. Rate "
            f"x{options['rate']:g}, {passes} pass{'es' if passes != 1 else ''}, seed {options['seed']}{checked}.",
        ],
        notices=[
            *(Notice("caution", f"{runs}: {text}") for runs, text in warnings_by_text(results)),
            *note_notices(runs_note(results)),
        ],
        tiles=_tiles(results, first),
        picture="response_cdf" if is_single else "waits",
    )


def _provenance(results: Sequence[Result], first: dict[str, Result], made: ProvenanceFields) -> Provenance:
    ledgers = {trace: result.ledger for trace, result in first.items()}
    lines = [(f"Ledger of {trace}", ledger_line(ledger)) for trace, ledger in ledgers.items()]
    digests = [(f"Result of {run.trace} on {run.run_name}", f"SHA-256 {_digest(run)}") for run in results]
    summary = lines[0][1] if len(lines) == 1 else f"{len(lines)} traces: ledger of each"
    figures = [_figures(run) for run in results]
    return Provenance(summary, [*lines, *digests], lost(ledgers.values()), made, figures)


def _combined_provenance(results: Sequence[Result]) -> ProvenanceFields:
    """Combine the provenance of all runs; used if the page is written from Python."""
    parts = [result.provenance for result in results if result.provenance]
    if not parts:
        return {}
    inputs = {json.dumps(record, sort_keys=True): record for part in parts for record in part["inputs"]}
    settings = {name: changes for part in parts for name, changes in part["settings"].items()}
    return {"version": parts[0]["version"], "inputs": list(inputs.values()), "settings": settings}


def _events(results: Sequence[Result], traces: Sequence[str]) -> TextTable:
    """Return a table with a row for each event that occurred in any run, and a column for each run."""
    rows = []
    for field in _EVENTS:
        counts = [result.measured(field.path) for result in results]
        if any(counts):
            rows.append([field.label, *(field.text(count) for count in counts)])
    names = [result.run_name if len(traces) == 1 else f"{result.trace}, {result.run_name}" for result in results]
    return TextTable("Events of each run", ["Number of", *names], rows, style="matrix folds numbers")


def _change_pct(result: Result, first: Result) -> float | None:
    """Return the change of the mean response time over the first run, in percent; None for the first run."""
    if result is first:
        return None
    path = "response.mean_response_ms"
    return change_pct(first[path], result[path])


def _digest(result: Result) -> str:
    """Return the first 16 digits of the SHA-256 of a result without provenance and optional groups."""
    fields = {name: group for name, group in _figures(result).items() if name != "provenance"}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def _figures(result: Result) -> dict[str, object]:
    """Return a result without the optional groups, which only charts need."""
    optional = ("percentiles", "response_distribution", "over_time")
    return {name: group for name, group in result.deterministic().items() if name not in optional}


def _tiles(results: Sequence[Result], first: dict[str, Result]) -> list[Tile]:
    """Return tiles with the main figures of a single run, or with the mean response time of each run."""
    if len(results) == 1:
        return [tile(field.label, results[0].measured(field.path), field.unit) for field in _MAIN]
    tiles = []
    for result in results[:_TILES]:
        change = _change_pct(result, first[result.trace])
        name = result.run_name if len(first) == 1 else f"{result.trace} on {result.run_name}"
        mean = result_field("response.mean_response_ms")
        note = mean.name + ("" if change is None else f", {signed(change)} %")
        tiles.append(tile(name, result[mean.path], mean.unit, note=note))
    return tiles


def _device(device: Device) -> Folded:
    """Return a folded table of the settings of a device that differ from the defaults."""
    rows = device.explain()
    about = next((row.value.strip('"') for row in rows if row.key == "about"), "")
    text = [Column(name, is_text=True) for name in ("Unit", "Origin", "Meaning")]
    table = TextTable(
        f"Settings of {device.name}",
        ["Setting", "Value", *text],
        [
            [row.key, row.value, row.unit, row.origin, row.doc]
            for row in rows
            if row.origin != "default" and row.key not in ("name", "about")
        ],
        style="folds",
    )
    return Folded(f"{device.name}: {about} (settings `{device.digest}`)", [table])


def write_simulation_report(
    results: Sequence[Result], devices: Sequence[Device], path: str | Path, made: ProvenanceFields | None = None
) -> None:
    """Write the page for simulated runs, atomically."""
    write_atomically(path, render(results, devices, made))
