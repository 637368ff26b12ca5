"""Measured figures of real devices beside those of simulated ones: tables for the terminal and for pages."""

import math
from collections.abc import Callable, Iterator, Sequence

from emmclab.calibration.measured_figures import METRICS, FigureComparison, FigureSummary
from emmclab.runtime.document import Cells, Column, Number, TextTable, number_cell, percent_text, significant

#: Maximum number of rows in the table of the largest deviations.
_WORST = 25
_FITTED = "restated"


def figure_tables(comparisons: Sequence[FigureComparison], *, repeats_job: bool = False) -> Iterator[TextTable]:
    """Yield a table of the simulated figures for each device, condition and source; figures of a job are together.

    Only the first figure of a job names it, unless `repeats_job` is set.
    """
    compared = [row for row in comparisons if row.simulated is not None]
    for title, rows in _grouped(compared, _title):
        jobs = _grouped(rows, lambda row: f"{row.figure.job}")
        cells = [_cells(row, repeats_job or number == 0) for _, of_job in jobs for number, row in enumerate(of_job)]
        yield TextTable(title, ["Job", *_COLUMNS, Column("Fitted", is_text=True)], cells, 3)


_COLUMNS = ("Figure", "Unit", "Measured", "Simulated", Column("Error", "%"))


def _cells(row: FigureComparison, names_job: bool) -> Cells:
    return [str(row.figure.job) if names_job else "", *_values(row), _FITTED if row.figure.fitted else ""]


def _values(row: FigureComparison) -> Cells:
    metric = METRICS[row.figure.metric]
    values = (Number(significant(value or 0.0, 4), value) for value in (row.figure.value, row.simulated))
    return [metric.label, metric.unit, *values, Number(percent_text(row.error_pct), row.error_pct)]


def _title(row: FigureComparison) -> str:
    figure = row.figure
    parts = [f"{figure.device}{f' ({figure.part})' if figure.part else ''} and {row.simulated_device}"]
    return "; ".join([*parts, *filter(None, [figure.condition, figure.source])])


def _grouped(
    rows: Sequence[FigureComparison], key: Callable[[FigureComparison], str]
) -> list[tuple[str, list[FigureComparison]]]:
    """Return the rows of each key, in the order of the first row of each."""
    groups: dict[str, list[FigureComparison]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.items())


#: Ways to group figures, by the title of the first column of a table.
GROUPINGS: dict[str, Callable[[FigureComparison], str]] = {
    "Device": lambda row: row.figure.device,
    "Request size": lambda row: f"{row.figure.job.block_bytes / 1024:g} KB" if row.figure.job else "",
    "Unfinished requests": lambda row: str(row.figure.job.jobs * row.figure.job.depth) if row.figure.job else "",
    "Pattern": lambda row: row.figure.job.rw if row.figure.job else "",
    "Figure": lambda row: METRICS[row.figure.metric].label if row.figure.metric in METRICS else row.figure.metric,
}


def in_order(comparisons: Sequence[FigureComparison], grouping: str) -> list[tuple[str, list[FigureComparison]]]:
    """Return the tested figures by group: sizes and depths in ascending order, metrics as in METRICS."""
    tests = [row for row in comparisons if row.is_test]
    orders: dict[str, Callable[[FigureComparison], float]] = {
        "Request size": lambda row: row.figure.job.block_bytes if row.figure.job else 0,
        "Unfinished requests": lambda row: row.figure.job.jobs * row.figure.job.depth if row.figure.job else 0,
        "Figure": lambda row: [*METRICS].index(row.figure.metric),
    }
    if grouping in orders:
        tests.sort(key=orders[grouping])
    return _grouped(tests, GROUPINGS[grouping])


def _deviations(summary: FigureSummary) -> tuple[float | None, float | None]:
    """Return the deviations of rates and latencies of the device; of a group without any, those of the host."""
    if summary.rates:
        return summary.half_within_pct, summary.nine_of_ten_within_pct
    return summary.host_half_within_pct, summary.host_nine_of_ten_within_pct


def summary_table(comparisons: Sequence[FigureComparison], grouping: str) -> TextTable:
    """Return the deviations of the tested figures by group."""
    rows: list[Cells] = []
    for name, group in in_order(comparisons, grouping):
        summary = FigureSummary.of(group)
        devices = ", ".join(dict.fromkeys(row.simulated_device for row in group))
        rows.append(
            [
                name,
                *([devices] if grouping == "Device" else []),
                number_cell(summary.figures),
                *(number_cell(value, 1) for value in _deviations(summary)),
                Number(f"{summary.tails_within_factor_2} of {summary.tails}" if summary.tails else "–", summary.tails),
            ]
        )
    headings: list[str | Column] = [
        grouping,
        *(["Simulated as"] if grouping == "Device" else []),
        "Figures",
        Column("Half within", "%"),
        Column("Nine of ten within", "%"),
        Column("p99, p99.9", about="percentiles from the 99th on that are within a factor of two"),
    ]
    if grouping != "Device":
        return TextTable(f"By {grouping.lower()}", headings, rows)
    caption = (
        "Percentiles p99 and p99.9 are counted apart: how many are within a factor of two. Submission latencies are "
        "time of the host, which no setting of the device changes; they are in the number of figures only."
    )
    return TextTable("By device", headings, rows, 2, caption=caption)


def worst_table(comparisons: Sequence[FigureComparison]) -> TextTable:
    """Return the largest deviation of each device and metric; half and twice the measured figure are equally far."""
    tests = [row for row in comparisons if row.is_test]
    tests.sort(key=lambda row: -abs(math.log(row.ratio)) if row.ratio else -math.inf)
    worst = [rows[0] for _, rows in _grouped(tests, lambda row: f"{row.figure.device}\n{row.figure.metric}")]
    rows: list[Cells] = [
        [row.figure.device, str(row.figure.job), *_values(row), row.figure.known_reason] for row in worst[:_WORST]
    ]
    headings: list[str | Column] = ["Device", "Job", *_COLUMNS, Column("Known reason", is_text=True)]
    return TextTable("The worst job of each device and figure", headings, rows, 4, "folds")


def not_compared_table(comparisons: Sequence[FigureComparison]) -> TextTable | None:
    """Return the number of figures that cannot be compared, by device and reason; None if there are none."""
    left_out = [row for row in comparisons if row.simulated is None]
    rows: list[Cells] = []
    for _, group in _grouped(left_out, lambda row: f"{row.figure.device}\n{row.reason}"):
        names = ", ".join(name for name, _ in _grouped(group, GROUPINGS["Figure"]))
        rows.append([group[0].figure.device, names, group[0].reason, number_cell(len(group))])
    headings = ["Device", "Figures", "Reason", "Number"]
    return TextTable(f"Not compared ({len(left_out)})", headings, rows, 3) if rows else None
