"""Simulated runs on the terminal."""

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from emmclab.cli.tables import framed, print_line, show_table
from emmclab.cli.unicode_bars import bar
from emmclab.comparison.recorded_vs_simulated import (
    COMPARED_FIGURES,
    ComparedSpread,
    comparison_notes,
    comparison_rows,
    comparison_spread,
)
from emmclab.comparison.seed_statistics import (
    SPREAD_FIGURES,
    Spread,
    comparison_headlines,
    figures_spread,
    means_by_seed,
    runs_by_device,
    spread,
)
from emmclab.runtime.number_format import change_pct, percent_text, signed
from emmclab.runtime.statistics import CONFIDENCE_TEXT, difference_interval
from emmclab.simulation.result import Result, wait_figures
from emmclab.simulation.result_fields import ResultField, result_field, shown_fields
from emmclab.simulation.result_tables import layer_table, link_table, requested_percentiles, run_table, second_table
from emmclab.simulation.result_text import (
    by_text,
    device_before,
    ended_early,
    headline,
    mode_line,
    notes_by_text,
    trace_warnings,
    trusted,
    warnings_by_text,
)
from emmclab.traces.profile_fields import ledger_line
from emmclab.traces.profile_options import percentile_label


def show_provenance(console: Console, results: Sequence[Result]) -> None:
    """Print the ledger of each trace and the conditions of the run."""
    seen: set[str] = set()
    for result in results:
        if result.fields["trace"] not in seen:
            seen.add(result.fields["trace"])
            console.print(
                Text.assemble((result.fields["trace"], "bold"), f"  ledger: {ledger_line(result.fields['ledger'])}")
            )
    first = results[0]
    seeds = list(dict.fromkeys(str(result.fields["options"]["seed"]) for result in results))
    print_line(
        console,
        f"{mode_line(first)}, {device_before(first)}, rate x{first.fields['options']['rate']:g}, "
        f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}",
        "dim",
    )


def show_warnings(console: Console, results: Sequence[Result]) -> None:
    """Print warnings about the figures."""
    for runs, text in warnings_by_text(results):
        where = f"{runs}: " if len(results) > 1 else ""
        console.print(Text(f"warning: {where}{text}", "yellow"), soft_wrap=True)


def show_notes(console: Console, results: Sequence[Result]) -> None:
    """Print notes on the figures."""
    for text in notes_by_text(results):
        console.print(Text(f"note: {text}", "dim"), soft_wrap=True)


def show_recorded_vs_simulated(
    console: Console, rows: Sequence[tuple[str, ...]], headings: Sequence[str], notes: Sequence[str]
) -> None:
    """Print a table of recorded and simulated figures, and notes on the limits of the comparison."""
    table = framed("Recorded and simulated")
    for heading in headings:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print()
    console.print(table)
    for note in notes:
        console.print(Text(note, "dim"), soft_wrap=True)


def show_result(console: Console, result: Result) -> None:
    """Print one run: summary, warnings, figures, parts of the response time."""
    show_warnings(console, [result])
    console.print(Text(f"{result.run_name}: {headline(result)}", "bold"), soft_wrap=True)
    show_provenance(console, [result])
    if result.fields["recorded"]["response"]["all"]["recorded_ms"] is not None:
        show_recorded_vs_simulated(
            console, comparison_rows(result), ("", "Recorded", "Simulated", "Error"), comparison_notes([result])
        )
    show_table(console, run_table(result))
    show_notes(console, [result])
    if ufs := result.fields.get("ufs"):
        show_table(console, link_table(ufs))
    if (most := max(value for _, value in wait_figures(result))) > 0:
        console.print()
        console.print(_waits_table(result, most))
    for layer in result.fields.get("layers", ()):
        show_table(console, layer_table(layer))
        for left_out in layer.get("left_out", ()):
            text = f"{layer['name']}: {left_out} disabled; this device does not support it"
            console.print(text, soft_wrap=True)
    if second := result.fields.get("second_device"):
        show_table(console, second_table(second))


