"""The figures of fio for the jobs of a job file: a table, and fio's own JSON."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from emmclab._core import __version__
from emmclab.core_types import FioJobResult, FioLatency, FioOperationResult
from emmclab.runtime.document import Cells, Column, Number, TextTable, number_cell
from emmclab.simulation.result import Result
from emmclab.simulation.run_options import DEFAULTS

#: The operations of a job, with their names in the output of fio.
_OPERATIONS = ("read", "write", "trim", "sync")
#: The percentiles of the completion latency in the table.
_PERCENTILES = (50.0, 99.0, 99.9)


def fio_operations(result: Result) -> Iterator[tuple[FioJobResult, str, FioOperationResult]]:
    """Yield each operation of each job that had requests."""
    for job in result.fio.jobs if result.fio else ():
        for name in _OPERATIONS:
            if (figures := getattr(job, name)) is not None:
                yield job, name, figures


def fio_headline(result: Result) -> str:
    """Return IOPS, bandwidth and latency of the operation with the most requests, or why none was measured."""
    operations = list(fio_operations(result))
    if not operations:
        return "no request was measured: all jobs ended within their ramp_time"
    job, name, most = max(operations, key=lambda row: row[2].requests)
    more = f"; {len(operations) - 1} more in the table" if len(operations) > 1 else ""
    return (
        f"{job.name} {name}: IOPS {most.iops:,.0f}, {most.mb_per_s:,.1f} MB/s, mean latency "
        f"{most.lat.mean_us:,.1f} us{more}"
    )


def fio_table(results: Sequence[Result]) -> TextTable:
    """Return a table with a row for each operation of each job, and with the device if there are several results."""
    several = len(results) > 1
    rows: list[Cells] = []
    for result in results:
        for job, name, figures in fio_operations(result):
            depth = f"{job.copies} x {job.queue_depth}" if job.copies > 1 else str(job.queue_depth)
            slat = figures.slat.mean_us if figures.slat else None
            rows.append(
                [
                    job.name,
                    name,
                    *([result.run_name] if several else []),
                    Number(depth, job.copies * job.queue_depth),
                    number_cell(figures.iops, 0 if figures.iops >= 1_000 else 1),
                    number_cell(figures.mb_per_s, 1) if name != "sync" else number_cell(None),
                    number_cell(slat, 1),
                    number_cell(figures.clat.mean_us, 1),
                    *(number_cell(_percentile(figures, point), 1) for point in _PERCENTILES),
                    number_cell(figures.clat.max_us, 1),
                ]
            )
    headings: list[str | Column] = [
        "Job",
        "Operation",
        *(["Device"] if several else []),
        Column("Depth", about="unfinished requests: iodepth, times the number of copies of the job"),
        "IOPS",
        Column("Bandwidth", "MB/s", "BW"),
        Column("Submission", "us", "slat"),
        Column("Completion", "us", "clat"),
        *(Column(f"p{point:g} completion", "us", f"p{point:g}") for point in _PERCENTILES),
        Column("Longest completion", "us", "max"),
    ]
    return TextTable("Figures of fio", headings, rows, 3 if several else 2, caption=_caption(results[0]))


def _percentile(figures: FioOperationResult, point: float) -> float | None:
    return next((row.clat_us for row in figures.percentiles if row.percentile == point), None)


def _caption(result: Result) -> str:
    host = result.options.get("fio_host", DEFAULTS["fio_host"])
    if host == "none":
        return "Without the processor time of a host (--fio-host none)"
    return f"With the processor time of the host {host}; without: --fio-host none"


def fio_json(result: Result) -> str:
    """Return the figures of the jobs in the form of `fio --output-format=json`.

    Figures that a simulation does not have, such as processor shares, are left out. Times are in ns, `bw` is in KiB/s.
    """
    jobs = [_job(job) for job in result.fio.jobs] if result.fio else []
    return json.dumps({"fio version": f"emmclab-{__version__}", "jobs": jobs}, indent=2) + "\n"


def _job(job: FioJobResult) -> dict[str, Any]:
    named: dict[str, Any] = {"jobname": job.name, "groupid": job.group, "error": 0, "elapsed": round(job.runtime_s)}
    named["job options"] = dict(job.options)
    runtime_ms = round(job.runtime_s * 1e3)
    for name in ("read", "write", "trim"):
        named[name] = _operation(getattr(job, name), runtime_ms)
    if job.sync is not None:
        lat = _latency(job.sync.lat, job.sync.requests)
        named["sync"] = {"total_ios": job.sync.requests, "lat_ns": lat | {"percentile": _percentiles(job.sync)}}
    named["job_runtime"] = runtime_ms
    return named


def _operation(figures: FioOperationResult | None, runtime_ms: int) -> dict[str, Any]:
    if figures is None:
        return {"io_bytes": 0, "io_kbytes": 0, "bw_bytes": 0, "bw": 0, "iops": 0.0, "runtime": 0, "total_ios": 0}
    bw_bytes = round(figures.mb_per_s * 1_048_576)
    return {
        "io_bytes": figures.bytes,
        "io_kbytes": figures.bytes // 1024,
        "bw_bytes": bw_bytes,
        "bw": bw_bytes // 1024,
        "iops": figures.iops,
        "runtime": runtime_ms,
        "total_ios": figures.requests,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": _latency(figures.slat, figures.requests),
        "clat_ns": _latency(figures.clat, figures.requests) | {"percentile": _percentiles(figures)},
        "lat_ns": _latency(figures.lat, figures.requests),
    }


def _latency(latency: FioLatency | None, requests: int) -> dict[str, float]:
    if latency is None:
        return {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}
    return {
        "min": round(latency.min_us * 1e3),
        "max": round(latency.max_us * 1e3),
        "mean": latency.mean_us * 1e3,
        "stddev": latency.stddev_us * 1e3,
        "N": requests,
    }


def _percentiles(figures: FioOperationResult) -> dict[str, int]:
    return {f"{row.percentile:.6f}": round(row.clat_us * 1e3) for row in figures.percentiles}
