"""The tables of a comparison: of runs with each other, and of simulated with recorded figures."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from emmclab.comparison.recorded_vs_simulated import COMPARED_FIGURES, comparison_spread
from emmclab.comparison.seed_statistics import SPREAD_FIGURES, figures_spread, means_by_seed, runs_by_device, spread
from emmclab.runtime.document import Cells, Column, Number, TextTable
from emmclab.runtime.number_format import change_pct, percent_text, signed
from emmclab.runtime.statistics import CONFIDENCE_TEXT, difference_interval
from emmclab.simulation.result import Result
from emmclab.simulation.result_fields import ResultField, result_field, shown_fields
from emmclab.simulation.result_tables import NAME_OF_FIGURE, requested_percentiles
from emmclab.traces.profile_options import percentile_label

_MEAN, _P99, _TIME = map(result_field, ("response.mean_response_ms", "response.p99_ms", "run.simulated_s"))
#: Table columns for runs with different layers (`_OF_LAYERS`) and for all other runs (`_OF_SPACE`).
_OF_LAYERS = shown_fields(("flash.page_programs.total",))
_OF_SPACE = shown_fields(("space.space_utilisation", "write_amplification.waf", "flash.block_erases"))
#: Columns on wear; shown for devices that have an erase limit and have erased blocks.
_OF_WEAR = shown_fields(("wear.lifetime.even_host_bytes", "wear.lifetime.used_pct"))
#: Columns of the table that shows total times, and response times of flushes and synchronous writes.
_TIME_AND_DURABILITY = shown_fields(
    ("run.throughput_mb_per_s", "requests.other", "cache.flushes", "durable.mean_ms", "durable.p99_ms")
)


def recorded_table(results: Sequence[Result]) -> TextTable:
    """Return the recorded and the simulated figures of one run, or of runs that differ only by their seed."""
    several = len(results) > 1
    spreads = comparison_spread(results)
    rows: list[Cells] = []
    for figure in COMPARED_FIGURES:
        values = spreads[figure.group][figure.op]
        low, high = map(figure.field.text, (values["low"], values["high"]))
        span = ["–" if values["low"] is None else f"{low} to {high}"] if several else []
        rows.append(
            [
                figure.label,
                figure.text(values["recorded"]),
                figure.text(values["mean"]),
                *span,
                figure.error_text(values["error"]),
            ]
        )
    simulated = ["Mean", "Range", "Mean off by"] if several else ["Simulated", "Error"]
    return TextTable("Recorded and simulated", [NAME_OF_FIGURE, "Recorded", *simulated], rows)


def spread_table(results: Sequence[Result]) -> TextTable:
    """Return a table of the figures that have no recorded counterpart: mean and range over the seeds."""
    spreads = zip(SPREAD_FIGURES, figures_spread(results).values(), strict=True)
    rows = [
        [field.heading.name, field.text(values.mean), f"{field.text(values.low)} to {field.text(values.high)}"]
        for field, values in spreads
        if values
    ]
    return TextTable("Figures of the device", [NAME_OF_FIGURE, "Mean", "Range"], rows)


class _DeviceRuns(NamedTuple):
    """The runs of one trace on a device, which differ only by their seed."""

    name: str
    runs: Sequence[Result]

    def mean(self, field: ResultField) -> float | None:
        """Return the mean of a figure; None if no run has it."""
        return self.cell(field).value

    def cell(self, field: ResultField) -> Number:
        """Return the mean of a figure, with its range below it if the seeds differ."""
        values = spread([run.measured(field.path) for run in self.runs])
        if values is None or values.low == values.high:
            return field.cell(None if values is None else values.mean)
        return field.cell(values.mean)._replace(note=f"{field.text(values.low)} to {field.text(values.high)}")

    def error_cell(self) -> Number:
        """Return the difference between the simulated and the recorded mean response time, in percent."""
        recorded = [run.recorded.response.all for run in self.runs]
        values = spread([error.error_pct for error in recorded])
        return _percent_cell(None if values is None else values.mean)

    def percentile_cells(self) -> list[Number]:
        """Return the requested percentiles of the response time."""
        requested = [[row.response_ms for row in requested_percentiles(run)] for run in self.runs]
        means = [sum(values) / len(values) for values in zip(*requested, strict=True)]
        return list(map(_P99.cell, means))

    def marked_name(self) -> str:
        """Return the device's name, marked if a run ended early or was overloaded."""
        loads = [run.run for run in self.runs]
        marks = {
            "ended early": any(load.stopped for load in loads),
            "overloaded": any(load.load.overloaded for load in loads),
        }
        suffix = ", ".join(mark for mark, applies in marks.items() if applies)
        return f"{self.name} ({suffix})" if suffix else self.name