def _waits_table(result: Result, most: float) -> Table:
    """Show the parts of the mean response, the longest with the longest bar."""
    table = framed("Parts of the mean response time", "", "", _P99.unit, words=2)
    for field, value in wait_figures(result):
        table.add_row(field.short, Text(bar(value, most, 24), "cyan"), field.text(value))
    return table


def _space_utilisation(result: Result) -> float:
    return result.fields["space"]["space_utilisation"]


def utilisation_gains(results: Sequence[Result]) -> list[str]:
    """Return the gain of the best space utilisation over the worst by trace (IISWC 2015, Figure 9)."""
    lines = []
    for trace in dict.fromkeys(result.fields["trace"] for result in results):
        rows = [
            result
            for result in results
            if result.fields["trace"] == trace and result.fields["requests"]["bytes_written"]
        ]
        if len(rows) < 2:
            continue
        # Of equal devices the last is chosen, since the paper compares its last device with the one before.
        best = max(reversed(rows), key=_space_utilisation)
        worst = min(rows, key=_space_utilisation)
        high, low = _space_utilisation(best), _space_utilisation(worst)
        if high > low:
            ratio, points = 100 * (high / low - 1), 100 * (high - low)
            lines.append(
                f"{trace}: space utilisation of {best.run_name} over {worst.run_name}: "
                f"{signed(ratio, 2)} % as a ratio, {signed(points, 2)} points as a difference"
            )
    return lines


def _percentile_times(result: Result) -> list[float]:
    """Return the percentiles of the comparison: the requested ones, or the 99th."""
    return [row["response_ms"] for row in requested_percentiles(result)] or [result.fields["response"]["p99_ms"]]


def show_comparison_headlines(console: Console, results: Sequence[Result]) -> None:
    """Print the fastest device of each trace."""
    for line in comparison_headlines(results):
        console.print(Text(line, "bold"), soft_wrap=True)


def show_compared_results(console: Console, results: Sequence[Result]) -> None:
    """Print a comparison of each device with the first one, and with the recording."""
    show_warnings(console, results)
    show_comparison_headlines(console, results)
    show_provenance(console, results)
    for trace in dict.fromkeys(result.fields["trace"] for result in results):
        _show_compared(console, [result for result in results if result.fields["trace"] == trace])
    for line in () if _by_layers(results) else utilisation_gains(results):
        console.print(Text(line), soft_wrap=True)
    show_notes(console, results)


#: The unit and format of all percentiles.
_P99 = result_field("response.p99_ms")
#: Columns for the work of a device: if runs differ in their layers, and otherwise.
_OF_LAYERS = shown_fields(("flash.page_programs.total",))
_OF_SPACE = shown_fields(("space.space_utilisation", "write_amplification.waf", "flash.block_erases"))
#: Columns for its wear, which is known of devices with an erase limit that have erased blocks.
_OF_WEAR = shown_fields(("wear.lifetime.even_host_bytes", "wear.lifetime.used_pct"))


def _headings(results: Sequence[Result]) -> list[str]:
    """Return the columns of the comparison with their units."""
    chosen = [percentile_label(row["percentile"]) for row in requested_percentiles(results[0])] or [_P99.short]
    return [
        "Device\n",
        result_field("response.mean_response_ms").head,
        "Change\n%",
        "Against\nrecord %",
        *(f"{label}\n{_P99.unit}" for label in chosen),
        *(field.head for field in work_fields(results)),
    ]


def work_fields(results: Sequence[Result]) -> list[ResultField]:
    """Return the columns for work and wear: programs if runs differ in layers, else use of space."""
    wear = (field for field in _OF_WEAR if any(run.shown(field.path) for run in results))
    return [*(_OF_LAYERS if _by_layers(results) else _OF_SPACE), *wear]


def _by_layers(results: Sequence[Result]) -> bool:
    """Return whether runs differ in their layers."""
    return len({tuple(result.fields["options"].get("layers", ())) for result in results}) > 1


