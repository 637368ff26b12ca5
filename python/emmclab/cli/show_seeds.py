"""Runs that differ by their seed, on the terminal."""

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from emmclab.cli.show_profile import framed
from emmclab.cli.show_runs import (
    durability_table,
    show_comparison_headlines,
    show_provenance,
    show_recorded_vs_simulated,
    work_fields,
)
from emmclab.comparison.fastest_device import means_by_seed, runs_by_device
from emmclab.comparison.recorded_vs_simulated import (
    COMPARED_FIGURES,
    ComparedSpread,
    comparison_notes,
    comparison_spread,
)
from emmclab.comparison.seed_statistics import SPREAD_FIGURES, Spread, figures_spread, spread
from emmclab.runtime.difference import change_pct, percent_text
from emmclab.runtime.number_format import signed
from emmclab.runtime.statistics import CONFIDENCE_TEXT, difference_interval
from emmclab.simulation.result import Result
from emmclab.simulation.result_fields import ResultField, result_field
from emmclab.simulation.result_text import by_text, ended_early, trace_warnings, trusted


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
        table = framed(f"{trace}: mean response over {len(base)} seeds, change against the first", "Device\n")
        response, tail = map(result_field, ("response.mean_response_ms", "response.p99_ms"))
        heads = (response.head, f"Range\n{response.unit}", "Change\n%", f"{CONFIDENCE_TEXT} interval\n%", tail.head)
        for heading in heads:
            table.add_column(heading, justify="right", no_wrap=True)
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
    table = framed("Work and wear: mean and range over the seeds", "Device\n", tall=True)
    for field in fields:
        table.add_column(field.head, justify="right", no_wrap=True)
    for name, found in runs:
        spreads = [(field, spread([run.shown(field.path) for run in found])) for field in fields]
        table.add_row(Text(name), *("–" if over is None else _with_range(field, over) for field, over in spreads))
    return table


def _with_range(field: ResultField, over: Spread) -> str:
    """Return a mean, and in a second line its range if the values differ."""
    mean, low, high = map(field.text, over)
    return mean if over.low == over.high else f"{mean}\n{low} to {high}"
