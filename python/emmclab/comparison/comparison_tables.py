"""The tables of a comparison: of runs with each other, and of simulated with recorded figures."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypedDict, Unpack

from emmclab.calibration.fit_sources import fitted_note
from emmclab.comparison.seed_statistics import (
    SPREAD_FIGURES,
    comparison_headlines,
    figures_spread,
    means_by_seed,
    runs_by_device,
    spread,
)
from emmclab.runtime.document import (
    Cells,
    Column,
    Number,
    TextTable,
    change_pct,
    figure_difference,
    heading_html,
    percent_text,
    signed,
    significant,
    table_html,
)
from emmclab.runtime.lists import Names
from emmclab.runtime.statistics import CONFIDENCE_TEXT, difference_interval
from emmclab.simulation.device import Device
from emmclab.simulation.layers import Setting, settings_of, stack, stacks
from emmclab.simulation.result import Result
from emmclab.simulation.result_fields import ResultField, result_field, shown_fields
from emmclab.simulation.result_text import NAME_OF_FIGURE, requested_percentiles
from emmclab.simulation.run_options import OptionsOfAnyLayers
from emmclab.traces.profile_options import percentile_label
from emmclab.traces.trace import Trace

_YEAR_S = 365.25 * 86_400
#: If a run has fewer reads (or writes) than this, a note states how many of them reach the 99th percentile.
_FEW = 1_000


class ComparedFigure(NamedTuple):
    """A row of the table that compares a recording with its simulation: its label, and the figure that it shows."""

    label: str
    field: ResultField
    group: str
    op: str

    @property
    def is_share(self) -> bool:
        """Whether the figure is a share, whose error is in percentage points."""
        return self.field.unit == "%"

    def text(self, value: float | None) -> str:
        """Format a value with its unit; a dash if it is not known."""
        return "–" if value is None else f"{self.field.text(value)} {self.field.unit}"

    def error_text(self, value: float | None) -> str:
        """Format the error of a simulated value: in percent, or in percentage points for a share."""
        return "–" if value is None else f"{signed(value)} {'points' if self.is_share else '%'}"

    def of(self, result: Result) -> tuple[float | None, float | None, float | None]:
        """Return the recorded and the simulated value, and the error."""
        values = result[f"recorded.{self.group}.{self.op}"]
        kind, error = ("pct", "error_points") if self.is_share else ("ms", "error_pct")
        return values[f"recorded_{kind}"], values[f"simulated_{kind}"], values[error]

    def error_of(self, simulated: float, recorded: float) -> float | None:
        """Return the error of a simulated value: in percent, or in percentage points for a share."""
        difference = figure_difference(recorded, simulated, is_share=self.is_share)
        return difference["difference_points" if self.is_share else "difference_pct"]


def _compared_figures() -> Iterator[ComparedFigure]:
    for group, path in (
        ("response", "response.mean_response_ms"),
        ("response_p99", "response.p99_ms"),
        ("service", "service.mean_service_ms"),
        ("no_wait", "requests.no_wait_pct"),
    ):
        field = result_field(path)
        for op, suffix in (("all", ""), ("read", " of reads"), ("write", " of writes")):
            yield ComparedFigure(f"{field.label}{suffix}", field, group, op)


#: Rows of the table that compares recorded with simulated figures.
COMPARED_FIGURES = tuple(_compared_figures())


class ComparedSpread(TypedDict):
    """A recorded figure; mean, lowest and highest simulated value over the seeds; and the error of the mean."""

    recorded: float | None
    mean: float | None
    low: float | None
    high: float | None
    error: float | None


def comparison_spread(results: Sequence[Result]) -> dict[str, dict[str, ComparedSpread]]:
    """Compare each recorded figure with the mean and range of the simulated one, by group and operation.

    `error` is the deviation of the simulated mean from the recorded figure: in percent for times, in percentage points
    for shares. It is None if nothing was recorded.
    """
    spreads: dict[str, dict[str, ComparedSpread]] = {}
    for row in COMPARED_FIGURES:
        values = [row.of(result) for result in results]
        recorded, _, first_error = values[0]
        over_seeds = spread([simulated for _, simulated, _ in values])
        error = None
        if over_seeds is not None and recorded is not None and first_error is not None:
            error = row.error_of(over_seeds.mean, recorded)
        mean, low, high = over_seeds or (None, None, None)
        spreads.setdefault(row.group, {})[row.op] = ComparedSpread(
            recorded=recorded, mean=mean, low=low, high=high, error=error
        )
    return spreads


def comparison_notes(results: Sequence[Result]) -> list[str]:
    """Return notes on the limits of a comparison of recorded with simulated times.

    `results` are runs of one trace on one device with different seeds.

    >>> import emmclab
    >>> comparison_notes([emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[1]))])[1]
    'p99 response of writes: 1 of 26 writes reach it'
    """
    first = results[0]
    notes = []
    for op in ("read", "write"):
        count = first.requests[op]
        if 0 < count < _FEW:
            reach = count - math.ceil(0.99 * count) + 1
            notes.append(f"p99 response of {op}s: {reach:,} of {count:,} {op}s reach it")
    return [text for text in (fitted_note(first), *notes) if text]


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

    def years_cell(self) -> Number:
        """Return the years until the flash is worn out at the rate of the runs, with the range over the seeds."""
        values = spread(list(map(_years, self.runs)))
        if values is None:
            return Number("–", None)
        note = "" if values.low == values.high else f"{significant(values.low)} to {significant(values.high)}"
        return Number(significant(values.mean), values.mean, note)

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


def _years(run: Result) -> float | None:
    """Return the years until the flash is worn out at the rate of a run; None if it has no times of its own."""
    life, written = run.measured("wear.lifetime.even_host_bytes"), run.requests.bytes_written
    if life is None or not written or run.run.mode == "back_to_back":
        return None
    return float(life / written * run.run.simulated_s / _YEAR_S)


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
    lives = [Column("Life", "years")] if any(_years(run) is not None for run in results) else []
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
            [
                device.name,
                device.cell(_TIME),
                _change(first, device, _TIME),
                *map(device.cell, _TIME_AND_DURABILITY),
                *(device.years_cell() for _ in lives),
            ]
        )
    name, change = Column(word.capitalize(), short=f"{word.capitalize()}\n"), Column("Change", "%")
    tails = [Column(f"{point} response", _P99.unit, point) for point in points] or [_P99.heading]
    caption = "Cache flushes: flushes and preflushes that found data in the write buffer"
    if all(run.run.mode == "open" for device in devices for run in device.runs):
        caption += ". In open loop the time is that of the trace; --mode back_to_back shows how long the devices need"
    if lives:
        caption += ". Life in years: at the rate of the run; `emmclab lifetime` estimates it with bounds"
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
            [name, _TIME.heading, change, *(field.heading for field in _TIME_AND_DURABILITY), *lives],
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


class ComparedRuns(list[Result]):
    """The results of `compare`; a notebook shows their comparison."""

    def _repr_html_(self) -> str:
        headings = [heading_html("", line) for line in (comparison_headlines(self) if self else ())]
        return "".join([*headings, *map(table_html, comparison_tables(self))])


def compare(
    traces: Sequence[Trace],
    devices: Sequence[Device],
    *,
    layers: Names = ("none",),
    layer_settings: Mapping[str, Setting] | None = None,
    **options: Unpack[OptionsOfAnyLayers],
) -> ComparedRuns:
    """Simulate every trace on every device under every stack of layers; results are ordered by trace, then device.

    Args:
        traces: the workloads.
        devices: the devices.
        layers: stacks, each as text: `none`, or names with `+` between them, the first on top; or one text with commas
            between stacks.
        layer_settings: settings of layers; a stack gets those of its layers.
        options: those of `Device.simulate`.

    Raises:
        ConfigError: a stack or option is impossible, or a setting belongs to no layer of any stack.

    >>> import emmclab
    >>> trace = emmclab.read(emmclab.bundled()[0])
    >>> devices = [Device.preset(name) for name in ("iiswc15-4ps", "iiswc15-hps")]
    >>> [result.device for result in compare([trace], devices)]
    ['iiswc15-4ps', 'iiswc15-hps']
    >>> [result.run_name for result in compare([trace], devices[:1], layers=["none", "pass-through"])]
    ['iiswc15-4ps', 'iiswc15-4ps under pass-through']
    """
    chosen, settings = stacks(layers), dict(layer_settings or {})
    # Validate all layer names and settings before the first run.
    stack([name for names in chosen for name in names], settings)
    return ComparedRuns(
        device.simulate(trace, layers=names, layer_settings=settings_of(names, settings), **options)
        for trace in traces
        for device in devices
        for names in chosen
    )