def _show_compared(console: Console, results: Sequence[Result]) -> None:
    recorded = results[0].fields["recorded"]["response"]["all"]["recorded_ms"]
    beside = "" if recorded is None else f"; recorded mean {recorded:,.3f} ms"
    first = "run" if _by_layers(results) else "device"
    title = f"{results[0].fields['trace']}: mean response, change against the first {first}{beside}"
    table = framed(title, *_headings(results))
    base = results[0].fields["response"]["mean_response_ms"]
    for result in results:
        mean, error = (
            result.fields["response"]["mean_response_ms"],
            result.fields["recorded"]["response"]["all"]["error_pct"],
        )
        marks = [
            word
            for word, shown in (
                ("ended early", result.fields["run"]["stopped"]),
                ("overloaded", result.fields["run"]["load"]["overloaded"]),
            )
            if shown
        ]
        table.add_row(
            Text(result.run_name + (f" ({', '.join(marks)})" if marks else "")),
            result_field("response.mean_response_ms").text(mean),
            percent_text(change_pct(base, mean)),
            percent_text(error),
            *map(_P99.text, _percentile_times(result)),
            *(field.text(result.shown(field.path)) for field in work_fields(results)),
        )
    console.print()
    console.print(table)
    console.print()
    runs = [(result.run_name, [result]) for result in results]
    console.print(durability_table(runs, f"{first.capitalize()}\n"))


#: Columns of the second table of a comparison.
_TIME_AND_DURABILITY = shown_fields(
    ("run.throughput_mb_per_s", "requests.other", "cache.flushes", "durable.mean_ms", "durable.p99_ms")
)


def durability_table(found: Sequence[tuple[str, Sequence[Result]]], first: str) -> Table:
    """Return a table of total times, flushes and synchronous writes: means over the runs of each device."""
    time = result_field("run.simulated_s")
    headings = (first, time.head, "Change\n%", *(field.head for field in _TIME_AND_DURABILITY))
    table = framed("Total time; response of flushes and synchronous writes", *headings)
    base = None
    for name, runs in found:
        took = _mean_of(runs, time) or 0.0
        base = took if base is None else base
        table.add_row(
            Text(name),
            time.text(took),
            percent_text(change_pct(base, took)),
            *(field.text(_mean_of(runs, field)) for field in _TIME_AND_DURABILITY),
        )
    table.caption = "Cache flushes: flushes and preflushes that found data in the write buffer"
    if all(run.fields["run"]["mode"] == "open" for _, runs in found for run in runs):
        table.caption += (
            ". In open loop the time is that of the trace; --mode back_to_back shows how long the devices need"
        )
    table.caption_justify = "left"
    return table


def _mean_of(runs: Sequence[Result], field: ResultField) -> float | None:
    """Return the mean of a figure over runs that differ by their seed; None if no run has it."""
    over = spread([run.shown(field.path) for run in runs])
    return None if over is None else over.mean


