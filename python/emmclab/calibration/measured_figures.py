"""Figures that people measured on real devices, and the same figures of simulated devices.

A figure is one number of one benchmark, for example the IOPS of random reads of 4 KB at a queue depth of 16.
`read_figures` reads tables of figures, `measured_devices` returns the table that comes with emmclab, and
`compare_figures` runs the job that each figure describes on a simulated device. A figure whose source does not state
the size, the pattern, the number of jobs or the queue depth is listed with this reason and not compared, because each
of them can change the result several times over.
"""

import csv
import functools
import io
import math
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from emmclab import _core
from emmclab.core_types import FioOperationResult
from emmclab.errors import ConfigError, EmmclabError, FormatError, UnsupportedError
from emmclab.runtime.files import read_text
from emmclab.runtime.threads import threads
from emmclab.simulation.device import Device, setup_of
from emmclab.simulation.fio_figures import fio_operations
from emmclab.traces.reading import read

#: State of the write buffer in which a device is preconditioned for a job: all data written, and the buffer empty.
BUFFER_EMPTY = ""
#: State of the write buffer after more data than it holds was written without a pause.
BUFFER_USED_UP = "used up"
#: Data written before a job on a device whose buffer is used up, bytes: more than the write buffers of phones of 128
#: GB, which have 2 to 6 GB.
_FILLED_BYTES = 8 << 30
#: Maximum size of the region that a copy of a job accesses, and maximum duration of a job.
FILE_BYTES = 1 << 30
_RUNTIME_S = 10
_JOB_FILE = "figure.fio"
#: Part of the device that is written before a job.
_PRECONDITION = "sequential:50"
#: Maximum number of jobs that a job file may have, and of unfinished requests of all of them.
_MOST_JOBS, _MOST_UNFINISHED = 4_096, 65_536
_RW = ("read", "write", "randread", "randwrite")


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

    def text(self, capacity_bytes: int, io_bytes: int = FILE_BYTES) -> str:
        """Return the job file for a device of this capacity; all copies together read or write at most `io_bytes`.

        Each copy of the job accesses its own region; together they are at most the first quarter of the device.

        Raises:
            UnsupportedError: the regions have no space for a request.
        """
        size = min(io_bytes, capacity_bytes // 4 // self.jobs) // self.block_bytes * self.block_bytes
        if not size:
            raise UnsupportedError("a request of each job is larger than 1 GB, or than a quarter of the device")
        fill_mb = min(_FILLED_BYTES, capacity_bytes // 2) >> 20
        fill = f"[fill]\nrw=write\nbs=512k\niodepth=32\noffset={self.jobs * size}\nsize={fill_mb}m\n"
        load = f"rw={self.rw}\nbs={self.block_bytes}\niodepth={self.depth}\nnumjobs={self.jobs}\ngroup_reporting\n"
        return (
            f"[global]\nioengine=libaio\ndirect=1\nfilename=/dev/device\npercentile_list=50:99:99.9\n"
            f"{fill if self.buffer else ''}[measured]\nstonewall\n{load}size={size}\noffset_increment={size}\n"
            f"io_size={max(size // self.jobs, self.block_bytes)}\nruntime={_RUNTIME_S}\n"
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
    #: Name of the figure: a key of METRICS, or the name in the table if that is not a metric of a benchmark.
    metric: str
    #: Value in the unit of the metric; None if the source states no number.
    value: float | None
    condition: str
    source: str
    #: Why the figure cannot be compared; empty if it can.
    refused: str = ""
    #: Known reason for a deviation of the simulated device; empty if there is none.
    known_reason: str = ""

    def on_host(self, host: str | None) -> "MeasuredFigure":
        """Return the figure with another host that issues the requests (an option `fio_host`); None keeps its own."""
        return self if host is None or self.job is None else replace(self, job=self.job._replace(host=host))


class FigureMetric(NamedTuple):
    """A metric of fio: its label, its unit, and its value in the figures of a simulated job."""

    label: str
    unit: str
    of: Callable[[FioOperationResult], float | None]
    #: Whether it is a percentile from the 99th on, which is judged within a factor of two.
    is_tail: bool = False
    #: Whether it is time of the host: `slat` ends when the host has submitted the request, and contains its waits.
    is_of_host: bool = False


def _percentile(point: float) -> Callable[[FioOperationResult], float | None]:
    return lambda figures: next((row.clat_us for row in figures.percentiles if row.percentile == point), None)


#: The metrics that can be compared, by the name of their column in a table.
METRICS = {
    "iops": FigureMetric("IOPS", "1/s", lambda figures: figures.iops),
    "mb_per_s": FigureMetric("bandwidth", "10^6 B/s", lambda figures: figures.mb_per_s * 1.048576),
    "slat_us_mean": FigureMetric(
        "mean slat", "us", lambda figures: (figures.slat and figures.slat.mean_us) or None, is_of_host=True
    ),
    "clat_us_mean": FigureMetric("mean clat", "us", lambda figures: figures.clat.mean_us),
    "clat_us_p50": FigureMetric("median clat", "us", _percentile(50)),
    "clat_us_p99": FigureMetric("p99 clat", "us", _percentile(99), is_tail=True),
    "clat_us_p99_9": FigureMetric("p99.9 clat", "us", _percentile(99.9), is_tail=True),
}
#: Other names of the metrics, and those among them that contain no unit, so that a table has to state it.
_METRIC_NAMES = {
    **{"iops_avg": "iops", "iops_mean": "iops", "mb_s": "mb_per_s", "bw": "mb_per_s", "slat_mean": "slat_us_mean"},
    **{f"clat_{point}": f"clat_us_{point}" for point in ("mean", "p50", "p99", "p99_9")},
}
_WITHOUT_UNIT = {*_METRIC_NAMES} - {"iops_avg", "iops_mean", "mb_s"}
#: The units in which tables state a metric, by the unit of the metric; each with the factor to that unit.
_UNITS = {
    "1/s": {"iops": 1.0, "1/s": 1.0},
    "10^6 B/s": {
        **{"kb/s": 1e-3, "mb/s": 1.0, "gb/s": 1e3, "10^6 b/s": 1.0},
        **{"kib/s": 0.001024, "mib/s": 1.048576, "gib/s": 1073.741824},
    },
    "us": {"us": 1.0, "usec": 1.0, "ms": 1e3, "msec": 1e3, "ns": 1e-3, "nsec": 1e-3, "s": 1e6},
}
#: Names of the columns that describe a job, by the other names that tables use.
_COLUMN_NAMES = {
    **dict.fromkeys(("bs_kb", "size_kb", "kb"), "block_kb"),
    **dict.fromkeys(("threads", "numjobs"), "jobs"),
    **dict.fromkeys(("iodepth", "queue_depth"), "depth"),
    **{"card": "device", "reason": "known_reason"},
}
#: Columns that describe the job or the device; what `assume` may state.
_DESCRIBING = (
    *("device", "part", "preset", "fitted", "rw", "op", "pattern", "block_kb", "jobs", "depth", "buffer", "host"),
    *("unit", "condition", "source", "known_reason"),
)
#: Columns in which a question mark at the end is a part of a text.
_TEXTS = ("condition", "source", "known_reason")


def read_figures(path: str | PathLike[str], assume: Mapping[str, str] | None = None) -> list[MeasuredFigure]:
    """Read a table of figures: CSV with a header, one figure or one job per line.

    Columns: `rw` (or `op` and `pattern`), `bs_kb` (KB of 1,024 bytes), `jobs`, `depth`, and either one column for each
    metric (the keys of METRICS) or `metric`, `value` and `unit`; optional `device`, `part`, `preset`, `fitted` (`yes`),
    `buffer` (`used up`), `host`, `condition`, `source` and `known_reason` (for a deviation).
    Text in another column becomes a part of the condition. An empty field and a value that ends with `?` mean that
    the source does not state a value, `same` repeats the line above. Lines that begin with `#` are comments. `assume`
    states values for what a line does not state, such as {"depth": "1"}.

    Raises:
        FormatError: the table has no such columns, or a value is impossible; the message names its line.
        ConfigError: `assume` has an unknown column or an impossible value.
        InputError: the file cannot be read.
    """
    text = read_text(Path(path), "give a CSV table of figures").removeprefix("\ufeff")
    return list(figures_in_table(str(path), text, assumed(assume or {})))


@functools.cache
def measured_devices() -> Sequence[MeasuredFigure]:
    """Return the figures of real devices that come with emmclab (`presets/published/measured_devices.csv`)."""
    return tuple(figures_in_table("measured_devices.csv", _core.published_csv()["measured_devices"], {}))


def assumed(assume: Mapping[str, str]) -> dict[str, str]:
    """Return the values that a user states, by column.

    Raises:
        ConfigError: a column is unknown, or a value impossible.
    """
    named = {_COLUMN_NAMES.get(key.strip().casefold(), key.strip().casefold()): text for key, text in assume.items()}
    for key, text in named.items():
        if key not in _DESCRIBING:
            hint = f"name one of: {', '.join(_DESCRIBING)}"
            raise ConfigError(f"`{key}` is not a column that describes a job", field="assume", hint=hint)
        try:
            _job("assume", {key: text, **{other: "1" for other in ("jobs", "depth", "block_kb") if other != key}})
        except FormatError as error:
            raise ConfigError(str(error), field="assume", hint=error.hint) from None
    return named


def _error(where: str, problem: str, hint: str, field: str | None = None) -> FormatError:
    """Return the error of a value at a place such as `figures.csv: line 3`."""
    file, _, line = where.rpartition(": line ")
    return FormatError(
        f"{where}: {problem}", file=file or None, line=int(line) if line.isdigit() else None, field=field, hint=hint
    )


def figures_in_table(name: str, text: str, assume: Mapping[str, str]) -> Iterator[MeasuredFigure]:
    """Yield the figures of the text of a table (`read_figures`); `assume` is that of `assumed`."""
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    columns: list[str] = []
    before: dict[str, str] = {}
    try:
        for fields in lines:
            where = f"{name}: line {lines.line_num}"
            if not fields or fields[0].startswith("#"):
                continue
            if not columns:
                columns = _columns(where, fields)
                assume = {"device": Path(name).stem, **assume}
                continue
            if len(fields) != len(columns):
                problem = f"{len(fields)} fields, but the header has {len(columns)}"
                raise _error(where, problem, "give each line as many fields as the header")
            before = dict(_stated(zip(columns, fields, strict=True), before))
            yield from figures_of_row(where, {**assume, **before})
    except csv.Error as error:
        raise _error(f"{name}: line {lines.line_num}", str(error), "give a CSV table of figures") from None
    if not columns:
        raise FormatError(f"{name}: the table is empty", file=name, hint="give a CSV table of figures")


def _stated(cells: Iterable[tuple[str, str]], before: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the columns of a line that state a value; `before` is the line above it."""
    for column, field in cells:
        text = field.strip()
        if text in ("same", "see above"):
            text = before.get(column, "")
        if text and text != "?" and not (text.endswith("?") and column not in _TEXTS):
            yield column, text


def _columns(where: str, header: Sequence[str]) -> list[str]:
    """Return the names of the columns of a table; refuse one without a job or without figures."""
    columns = [_COLUMN_NAMES.get(column, column) for column in (field.strip().casefold() for field in header)]
    if twice := [column for column, count in Counter(columns).items() if count > 1]:
        raise _error(where, f"several columns mean `{twice[0]}`", "keep one of them", twice[0])
    if not {*columns} & {*METRICS, *_METRIC_NAMES, "metric"} or not {*columns} & {"rw", "op", "pattern"}:
        problem = "the table has no column `rw`, or none with a metric"
        hint = f"columns are: rw, bs_kb, jobs, depth, and {', '.join(METRICS)}; or metric, value and unit"
        raise _error(where, problem, hint)
    return columns


def figures_of_row(where: str, row: Mapping[str, str]) -> Iterator[MeasuredFigure]:
    """Yield the figures of a row, which holds only what its source states, or why it is `refused`.

    A refused row without figures is yielded as one without a value.
    """
    job, missing = _job(where, row)
    refused = row.get("refused") or missing
    known = {*_DESCRIBING, *METRICS, *_METRIC_NAMES, "metric", "value", "refused"}
    other = [f"{key} {text}".strip() for key, text in row.items() if key not in known and not _is_number(text)]
    condition = ", ".join([*([row["condition"]] if "condition" in row else []), *other])
    texts = {key: row.get(key, "") for key in ("part", "preset", "source", "known_reason")}
    texts["device"] = row.get("device", "device")
    fitted = row.get("fitted", "no").casefold()
    if fitted not in ("yes", "no"):
        raise _error(where, f"fitted `{fitted}` is neither yes nor no", "correct the value", "fitted")
    figure = MeasuredFigure(
        **texts, fitted=fitted == "yes", job=job, metric="", value=None, condition=condition, refused=refused
    )
    if "metric" in row and "value" not in row:
        raise _error(where, "the figure has no value", "give it in the column `value`, or remove the line", "value")
    if "metric" in row:
        yield _measured(where, figure, row["metric"], ("value", row["value"]), row.get("unit", ""))
    elif "value" in row:
        raise _error(where, f"the value {row['value']} has no metric", "name it in the column `metric`", "metric")
    metrics = [key for key in row if _METRIC_NAMES.get(key, key) in METRICS]
    for key in metrics:
        yield _measured(where, figure, key, (key, row[key]), "")
    if not metrics and "metric" not in row and "refused" in row:
        yield replace(figure, metric="iops")


def _measured(where: str, figure: MeasuredFigure, label: str, field: tuple[str, str], unit: str) -> MeasuredFigure:
    """Return a figure with the value of a field (column and text), if its metric and its unit are known."""
    name = label.casefold()
    metric = _METRIC_NAMES.get(name, name)
    if metric not in METRICS:
        value = float(field[1]) if _is_number(field[1]) else None
        return replace(figure, metric=label, value=value, refused=f"`{label}` is not a metric of a benchmark")
    value = _number(where, *field)
    has_unit = not unit and name not in _WITHOUT_UNIT
    factor = 1.0 if has_unit else _UNITS[METRICS[metric].unit].get(unit.casefold())
    if factor is None:
        unknown = f"`{unit}` is not a unit of {METRICS[metric].label}" if unit else "its source does not state the unit"
        return replace(figure, metric=metric, value=None, refused=unknown)
    return replace(figure, metric=metric, value=value * factor)


def _job(where: str, row: Mapping[str, str]) -> tuple[FigureJob | None, str]:
    """Return the job of a line; None and the reason if its source does not state all of it, or it cannot run."""
    block = _number(where, "block_kb", row["block_kb"]) * 1024 if "block_kb" in row else 0.0
    jobs, depth = (_count(where, key, row[key]) if key in row else 0 for key in ("jobs", "depth"))
    buffer = row.get("buffer", BUFFER_EMPTY).casefold()
    if buffer not in (BUFFER_EMPTY, BUFFER_USED_UP):
        problem = f"buffer `{buffer}` is not a state of a write buffer"
        raise _error(where, problem, f"leave it empty, or write `{BUFFER_USED_UP}`", "buffer")
    host = row.get("host", FigureJob._field_defaults["host"])
    if unknown := _host_problem(host):
        raise _error(where, unknown, "name a host (`emmclab apps`), a TOML file, or `none`", "host")
    rw = row.get("rw") or _pattern(row.get("op", ""), row.get("pattern", ""))
    stated = {"pattern": rw, "request size": block, "number of jobs": jobs, "queue depth": depth}
    if missing := [name for name, value in stated.items() if not value]:
        return None, f"its source does not state: {', '.join(missing)}"
    if rw not in _RW:
        return None, f"`{rw}` is not one of the patterns {', '.join(_RW)}"
    if block % 512:
        return None, f"requests of {block:g} bytes are not whole sectors"
    if jobs > _MOST_JOBS or jobs * depth > _MOST_UNFINISHED:
        return None, f"it has more than {_MOST_JOBS:,} jobs, or {_MOST_UNFINISHED:,} unfinished requests"
    return FigureJob(rw, int(block), jobs, depth, buffer, host), ""


@functools.cache
def _host_problem(host: str) -> str:
    """Return why no host has this name; empty if one has."""
    try:
        if host != "none":
            setup_of(host)
    except EmmclabError as error:
        return str(error)
    return ""


def _pattern(op: str, pattern: str) -> str:
    """Return the pattern in the words of fio; empty if it is not stated."""
    if not op:
        return pattern
    words = {"sequential": op, "seq": op, "random": f"rand{op}", "rand": f"rand{op}"}
    return words.get(pattern, f"{op} {pattern}") if pattern else ""


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text, re.ASCII)) and math.isfinite(float(text))


def _number(where: str, column: str, text: str) -> float:
    value = float(text) if _is_number(text) else math.nan
    if not 1e-9 <= value <= 1e15:
        problem = f"{column} `{text}` is not a number above 0"
        raise _error(where, problem, "correct the value; `?` if it is not stated", column)
    return value


def _count(where: str, column: str, text: str) -> int:
    value = _number(where, column, text)
    if not value.is_integer():
        raise _error(where, f"{column} `{text}` is not a whole number", "correct the value", column)
    return int(value)


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
    def ratio(self) -> float | None:
        """The simulated figure divided by the measured one."""
        return None if self.simulated is None or not self.figure.value else self.simulated / self.figure.value

    @property
    def error_pct(self) -> float | None:
        """Deviation of the simulated figure from the measured one in percent."""
        return None if self.ratio is None else 100 * (self.ratio - 1)

    @property
    def is_test(self) -> bool:
        """Whether the comparison tests the device: the figure was simulated, and the preset was not fitted to it."""
        return self.simulated is not None and not self.figure.fitted

    @property
    def is_tail(self) -> bool:
        """Whether the figure is a percentile from the 99th on."""
        return self.figure.metric in METRICS and METRICS[self.figure.metric].is_tail

    @property
    def is_of_host(self) -> bool:
        """Whether the figure is time of the host, which no setting of a device changes."""
        return self.figure.metric in METRICS and METRICS[self.figure.metric].is_of_host

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON values: the fields of the figure and its job in one level."""
        figure, job = asdict(self.figure), self.figure.job
        known_reason = figure.pop("known_reason")
        del figure["job"], figure["refused"]
        return {
            **figure,
            **(dict.fromkeys(FigureJob._fields) if job is None else job._asdict()),
            "unit": METRICS[self.figure.metric].unit if self.figure.metric in METRICS else None,
            "simulated_device": self.simulated_device or None,
            "simulated": self.simulated,
            "error_pct": self.error_pct,
            "known_reason": known_reason or None,
            "not_compared": self.reason or None,
        }


def compare_figures(
    figures: Iterable[MeasuredFigure],
    device_of: Callable[[str], Device | None] = lambda preset: Device.preset(preset) if preset else None,
    *,
    images: str | PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    threads_at_once: int = 0,
) -> list[FigureComparison]:
    """Run the job of each figure on the device of its preset, and return the comparisons in the order of the figures.

    `device_of` returns the device for the name of a preset, or None. Figures of the same job and device share one run.
    `images` is a folder for preconditioned devices (default: a temporary one). `progress` receives the number of
    finished and of all runs. `threads_at_once` runs are simulated at the same time; 0 means one per processor. Neither
    changes the result. A job that a device refuses, such as random writes of a zoned device, is a reason.
    """
    figures = list(figures)
    devices = {name: device_of(name) for name in dict.fromkeys(figure.preset for figure in figures)}
    runs = dict.fromkeys(
        (device, figure.job)
        for figure in figures
        if figure.job and not figure.refused and (device := devices[figure.preset])
    )
    with tempfile.TemporaryDirectory() as folder, threads(threads_at_once) as pool:
        stored = images or folder
        # Each device is stored before the runs that use it, so that no two threads precondition the same device.
        prepared = [pool.submit(device.precondition, stored, _PRECONDITION) for device in {run[0]: 0 for run in runs}]
        for preparation in prepared:
            preparation.exception()  # The runs of the device report it.
        futures = [pool.submit(_outcome, device, job, stored) for device, job in runs]
        outcomes: dict[tuple[Device, FigureJob], FioOperationResult | str] = {}
        for done, (run, future) in enumerate(zip(runs, futures, strict=True)):
            if progress is not None:
                progress(done, len(runs))
            outcomes[run] = future.result()
        if progress is not None:
            progress(len(runs), len(runs))
    return [_compared(figure, devices[figure.preset], outcomes) for figure in figures]


def _outcome(device: Device, job: FigureJob, images: str | PathLike[str]) -> FioOperationResult | str:
    """Run a job on a device, and return its figures, or the reason why there are none."""
    try:
        return simulate_job(device, job, images) or "no request of the job was measured"
    except (ConfigError, FormatError, UnsupportedError) as error:
        # The name of the temporary job file says nothing.
        return f"the simulated device cannot run it: {str(error).rpartition(f'{_JOB_FILE}: ')[2]}"


def _compared(
    figure: MeasuredFigure, device: Device | None, outcomes: Mapping[tuple[Device, FigureJob], FioOperationResult | str]
) -> FigureComparison:
    if figure.refused or figure.job is None:
        return FigureComparison(figure, "", None, figure.refused)
    if device is None:
        return FigureComparison(figure, "", None, "no preset claims to be this device")
    outcome = outcomes[device, figure.job]
    value = None if isinstance(outcome, str) else METRICS[figure.metric].of(outcome)
    reason = outcome if isinstance(outcome, str) else f"the simulated job has no {METRICS[figure.metric].label}"
    return FigureComparison(figure, device.name, value, reason if value is None else "")


def simulate_job(
    device: Device,
    job: FigureJob,
    images: str | PathLike[str] | None,
    io_bytes: int = FILE_BYTES,
    written: str = _PRECONDITION,
) -> FioOperationResult | None:
    """Run a job on a device that is preconditioned by `written`, and return its figures; None if it had no requests.

    `images` is a folder for preconditioned devices. All copies of the job together read or write at most `io_bytes`.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, _JOB_FILE)
        path.write_text(job.text(device.capacity_bytes, io_bytes), "utf-8")
        result = device.simulate(read(path), precondition=written, images=images, fio_host=job.host, provenance=False)
    if result.run.stopped:
        raise UnsupportedError(f"it stopped: {result.run.stopped}")
    return next((figures for found, _, figures in fio_operations(result) if found.name == "measured"), None)


@dataclass(frozen=True)
class FigureSummary:
    """How far simulated devices are from measured figures to which they were not fitted."""

    #: Number of devices and of figures that test a preset.
    devices: int
    figures: int
    #: Number of rates and of mean and median latencies, and by how much half and nine of ten of them deviate at most,
    #: in percent; None without figures.
    rates: int
    half_within_pct: float | None
    nine_of_ten_within_pct: float | None
    #: Number of percentiles from the 99th on, and how many are within a factor of two.
    tails: int
    tails_within_factor_2: int
    #: Number of submission latencies, which are time of the host, and their deviations.
    of_host: int
    host_half_within_pct: float | None
    host_nine_of_ten_within_pct: float | None
    #: Number of figures to which presets were fitted, and of those that could not be compared.
    fitted: int
    not_compared: int

    @staticmethod
    def of(comparisons: Sequence[FigureComparison]) -> "FigureSummary":
        """Summarise comparisons."""
        tests = [row for row in comparisons if row.is_test]
        tails = [row.ratio or 0.0 for row in tests if row.is_tail]
        rates = sorted(abs(row.error_pct or 0.0) for row in tests if not row.is_tail and not row.is_of_host)
        of_host = sorted(abs(row.error_pct or 0.0) for row in tests if row.is_of_host)

        def within(errors: Sequence[float], part: float) -> float | None:
            return errors[math.ceil(part * len(errors)) - 1] if errors else None

        return FigureSummary(
            devices=len({row.figure.device for row in tests}),
            figures=len(tests),
            rates=len(rates),
            half_within_pct=within(rates, 0.5),
            nine_of_ten_within_pct=within(rates, 0.9),
            tails=len(tails),
            tails_within_factor_2=sum(0.5 <= ratio <= 2 for ratio in tails),
            of_host=len(of_host),
            host_half_within_pct=within(of_host, 0.5),
            host_nine_of_ten_within_pct=within(of_host, 0.9),
            fitted=sum(row.figure.fitted and row.simulated is not None for row in comparisons),
            not_compared=sum(row.simulated is None for row in comparisons),
        )

    def __str__(self) -> str:
        """Return the summary as a sentence."""
        if not self.figures:
            return f"no figure tests a preset; {self.fitted} were fitted, {self.not_compared} cannot be compared"
        devices, figures = (
            f"{count} {noun}{'' if count == 1 else 's'}"
            for count, noun in ((self.devices, "device"), (self.figures, "measured figure"))
        )
        parts = [f"{devices}, {figures} to which no preset was fitted"]
        errors = [
            (self.rates, "rates and mean or median latencies", self.half_within_pct, self.nine_of_ten_within_pct),
            (self.of_host, "submission latencies", self.host_half_within_pct, self.host_nine_of_ten_within_pct),
        ]
        deviations = [
            f"half of the {count} {noun} within {half:.0f} %, nine of ten within {most:.0f} %"
            for count, noun, half, most in errors
            if half is not None
        ]
        parts += deviations[: self.rates > 0]
        if self.tails:
            parts.append(f"{self.tails_within_factor_2} of {self.tails} percentiles from p99 on within a factor of two")
        parts += deviations[self.rates > 0 :]
        return ": ".join([parts[0], "; ".join(parts[1:])])
