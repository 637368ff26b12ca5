"""Rows that compare recorded with simulated figures, of one run or of runs that differ only by their seed."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypedDict

from emmclab.calibration.fit_sources import fitted_note
from emmclab.comparison.seed_statistics import spread
from emmclab.runtime.number_format import figure_difference, signed
from emmclab.simulation.result import Result
from emmclab.simulation.result_fields import ResultField, result_field

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
