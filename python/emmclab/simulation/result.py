"""Results of simulated runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from emmclab.runtime.document import TextTable
from emmclab.runtime.field_mapping import FieldMapping, UnknownFieldError
from emmclab.runtime.notebook import cell_text, heading_html, milliseconds_text, pairs_html, share_text, table_html
from emmclab.simulation.result_fields import ResultField, shown_fields

if TYPE_CHECKING:
    from emmclab.core_types import SecondDevice, UfsUse
    from emmclab.simulation.result_fields import ResultFields

#: The group of a result that differs from run to run: the computing cost.
WALL_GROUP = "computing"

#: Figures of the cost of durability.
DURABILITY = ("requests.other", "cache.flushes", "durable.requests", "durable.mean_ms", "durable.p99_ms")
#: Figures of link, queues and hibernation of a UFS, then those that only some UFS have.
_UFS = (
    *("ufs.to_device.busy_pct", "ufs.to_device.wait_ms", "ufs.to_host.busy_pct", "ufs.to_host.wait_ms"),
    *("ufs.most_in_flight", "ufs.tag_wait_ms", "ufs.queue_wait_ms"),
    *("ufs.hibernated_pct", "ufs.hibernate_exits", "ufs.hibernate_exit_ms"),
)
#: Parts of the mean response.
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


#: Fields of the second device, with the corresponding fields of the first one.
_SECOND = {
    "host_bytes_read": "requests.bytes_read",
    "host_bytes_written": "requests.bytes_written",
    "page_programs": "flash.page_programs.total",
    "block_erases": "flash.block_erases",
    "waf": "write_amplification.waf",
}


def at(fields: Mapping[str, Any], path: str) -> Any:
    """Return a value by its path; None if the result does not have the group.

    >>> at({"wear": {"lifetime": None}}, "wear.lifetime.even_host_bytes") is None
    True

    Raises:
        KeyError: there is no such field.
    """
    value: Any = fields
    for name in path.split("."):
        if value is None:
            return None
        value = value[name]
    return value


def ufs_figures(ufs: UfsUse | None) -> list[tuple[ResultField, float | None]]:
    """Return the figures of link, queues, zones, WriteBooster and hibernation of a UFS.

    >>> ufs_figures(None)
    []
    """
    if not ufs:
        return []
    paths = (*_UFS, *(_ZONES if ufs["zones"] else ()), *(_WRITE_BOOSTER if ufs["write_booster"] else ()))
    return [(field, at({"ufs": ufs}, field.path)) for field in shown_fields(paths)]


def second_figures(second: SecondDevice) -> list[tuple[ResultField, float]]:
    """Return the figures of the second device, formatted as those of the first one.

    >>> figures = second_figures({"device": "sdcard", "host_bytes_read": 0, "host_bytes_written": 4096,
    ...     "page_programs": 1, "block_erases": 0, "waf": 1.0})
    >>> [field.label for field, _ in figures][:2]
    ['Data read', 'Data written']
    """
    values: Mapping[str, Any] = second
    return [(field, values[name]) for name, field in zip(_SECOND, shown_fields(tuple(_SECOND.values())), strict=True)]


def wait_figures(result: Result) -> list[tuple[ResultField, float]]:
    """Return the parts of the mean response of reads and writes.

    >>> import emmclab
    >>> result = emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0]))
    >>> [field.short for field, _ in wait_figures(result)]
    ['queue', 'controller', 'bus', 'array', 'gc', 'wake-up']
    """
    return [(field, result[field.path]) for field in shown_fields(_WAITS)]


class Result(FieldMapping):
    """Result of a run; a mapping of the groups of fields that `emmclab simulate --json` prints.

    A field can also be accessed by its path.

    >>> import emmclab
    >>> result = emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0]))
    >>> result["response"]["p99_ms"] == result["response.p99_ms"]
    True
    >>> "response.p99_ms" in result, "response.p98_ms" in result
    (True, False)
    """

    @property
    def fields(self) -> ResultFields:
        """The groups with typed fields, so that mypy finds wrong keys; not to be changed.

        >>> import emmclab
        >>> result = emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0]))
        >>> result.fields["response"]["p99_ms"] == result["response.p99_ms"]
        True
        """
        return cast("ResultFields", self._fields)

    def __getitem__(self, field: str) -> Any:
        try:
            return self._fields[field] if field in self._fields else at(self._fields, field)
        except (KeyError, TypeError):
            raise UnknownFieldError(field, self._fields) from None

    def __contains__(self, field: object) -> bool:
        try:
            self[str(field)]
        except KeyError:
            return False
        return True

    def __repr__(self) -> str:
        (mean,) = shown_fields(("response.mean_response_ms",))
        return f"<Result {self['trace']!r} on {self.run_name!r}: {mean.in_words(self[mean.path])} {mean.name}>"

    @property
    def run_name(self) -> str:
        """The name that distinguishes runs of one trace: the device, and the stack of layers, if any."""
        layers = self._fields.get("options", {}).get("layers", ())
        return f"{self['device']} under {'+'.join(layers)}" if layers else str(self["device"])

    def _repr_html_(self) -> str:
        return result_html(self)

    def shown(self, path: str) -> Any:
        """Return a field for display; None for times of operations that did not occur and unmeasured values.

        >>> import emmclab
        >>> writes = emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[3]))
        >>> writes["requests.write"] > 0 and writes.shown("response.write.mean_ms") > 0
        True
        """
        group, _, rest = path.partition(".")
        op = rest.partition(".")[0]
        if op in ("read", "write") and not self["requests"][op]:
            return None
        if (group in ("response", "service") or path == "requests.no_wait_pct") and not self.timed():
            return None
        if group == "space" and not self.fields["requests"]["total"]:
            return None
        if group == "durable":
            durable = self.get(group) or {}
            return durable.get(rest) if durable.get("requests") or rest == "requests" else None
        return self[path]

    def timed(self) -> int:
        """Return the number of reads and writes, whose times are measured.

        If the result does not count requests by kind, this is the number of all requests.

        >>> import emmclab
        >>> result = emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0]))
        >>> result.timed() == result["requests.read"] + result["requests.write"]
        True
        """
        requests = self.fields["requests"]
        return requests["read"] + requests["write"] if "read" in requests else requests["total"]

    def deterministic(self) -> ResultFields:
        """Return the groups that are identical on every computer and in every run.

        >>> import emmclab
        >>> result = emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0]))
        >>> sorted(set(result) - set(result.deterministic()))
        ['computing']
        """
        kept = {name: group for name, group in self.to_dict().items() if name != WALL_GROUP}
        return cast("ResultFields", kept)


def result_html(result: Result) -> str:
    """Return an HTML table of response times by operation, and of the flash operations of the run."""
    rows = []
    for op, title in (("", "all"), ("read.", "reads"), ("write.", "writes")):
        mean = result.shown(f"response.{op}mean_ms" if op else "response.mean_response_ms")
        p50, p99, most = (result.shown(f"response.{op}{name}") for name in ("p50_ms", "p99_ms", "max_ms"))
        count = result[f"requests.{op.rstrip('.') or 'total'}"]
        rows.append([title, f"{count:,}", *(milliseconds_text(value) for value in (mean, p50, p99, most))])
    amplification = result.fields["write_amplification"]
    facts = [
        ("no wait", share_text(result.fields["requests"]["no_wait_pct"])),
        ("flushes and discards", "–" if (others := result.fields["requests"]["other"]) is None else f"{others:,}"),
        ("flushes and synchronous writes, 99 %", milliseconds_text(result.shown("durable.p99_ms"))),
        ("write amplification", cell_text(amplification["waf"])),
        ("preconditioned", str(result.fields["options"]["precondition"])),
        ("mode", str(result.fields["options"]["mode"])),
    ]
    headings = ["requests of", "count", "mean", "median", "99 %", "longest"]
    title = heading_html("Result", f"{result.fields['trace']} on {result.run_name}")
    return title + table_html(TextTable("Response times", headings, rows)) + pairs_html(facts)
