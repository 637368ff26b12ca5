"""Figures that people measured on real devices, and the same figures of simulated devices.

A figure is one number of one benchmark, for example the IOPS of random reads of 4 KB at a queue depth of 16.
`read_figures` reads tables of figures, `measured_devices` returns the table that comes with emmclab, and
`compare_figures` runs the job that each figure describes on a simulated device. A figure whose source does not state
the size, the pattern, the number of jobs or the queue depth is listed with this reason and not compared, because each
of them can change the result several times over.
"""

import csv
import functools
import math
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from emmclab import _core
from emmclab.core_types import FioOperationResult
from emmclab.errors import FormatError
from emmclab.simulation.device import Device
from emmclab.simulation.fio_figures import fio_operations
from emmclab.traces.reading import read

#: State of the write buffer in which a device is preconditioned for a job: all data written, and the buffer empty.
BUFFER_EMPTY = ""
#: State of the write buffer after more data than it holds was written without a pause.
BUFFER_USED_UP = "used up"
#: Data written before a job on a device whose buffer is used up, bytes: more than any write buffer of a phone.
_FILLED_BYTES = 16 << 30
#: Bytes of the file that a job reads and writes, and how long it does so.
_FILE_BYTES = 1 << 30
_RUNTIME_S = 10


class FigureJob(NamedTuple):
    """The job of fio that a figure describes."""

    #: Pattern in the words of fio: `read`, `write`, `randread` or `randwrite`.
    rw: str
    #: Size of each request, bytes.
    block_bytes: int
    #: Number of processes or threads that issue requests at the same time.
    jobs: int
    #: Number of requests that each of them keeps unfinished.
    depth: int
    #: State of the write buffer: BUFFER_EMPTY or BUFFER_USED_UP.
    buffer: str = BUFFER_EMPTY
    #: Host that issues the requests, as the option `fio_host`.
    host: str = "phone-2020"

    def __str__(self) -> str:
        """Return pattern, size and depth, as in `randread 4 KB, 4 x 16`."""
        depth = f"{self.jobs} x {self.depth}" if self.jobs > 1 else f"depth {self.depth}"
        state = f", write buffer {self.buffer}" if self.buffer else ""
        return f"{self.rw} {self.block_bytes / 1024:g} KB, {depth}{state}"

    def text(self, capacity_bytes: int) -> str:
        """Return the job file for a device of this capacity."""
        size = min(_FILE_BYTES, capacity_bytes // 4 // self.block_bytes * self.block_bytes)
        fill = min(_FILLED_BYTES, capacity_bytes // 2) >> 20
        filling = f"[fill]\nrw=write\nbs=512k\niodepth=32\noffset={size}\nsize={fill}m\n" if self.buffer else ""
        return (
            f"[global]\nioengine=libaio\ndirect=1\npercentile_list=50:99:99.9\n{filling}"
            f"[measured]\nstonewall\nrw={self.rw}\nbs={self.block_bytes}\niodepth={self.depth}\nnumjobs={self.jobs}\ngroup_reporting\n"
            f"size={size}\nio_size={max(size // self.jobs, self.block_bytes)}\nruntime={_RUNTIME_S}\n"
        )


@dataclass(frozen=True)
class MeasuredFigure:
    """A figure that was measured on a real device."""

    device: str
    #: Name of the storage part or its class, as far as the source states it.
    part: str
    #: Preset that claims to be this device or its class; empty if there is none.
    preset: str
    #: Whether the preset was fitted to this figure, so that an agreement proves nothing.
    fitted: bool
    #: None if the source does not state the whole job.
    job: FigureJob | None
    #: Name of the figure: a key of METRICS.
    metric: str
    value: float
    condition: str
    source: str
    #: Why the figure cannot be compared; empty if it can.
    refused: str = ""


class FigureMetric(NamedTuple):
    """A metric of fio: its label, its unit, and its value in the figures of a simulated job."""

    label: str
    unit: str
    of: Callable[[FioOperationResult], float | None]
    #: Whether it is a percentile from the 99th on, which is judged within a factor of two.
    is_tail: bool = False


def _percentile(point: float) -> Callable[[FioOperationResult], float | None]:
    return lambda figures: next((row.clat_us for row in figures.percentiles if row.percentile == point), None)


#: The metrics that can be compared, by the name of their column in a table.
METRICS = {
    "iops": FigureMetric("IOPS", "1/s", lambda figures: figures.iops),
    "mb_per_s": FigureMetric("bandwidth", "10^6 B/s", lambda figures: figures.mb_per_s * 1.048576),
    "slat_us_mean": FigureMetric("mean slat", "us", lambda figures: figures.slat.mean_us if figures.slat else None),
    "clat_us_mean": FigureMetric("mean clat", "us", lambda figures: figures.clat.mean_us),
    "clat_us_p50": FigureMetric("median clat", "us", _percentile(50)),
    "clat_us_p99": FigureMetric("p99 clat", "us", _percentile(99), is_tail=True),
    "clat_us_p99_9": FigureMetric("p99.9 clat", "us", _percentile(99.9), is_tail=True),
}
#: Other names of the metrics, with the factor to their unit by the unit that a table states.
_METRIC_NAMES = {"iops_avg": "iops", "bw": "mb_per_s", "clat_p50": "clat_us_p50", "clat_p99": "clat_us_p99"} | {
    "clat_p99_9": "clat_us_p99_9", "clat_mean": "clat_us_mean", "slat_mean": "slat_us_mean", "mb_s": "mb_per_s"
}  # fmt: skip
_UNITS = {
    **{("1/s", unit): 1.0 for unit in ("iops", "1/s")},
    **{("10^6 B/s", unit): factor for unit, factor in (("mb/s", 1.0), ("mib/s", 1.048576), ("kib/s", 0.001024))},
    **{("10^6 B/s", unit): factor for unit, factor in (("gb/s", 1e3), ("gib/s", 1073.741824), ("kb/s", 1e-3))},
    **{("us", unit): factor for unit, factor in (("us", 1.0), ("usec", 1.0), ("ms", 1e3), ("msec", 1e3), ("ns", 1e-3))},
}
#: Names of the columns that describe a job, by the names that tables use.
_COLUMNS = {
    **dict.fromkeys(("bs_kb", "block_kb", "size_kb", "kb"), "block_kb"),
    **dict.fromkeys(("jobs", "threads", "numjobs"), "jobs"),
    **dict.fromkeys(("depth", "iodepth", "queue_depth"), "depth"),
    **dict.fromkeys(("device", "card"), "device"),
}
_TEXTS = (
    "device",
    "part",
    "interface",
    "preset",
    "fitted",
    "rw",
    "op",
    "pattern",
    "buffer",
    "host",
    "condition",
    "source",
)


def read_figures(path: str | PathLike[str], assume: Mapping[str, str] | None = None) -> list[MeasuredFigure]:
    """Read a table of figures: CSV with a header, one figure or one job per line.

    Columns: `rw` (or `op` and `pattern`), `bs_kb` (KB of 1,024 bytes), `jobs`, `depth`, and either one column for each
    metric (the keys of METRICS) or `metric`, `value` and `unit`; optional `device`, `part`, `preset`, `fitted`,
    `buffer` (`used up`), `host`, `condition` and `source`. Text in another column becomes a part of the condition. `?`
    and an empty field mean that the source does not state a value. `assume` states values for columns that the table
    does not have, such as {"depth": "1"}.

    Errors: FormatError for a table without these columns and for a value that is not a number, with its line.
    """
    try:
        text = Path(path).read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: byte {error.start} is not UTF-8 text", hint="give a CSV table of figures") from None
    return list(figures_in_table(str(path), text, assume or {}))


@functools.cache
def measured_devices() -> Sequence[MeasuredFigure]:
    """Return the figures of real devices that come with emmclab (`presets/published/measured_devices.csv`)."""
    return list(figures_in_table("measured_devices.csv", _core.published_csv()["measured_devices"], {}))


def figures_in_table(name: str, text: str, assume: Mapping[str, str]) -> Iterator[MeasuredFigure]:
    """Yield the figures of the text of a table (`read_figures`)."""
    lines = csv.DictReader(text.splitlines(), strict=True)
    try:
        columns = {column: column.strip().casefold() for column in lines.fieldnames or ()}
    except csv.Error as error:
        raise FormatError(f"{name}: line 1: {error}", hint="give a CSV table of figures") from None
    known = {_COLUMNS.get(column, column) for column in columns.values()}
    if not known & {*METRICS, *_METRIC_NAMES, "metric"} or not known & {"rw", "op", "pattern"}:
        raise FormatError(
            f"{name}: line 1: the table has no column `rw`, or none with a metric",
            hint=f"columns are: rw, bs_kb, jobs, depth, and {', '.join(METRICS)}; or metric, value and unit",
        )
    before: dict[str, str] = {}
    try:
        for line in lines:
            where = f"{name}: line {lines.line_num}"
            if None in line or None in line.values():
                raise FormatError(f"{where}: the number of fields is not that of the header", hint="correct the line")
            stated = {_COLUMNS.get(columns[column], columns[column]): value.strip() for column, value in line.items()}
            row = {key: value for key, value in stated.items() if not value.endswith("?")}
            row = {key: before.get(key, "") if value in ("same", "see above") else value for key, value in row.items()}
            before = row
            yield from figures_of_row(where, {**assume, **{key: value for key, value in row.items() if value}})
    except csv.Error as error:
        raise FormatError(f"{name}: line {lines.line_num}: {error}", hint="correct the line") from None


def figures_of_row(where: str, row: Mapping[str, str]) -> Iterator[MeasuredFigure]:
    """Yield the figures of a row, which holds only what its source states, or why it is `refused`.

    A refused row without figures is yielded as one with 0 IOPS.
    """
    job, missing = _job(where, row)
    refused = row.get("refused") or missing
    known = {*_TEXTS, *METRICS, *_METRIC_NAMES, "block_kb", "jobs", "depth", "metric", "value", "unit", "refused"}
    other = [f"{key} {value}" for key, value in row.items() if key not in known and not _is_number(value)]
    condition = ", ".join([*([row["condition"]] if "condition" in row else []), *other])
    named = {key: row.get(key, "") for key in ("part", "preset", "source")} | {"device": row.get("device", "device")}
    fitted = row.get("fitted") == "yes"
    figure = MeasuredFigure(**named, fitted=fitted, job=job, metric="", value=0.0, condition=condition, refused=refused)
    if "metric" in row:
        label, unit = row["metric"], row.get("unit", "")
        metric = _METRIC_NAMES.get(label, label)
        factor = _UNITS.get((METRICS[metric].unit, unit.casefold())) if metric in METRICS else 1.0
        if "value" not in row:
            raise FormatError(f"{where}: the figure has no value", hint="give it in the column `value`")
        value = _number(where, "value", row["value"])
        if metric not in METRICS:
            figure = replace(figure, refused=f"`{label}` is not a metric of a benchmark")
        elif factor is None:
            figure = replace(figure, refused=f"its unit `{unit}` is not one of {METRICS[metric].label}")
        yield replace(figure, metric=metric, value=value * (factor or 1.0))
        return
    metrics = {key: _METRIC_NAMES.get(key, key) for key in row if _METRIC_NAMES.get(key, key) in METRICS}
    for key, metric in metrics.items():
        yield replace(figure, metric=metric, value=_number(where, key, row[key]))
    if not metrics and "refused" in row:
        yield replace(figure, metric="iops")


def _job(where: str, row: Mapping[str, str]) -> tuple[FigureJob | None, str]:
    """Return the job of a line; if its source does not state all of it, None and what is missing."""
    rw = row.get("rw") or _pattern(row.get("op", ""), row.get("pattern", ""))
    missing = [name for name, given in (("pattern", rw), ("request size", row.get("block_kb"))) if not given]
    missing += [name for key, name in (("jobs", "number of jobs"), ("depth", "queue depth")) if key not in row]
    if missing:
        return None, f"its source does not state: {', '.join(missing)}"
    if rw not in ("read", "write", "randread", "randwrite"):
        return None, f"`{rw}` is not one of the patterns read, write, randread, randwrite"
    block_bytes = round(_number(where, "bs_kb", row["block_kb"]) * 1024)
    if block_bytes % 512:
        return None, f"requests of {block_bytes} bytes are not whole sectors"
    counts = [_number(where, key, row[key]) for key in ("jobs", "depth")]
    if not all(count == int(count) and 1 <= count <= 65_536 for count in counts):
        raise FormatError(
            f"{where}: jobs {row['jobs']}, depth {row['depth']}: not whole numbers from 1 on", hint="correct the line"
        )
    buffer = row.get("buffer", BUFFER_EMPTY)
    if buffer not in (BUFFER_EMPTY, BUFFER_USED_UP):
        raise FormatError(f"{where}: buffer `{buffer}`", hint=f"leave it empty, or write `{BUFFER_USED_UP}`")
    jobs, depth = map(int, counts)
    return FigureJob(rw, block_bytes, jobs, depth, buffer, *([row["host"]] if "host" in row else [])), ""


def _pattern(op: str, pattern: str) -> str:
    """Return the pattern in the words of fio; empty if it is not stated."""
    if not op:
        return pattern
    words = {"sequential": op, "sync": op, "random": f"rand{op}"}
    return words.get(pattern, f"{op} {pattern}") if pattern else ""


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text))