def show_spread(console: Console, results: Sequence[Result]) -> None:
    """Print runs that differ by their seed: mean and range of each figure."""
    ended = sorted({text for result in results if (text := ended_early(result))})
    for text in (*ended, *trace_warnings(results[0])):
        console.print(Text(f"warning: {text}", "yellow"), soft_wrap=True)
    found = comparison_spread(results)
    line = _headline(found["response"]["all"])
    console.print(Text(f"{results[0]['device']}, {len(results)} seeds: {line}", "bold"), soft_wrap=True)
    show_provenance(console, results)
    rows = []
    for one in COMPARED_FIGURES:
        row = found[one.group][one.op]
        low, high = one.field.text(row["low"]), one.field.text(row["high"])
        span = "–" if row["low"] is None else f"{low} to {high}"
        was, middle = one.text(row["recorded"]), one.text(row["mean"])
        rows.append((one.label, was, middle, span, one.error_text(row["error"])))
    show_recorded_vs_simulated(
        console, rows, ("", "Recorded", "Mean", "Range", "Mean off by"), comparison_notes(results)
    )
    table = framed("Figures of the device")
    for heading in ("", "Mean", "Range"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    figures = figures_spread(results)
    for field in SPREAD_FIGURES:
        unit = f", {field.display_unit}" if field.display_unit else ""
        if (over := figures[field.path]) is not None:
            span = f"{field.text(over.low)} to {field.text(over.high)}"
            table.add_row(Text(f"{field.label}{unit}"), field.text(over.mean), span)
    console.print()
    console.print(table)


def _headline(over: ComparedSpread) -> str:
    """Return a line with the mean response over the seeds, and the recorded one if known."""
    field = result_field("response.mean_response_ms")
    mean, low, high, was, error = (over[key] for key in ("mean", "low", "high", "recorded", "error"))
    if mean is None or low is None or high is None:
        return "no read or write was served"
    line = f"{field.name} {field.in_words(mean)} ({field.rounded(low)} to {field.rounded(high)})"
    if was is None or error is None:
        return line
    return f"{line}, recorded {field.in_words(was)} ({signed(error)} %)"


def show_compared_seeds(console: Console, results: Sequence[Result]) -> None:
    """Print a comparison of devices over several seeds: means, ranges, and intervals of the changes."""
    for result in results:
        if not trusted(result):
            where = f"{result.fields['trace']} on {result.run_name}, seed {result.fields['options']['seed']}"
            text = f"warning: {where}: {ended_early(result) or 'overloaded'}"
            console.print(Text(text, "yellow"), soft_wrap=True)
    for where, text in by_text(results, trace_warnings):
        console.print(Text(f"warning: {where}: {text}", "yellow"), soft_wrap=True)
    show_comparison_headlines(console, results)
    show_provenance(console, results)
    for trace in dict.fromkeys(result.fields["trace"] for result in results):
        runs = runs_by_device([result for result in results if result.fields["trace"] == trace])
        base = means_by_seed(runs[0][1])
        response, tail = map(result_field, ("response.mean_response_ms", "response.p99_ms"))
        heads = (response.head, f"Range\n{response.unit}", "Change\n%", f"{CONFIDENCE_TEXT} interval\n%", tail.head)
        title = f"{trace}: mean response over {len(base)} seeds, change against the first"
        table = framed(title, "Device\n", *heads)
        for name, found in runs:
            values = means_by_seed(found)
            mean, low, high = spread(list(values.values())) or (0.0, 0.0, 0.0)
            first = sum(base.values()) / len(base)
            interval = difference_interval(base, values, len(runs) - 1, ratio=True)
            bounds = "–"
            if interval is not None and min(*base.values(), *values.values()) > 0:
                bounds = " to ".join(signed(100 * math.expm1(min(bound, 100.0))) for bound in interval)
            p99 = spread([one.fields["response"]["p99_ms"] for one in found])
            table.add_row(
                Text(name),
                response.text(mean),
                f"{response.text(low)} to {response.text(high)}",
                percent_text(change_pct(first, mean)),
                "–" if values == base else bounds,
                tail.text(p99.mean if p99 else None),
            )
        console.print()
        console.print(table)
        console.print()
        console.print(_work_table(runs))
        console.print()
        console.print(durability_table(runs, "Device\n"))


def _work_table(runs: Sequence[tuple[str, Sequence[Result]]]) -> Table:
    """Return a table of the work and the wear of each device: means, with the ranges over the seeds below."""
    fields = work_fields([run for _, found in runs for run in found])
    headings = ("Device\n", *(field.head for field in fields))
    table = framed("Work and wear: mean and range over the seeds", *headings, tall=True)
    for name, found in runs:
        spreads = [(field, spread([run.shown(field.path) for run in found])) for field in fields]
        table.add_row(Text(name), *("–" if over is None else _with_range(field, over) for field, over in spreads))
    return table


def _with_range(field: ResultField, over: Spread) -> str:
    """Return a mean, and in a second line its range if the values differ."""
    mean, low, high = map(field.text, over)
    return mean if over.low == over.high else f"{mean}\n{low} to {high}"