def comparison_tables(results: Sequence[Result], *, is_joined: bool = False) -> list[TextTable]:
    """Return the tables that compare the runs of each trace with those on its first device.

    The first table of a trace shows response times and work, the second one total times and the cost of durability. If
    `is_joined` is set, both tables contain the rows of all traces.
    """
    by_trace: dict[str, list[Result]] = {}
    for result in results:
        by_trace.setdefault(result.trace, []).append(result)
    is_joined = is_joined and len(by_trace) > 1
    word = "run" if by_layers(results) else "device"
    tables = {
        trace: list(_tables(runs, _work_fields(results if is_joined else runs), word))
        for trace, runs in by_trace.items()
    }
    if is_joined:
        return [_joined(dict(zip(tables, parts, strict=True))) for parts in zip(*tables.values(), strict=True)]
    for trace, (response, *_) in tables.items():
        recorded = by_trace[trace][0].recorded.response.all.recorded_ms
        recorded_text = "" if recorded is None else f"; recorded mean {_MEAN.text(recorded)} {_MEAN.unit}"
        title = f"{trace}: {response.title[:1].lower()}{response.title[1:]}{recorded_text}"
        tables[trace][0] = response._replace(title=title)
    return [table for of_trace in tables.values() for table in of_trace]


def _joined(tables: Mapping[str, TextTable]) -> TextTable:
    """Return one table with the rows of several traces."""
    first = next(iter(tables.values()))
    rows = [[trace, *row] for trace, table in tables.items() for row in table.rows]
    return first._replace(headings=["Trace", *first.headings], rows=rows, words=2)


def _work_fields(results: Sequence[Result]) -> list[ResultField]:
    """Return the columns on work and wear: page programs if layers differ, else space, WAF and erases."""
    wear = (field for field in _OF_WEAR if any(run.measured(field.path) for run in results))
    return [*(_OF_LAYERS if by_layers(results) else _OF_SPACE), *wear]


def by_layers(results: Sequence[Result]) -> bool:
    """Return whether runs differ in their layers."""
    return len({tuple(result.options.get("layers", ())) for result in results}) > 1


def _tables(results: Sequence[Result], fields: Sequence[ResultField], word: str) -> tuple[TextTable, TextTable]:
    """Return the table of response times and work, and the table of total times, flushes and synchronous writes."""
    devices = [_DeviceRuns(name, runs) for name, runs in runs_by_device(results)]
    first, seeds = devices[0], len(devices[0].runs)
    points = [percentile_label(row.percentile) for row in requested_percentiles(first.runs[0])]
    intervals = [Column(f"{CONFIDENCE_TEXT} interval", "%")] if seeds > 1 else []
    responses: list[Cells] = []
    times: list[Cells] = []
    for device in devices:
        responses.append(
            [
                device.marked_name(),
                device.cell(_MEAN),
                _change(first, device, _MEAN),
                *(_interval_text(devices, device) for _ in intervals),
                device.error_cell(),
                *(device.percentile_cells() or [device.cell(_P99)]),
                *map(device.cell, fields),
            ]
        )
        times.append(
            [device.name, device.cell(_TIME), _change(first, device, _TIME), *map(device.cell, _TIME_AND_DURABILITY)]
        )
    name, change = Column(word.capitalize(), short=f"{word.capitalize()}\n"), Column("Change", "%")
    tails = [Column(f"{point} response", _P99.unit, point) for point in points] or [_P99.heading]
    caption = "Cache flushes: flushes and preflushes that found data in the write buffer"
    if all(run.run.mode == "open" for device in devices for run in device.runs):
        caption += ". In open loop the time is that of the trace; --mode back_to_back shows how long the devices need"
    over_seeds = f" over {seeds} seeds" if intervals else ""
    return (
        TextTable(
            f"Mean response{over_seeds}, change against the first {word}",
            [
                name,
                _MEAN.heading,
                change,
                *intervals,
                "Against\nrecord %",
                *tails,
                *(field.heading for field in fields),
            ],
            responses,
        ),
        TextTable(
            "Total time; response of flushes and synchronous writes",
            [name, _TIME.heading, change, *(field.heading for field in _TIME_AND_DURABILITY)],
            times,
            caption=caption,
        ),
    )


def _change(first: _DeviceRuns, device: _DeviceRuns, field: ResultField) -> Number:
    """Return the change of a figure from the first device to this device, in percent."""
    return _percent_cell(change_pct(first.mean(field), device.mean(field)))


def _percent_cell(change: float | None) -> Number:
    return Number(percent_text(change), change)


def _interval_text(devices: Sequence[_DeviceRuns], device: _DeviceRuns) -> str:
    """Return the confidence interval of the change in mean response time over the first device, paired by seed."""
    base, values = means_by_seed(devices[0].runs), means_by_seed(device.runs)
    interval = difference_interval(base, values, len(devices) - 1, ratio=True)
    if interval is None or values == base or min(*base.values(), *values.values()) <= 0:
        return "–"
    return " to ".join(signed(100 * math.expm1(min(bound, 100.0))) for bound in interval)