def _number(where: str, column: str, text: str) -> float:
    value = float(text) if _is_number(text) else math.nan
    if not (math.isfinite(value) and value > 0):
        raise FormatError(
            f"{where}: {column} `{text}` is not a number above 0", hint="correct the value; `?` if it is not stated"
        )
    return value


@dataclass(frozen=True)
class FigureComparison:
    """A measured figure, and the same figure of a simulated device."""

    figure: MeasuredFigure
    #: Name of the simulated device; empty if there is none.
    simulated_device: str
    #: None if the figure was not simulated, for the reason in `reason`.
    simulated: float | None
    reason: str = ""

    @property
    def error_pct(self) -> float | None:
        """Deviation of the simulated figure from the measured one in percent."""
        return None if self.simulated is None else 100 * (self.simulated / self.figure.value - 1)

    @property
    def is_test(self) -> bool:
        """Whether the comparison tests the device: the figure was simulated, and the preset was not fitted to it."""
        return self.simulated is not None and not self.figure.fitted

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON values: the fields of the figure and its job in one level."""
        fields = asdict(self.figure)
        del fields["job"]
        fields |= dict.fromkeys(FigureJob._fields) if self.figure.job is None else self.figure.job._asdict()
        unit = METRICS[self.figure.metric].unit if self.figure.metric in METRICS else None
        return fields | {"unit": unit, "simulated_device": self.simulated_device, "simulated": self.simulated} | {
            "error_pct": self.error_pct, "reason": self.reason or None
        }  # fmt: skip


def compare_figures(
    figures: Iterable[MeasuredFigure],
    device_of: Callable[[str], Device | None] = lambda preset: Device.preset(preset) if preset else None,
    *,
    images: str | PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[FigureComparison]:
    """Run the job of each figure on the device of its preset, and return the comparisons in the order of the figures.

    `device_of` returns the device for the name of a preset, or None. Figures of the same job and device share one run.
    `images` is a folder for preconditioned devices (default: a temporary one). `progress` receives the number of
    finished and of all runs.
    """
    figures = list(figures)
    devices = {figure.preset: device_of(figure.preset) for figure in figures}
    runs = {
        (figure.preset, figure.job): None
        for figure in figures
        if figure.job and not figure.refused and devices[figure.preset]
    }
    simulated: dict[tuple[str, FigureJob], FioOperationResult | None] = {}
    with tempfile.TemporaryDirectory() as folder:
        for preset, job in runs:
            if progress is not None:
                progress(len(simulated), len(runs))
            device = devices[preset]
            if device is not None and job is not None:
                simulated[preset, job] = simulate_job(device, job, images or folder)
    return [_compared(figure, devices[figure.preset], simulated) for figure in figures]


def _compared(
    figure: MeasuredFigure, device: Device | None, simulated: Mapping[tuple[str, FigureJob], FioOperationResult | None]
) -> FigureComparison:
    if figure.refused or figure.job is None:
        return FigureComparison(figure, "", None, figure.refused)
    if device is None:
        return FigureComparison(figure, "", None, "no preset claims to be this device")
    found = simulated[figure.preset, figure.job]
    value = METRICS[figure.metric].of(found) if found else None
    return FigureComparison(figure, device.name, value, "" if value else "the job had no such requests")


def simulate_job(device: Device, job: FigureJob, images: str | PathLike[str]) -> FioOperationResult | None:
    """Run a job on a device half of which is written, and return its figures; None if it had no requests.

    `images` is a folder for preconditioned devices.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "figure.fio")
        path.write_text(job.text(device.capacity_bytes), "utf-8")
        result = device.simulate(
            read(path), precondition="sequential:50", images=images, fio_host=job.host, provenance=False
        )
    return next((figures for found, _, figures in fio_operations(result) if found.name == "measured"), None)


