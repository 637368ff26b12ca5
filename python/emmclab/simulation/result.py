"""Results of simulated runs, and files of their figures over time for other tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emmclab.core_types import LiveStatus, SecondDevice, SimulationResult, UfsUse
from emmclab.runtime.document import Row
from emmclab.runtime.files import refuse_other_endings, to_csv, write_atomically
from emmclab.simulation.result_fields import ResultField, shown_fields
from emmclab.traces.inputs import ProvenanceFields
from emmclab.traces.profile import Profile

#: Name of the group of result fields that differs in every run: the computing cost.
WALL_GROUP = "computing"

#: Result fields on the cost of durability.
DURABILITY = ("requests.other", "cache.flushes", "durable.requests", "durable.mean_ms", "durable.p99_ms")
#: Result fields on the link, the queues and the hibernation of a UFS device.
_UFS = (
    *("ufs.to_device.busy_pct", "ufs.to_device.wait_ms", "ufs.to_host.busy_pct", "ufs.to_host.wait_ms"),
    *("ufs.most_in_flight", "ufs.tag_wait_ms", "ufs.queue_wait_ms"),
    *("ufs.hibernated_pct", "ufs.hibernate_exits", "ufs.hibernate_exit_ms"),
)
#: Result fields with the parts of the mean response time.
_WAITS = tuple(f"waits.{part}_ms" for part in ("queue", "controller", "bus", "array", "gc", "wake_up"))
_ZONES = tuple(
    f"ufs.zones.{name}"
    for name in (
        "count",
        "size_bytes",
        "resets",
        "opened",
        "closed",
        "filled",
        "most_open",
        "slc_bytes",
        "buffer_conflicts",
        "premature_flushes",
        "premature_bytes",
    )
)
_WRITE_BOOSTER = tuple(
    f"ufs.write_booster.{name}"
    for name in (
        "size_bytes",
        "bytes_written",
        "bytes_past_it",
        "flushed_blocks",
        "life_used_pct",
        "current_size_bytes",
        "bytes_read",
        "read_hit_pct",
        "migrated_bytes",
        "pinned_bytes",
        "flush_needed",
        "pinned_full",
        "grown",
        "shrunk",
    )
)


#: For each field of a second device, the path of the same figure of the first device.
_SECOND = {
    "host_bytes_read": "requests.bytes_read",
    "host_bytes_written": "requests.bytes_written",
    "page_programs": "flash.page_programs.total",
    "block_erases": "flash.block_erases",
    "waf": "write_amplification.waf",
}


def ufs_figures(ufs: UfsUse | None) -> list[tuple[ResultField, float | None]]:
    """Return the figures of a UFS device: link, queues, zones, WriteBooster and hibernation.

    >>> ufs_figures(None)
    []
    """
    if not ufs:
        return []
    paths = (*_UFS, *(_ZONES if ufs.zones else ()), *(_WRITE_BOOSTER if ufs.write_booster else ()))
    return [(field, ufs[field.path.removeprefix("ufs.")]) for field in shown_fields(paths)]


def second_figures(second: SecondDevice) -> list[tuple[ResultField, float]]:
    """Return the figures of the second device, each with the field that formats it for the first device.

    >>> counts = {"host_bytes_read": 0, "host_bytes_written": 4096, "page_programs": 1, "block_erases": 0, "waf": 1.0}
    >>> figures = second_figures(SecondDevice({"device": "sdcard", **counts}))
    >>> [field.label for field, _ in figures][:2]
    ['Data read', 'Data written']
    """
    return [(field, second[name]) for name, field in zip(_SECOND, shown_fields(tuple(_SECOND.values())), strict=True)]


def wait_figures(result: Result) -> list[tuple[ResultField, float]]:
    """Return the parts of the mean response time of reads and writes.

    >>> import emmclab
    >>> result = emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0]))
    >>> [field.short for field, _ in wait_figures(result)]
    ['queue', 'controller', 'bus', 'array', 'gc', 'wake-up']
    """
    return [(field, result[field.path]) for field in shown_fields(_WAITS)]


class Result(SimulationResult):
    """Result of a run: the groups of fields that `emmclab simulate --json` prints.

    Read a field as an attribute, such as `result.response.p99_ms`, or by its path if its name is in a variable.

    >>> import emmclab
    >>> result = emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0]))
    >>> result.response.p99_ms == result["response.p99_ms"]
    True
    >>> "response.p99_ms" in result, "response.p98_ms" in result
    (True, False)
    >>> result.ufs is None
    True
    """

    trace: str
    options: dict[str, Any]
    #: Origin of the result. Results in a study do not have this field, because it is the same for the whole study.
    provenance: ProvenanceFields | None
    #: Real-time figures of a served device; None for other runs.
    live: LiveStatus | None

    def __repr__(self) -> str:
        (mean,) = shown_fields(("response.mean_response_ms",))
        return f"<Result {self.trace!r} on {self.run_name!r}: {mean.in_words(self[mean.path])} {mean.name}>"

    @property
    def run_name(self) -> str:
        """The name that distinguishes runs of one trace: the device, and the stack of layers, if any."""
        layers = self.get("options", {}).get("layers", ())
        return f"{self.device} under {'+'.join(layers)}" if layers else self.device

    def _repr_html_(self) -> str:
        from emmclab.simulation.result_text import result_html

        return result_html(self)

    def measured(self, path: str) -> Any:
        """Return a field by its path; None if nothing was measured, as for times of operations that did not occur.

        >>> import emmclab
        >>> writes = emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[3]))
        >>> writes.requests.write > 0 and writes.measured("response.write.mean_ms") > 0
        True
        """
        group, _, rest = path.partition(".")
        op = rest.partition(".")[0]
        if op in ("read", "write") and not self[f"requests.{op}"]:
            return None
        if (group in ("response", "service") or path == "requests.no_wait_pct") and not self.timed():
            return None
        if group == "space" and not self.requests.total:
            return None
        if group == "durable" and rest != "requests" and not (self.durable and self.durable.requests):
            return None
        return self[path]

    def timed(self) -> int:
        """Return the number of requests whose times are measured: reads and writes.

        If the result does not count requests by kind, this is the number of all requests.

        >>> import emmclab
        >>> result = emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0]))
        >>> result.timed() == result.requests.read + result.requests.write
        True
        """
        counts = self.requests
        return counts.read + counts.write if "read" in self._fields["requests"] else counts.total

    def deterministic(self) -> dict[str, Any]:
        """Return the groups of fields that are identical on every computer and in every run.

        >>> import emmclab
        >>> result = emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0]))
        >>> sorted(set(result) - set(result.deterministic()))
        ['computing']
        """
        return {name: group for name, group in self.to_dict().items() if name != WALL_GROUP}


def over_time_rows(sources: Sequence[Profile | Result]) -> list[Row]:
    """Return the time bins of traces or runs as rows, with the names of trace, device and layers.

    >>> import emmclab
    >>> list(over_time_rows([emmclab.profile(emmclab.bundled()[0])])[0])[:3]
    ['trace', 'time_s', 'width_s']
    """
    rows = []
    for source in sources:
        if isinstance(source, Profile):
            rows += [{"trace": source.name, **row} for row in source.figure("io_over_time")]
        else:
            names = {"trace": source.trace, "device": source.run_name}
            rows += [{**names, **row} for row in source.over_time]
    return rows


def check_target(path: Path) -> str:
    """Reject an output file with an unsupported extension before any work is done; return the extension.

    Raises:
        ConfigError: its name ends in neither `.csv` nor `.parquet`.
    """
    return refuse_other_endings(path, (".csv", ".parquet"), "--over-time")


def write_over_time(rows: list[Row], path: Path) -> None:
    """Write time bins as CSV or Parquet, by the file extension; write nothing if there are none.

    Raises:
        ConfigError: the extension is not supported.
    """
    ending = check_target(path)
    if rows and ending == ".csv":
        write_atomically(path, to_csv(rows))
    elif rows:
        from emmclab.runtime.parquet import write_parquet

        write_parquet(path, rows)
