"""Prints simulated runs, and comparisons of runs."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from emmclab.cli.tables import framed, print_line, show_table
from emmclab.comparison.comparison_tables import (
    ComparedSpread,
    by_layers,
    comparison_notes,
    comparison_spread,
    comparison_tables,
    recorded_table,
    spread_table,
)
from emmclab.comparison.seed_statistics import comparison_headlines
from emmclab.runtime.document import bar, signed
from emmclab.simulation.fio_figures import fio_table
from emmclab.simulation.result import Result, wait_figures
from emmclab.simulation.result_fields import result_field
from emmclab.simulation.result_text import (
    by_text,
    device_before,
    ended_early,
    headline,
    mode_line,
    notes_by_text,
    part_tables,
    run_table,
    trace_warnings,
    trusted,
    warnings_by_text,
)
from emmclab.traces.profile_fields import ledger_line


def show_provenance(console: Console, results: Sequence[Result]) -> None:
    """Print each trace's ledger (records kept and lost), and the mode, device state, rate and seeds of the runs."""
    printed: set[str] = set()
    for result in results:
        if result.trace not in printed:
            printed.add(result.trace)
            console.print(Text.assemble((result.trace, "bold"), f"  ledger: {ledger_line(result.ledger)}"))
    first = results[0]
    seeds = list(dict.fromkeys(str(result.options["seed"]) for result in results))
    print_line(
        console,
        f"{mode_line(first)}, {device_before(first)}, rate x{first.options['rate']:g}, "
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


def show_recorded_vs_simulated(console: Console, results: Sequence[Result]) -> None:
    """Print the recorded and simulated figures of runs of one trace, and notes on the limits of the comparison."""
    show_table(console, recorded_table(results))
    for note in comparison_notes(results):
        console.print(Text(note, "dim"), soft_wrap=True)


def show_result(console: Console, result: Result) -> None:
    """Print a run: warnings, summary, figures, parts of the response time."""
    show_warnings(console, [result])
    console.print(Text(f"{result.run_name}: {headline(result)}", "bold"), soft_wrap=True)
    show_provenance(console, [result])
    if result.recorded.response.all.recorded_ms is not None:
        show_recorded_vs_simulated(console, [result])
    if result.fio:
        show_table(console, fio_table([result]))
    show_table(console, run_table(result))
    show_notes(console, [result])
    if (most := max(value for _, value in wait_figures(result))) > 0:
        console.print()
        console.print(_waits_table(result, most))
    for table in part_tables(result):
        show_table(console, table)


def _waits_table(result: Result, most: float) -> Table:
    """Return the table of the parts of the mean response time, with bars; `most` ms are the longest bar."""
    table = framed("Parts of the mean response time", "", "", "ms", words=2)
    for field, value in wait_figures(result):
        table.add_row(field.short, Text(bar(value, most, 24), "cyan"), field.text(value))
    return table


def _space_utilisation(result: Result) -> float:
    return result.space.space_utilisation


def utilisation_gains(results: Sequence[Result]) -> list[str]:
    """Return, for each trace, a line that compares the best and the worst space utilisation (IISWC 2015, Figure 9)."""
    lines = []
    for trace in dict.fromkeys(result.trace for result in results):
        rows = [result for result in results if result.trace == trace and result.requests.bytes_written]
        if len(rows) < 2:
            continue
        # If several devices are equally good, the last one counts as best, as in the comparison of the paper.
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


def show_comparison(console: Console, results: Sequence[Result]) -> None:
    """Print a comparison of each device with the first device, and with the recording."""
    has_seeds = len({result.options["seed"] for result in results}) > 1
    if has_seeds:
        _show_untrusted_seeds(console, results)
    else:
        show_warnings(console, results)
    for line in comparison_headlines(results):
        console.print(Text(line, "bold"), soft_wrap=True)
    show_provenance(console, results)
    if results[0].fio and not has_seeds:
        show_table(console, fio_table(results))
    for table in comparison_tables(results):
        show_table(console, table)
    if has_seeds:
        return
    for line in () if by_layers(results) else utilisation_gains(results):
        console.print(Text(line), soft_wrap=True)
    show_notes(console, results)


def _show_untrusted_seeds(console: Console, results: Sequence[Result]) -> None:
    """Print warnings about runs that ended early or were overloaded, with their seeds, and about traces."""
    for result in results:
        if not trusted(result):
            where = f"{result.trace} on {result.run_name}, seed {result.options['seed']}"
            text = f"warning: {where}: {ended_early(result) or 'overloaded'}"
            console.print(Text(text, "yellow"), soft_wrap=True)
    for where, text in by_text(results, trace_warnings):
        console.print(Text(f"warning: {where}: {text}", "yellow"), soft_wrap=True)


def show_spread(console: Console, results: Sequence[Result]) -> None:
    """Print mean and range of each figure of runs that differ in their seeds."""
    ended = sorted({text for result in results if (text := ended_early(result))})
    for text in (*ended, *trace_warnings(results[0])):
        console.print(Text(f"warning: {text}", "yellow"), soft_wrap=True)
    spreads = comparison_spread(results)
    line = _headline(spreads["response"]["all"])
    console.print(Text(f"{results[0].device}, {len(results)} seeds: {line}", "bold"), soft_wrap=True)
    show_provenance(console, results)
    show_recorded_vs_simulated(console, results)
    show_table(console, spread_table(results))


def _headline(spread: ComparedSpread) -> str:
    """Return a line with the mean response time over the seeds, and the recorded one if known."""
    field = result_field("response.mean_response_ms")
    mean, low, high, recorded, error = (spread[key] for key in ("mean", "low", "high", "recorded", "error"))
    if mean is None or low is None or high is None:
        return "no read or write was served"
    line = f"{field.name} {field.in_words(mean)} ({field.rounded(low)} to {field.rounded(high)})"
    if recorded is None or error is None:
        return line
    return f"{line}, recorded {field.in_words(recorded)} ({signed(error)} %)"