@dataclass(frozen=True)
class FigureSummary:
    """How far simulated devices are from measured figures to which they were not fitted."""

    #: Number of devices and of figures that test a preset.
    devices: int
    figures: int
    #: Half and nine of ten of the figures (without percentiles from the 99th on) deviate at most by this, in percent;
    #: None without figures.
    half_within_pct: float | None
    nine_of_ten_within_pct: float | None
    #: Number of percentiles from the 99th on, and how many are within a factor of two.
    tails: int
    tails_within_factor_2: int
    #: Number of figures to which presets were fitted, and of those that could not be compared.
    fitted: int
    not_compared: int

    @staticmethod
    def of(comparisons: Sequence[FigureComparison]) -> "FigureSummary":
        """Summarise comparisons."""
        tests = [row for row in comparisons if row.is_test]
        tails = [row for row in tests if METRICS[row.figure.metric].is_tail]
        errors = sorted(abs(row.error_pct or 0.0) for row in tests if not METRICS[row.figure.metric].is_tail)
        within = [errors[math.ceil(part * len(errors)) - 1] if errors else None for part in (0.5, 0.9)]
        factor_2 = sum(0.5 <= (row.simulated or 0.0) / row.figure.value <= 2 for row in tails)
        return FigureSummary(
            len({row.figure.device for row in tests}), len(tests), within[0], within[1], len(tails), factor_2,
            sum(row.figure.fitted and row.simulated is not None for row in comparisons),
            sum(row.simulated is None for row in comparisons),
        )  # fmt: skip

    def __str__(self) -> str:
        """Return the summary as a sentence."""
        if not self.figures:
            return f"no figure tests a preset; {self.fitted} were fitted, {self.not_compared} cannot be compared"
        tails = (
            f"; {self.tails_within_factor_2} of {self.tails} percentiles from p99 on within a factor of two"
            if self.tails
            else ""
        )
        if self.half_within_pct is None:
            return f"{self.devices} devices, {self.figures} measured figures{tails}"
        return (
            f"{self.devices} devices, {self.figures} measured figures to which no preset was fitted: half of them "
            f"within {self.half_within_pct:.0f} %, nine of ten within {self.nine_of_ten_within_pct:.0f} %{tails}"
        )
