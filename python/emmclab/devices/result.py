"""Results of simulated runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emmclab.devices.notebook import result_html
from emmclab.runtime.document import Document

#: The group of a result that differs from run to run: the cost on this computer.
WALL_GROUP = "computing"

#: What durability costs: label, path, digits, unit. `durable` holds flushes, and writes that promise
#: durability or an order (FUA, preflush, barrier); a preflush is a flush of the cache, too.
DURABILITY = (
    ("Flushes and discards", "requests.other", 0, ""),
    ("Cache flushes with data", "cache.flushes", 0, ""),
    ("Flushes and synchronous writes", "durable.requests", 0, ""),
    ("Mean response of these", "durable.mean_ms", 3, "ms"),
    ("p99 response of these", "durable.p99_ms", 3, "ms"),
)


def at(fields: Mapping[str, Any], path: str) -> Any:
    """Return a value by its path; None below a group that a result does not have.

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


def ufs_facts(ufs: dict[str, Any]) -> list[tuple[str, float | None, int, str]]:
    """Return what link, queues, WriteBooster and hibernation of a UFS cost: label, value, digits, unit.

    >>> ufs_facts({})
    []
    """
    if not ufs:
        return []
    facts: list[tuple[str, float | None, int, str]] = [
        ("Link to the device in use", ufs["to_device"]["busy_pct"], 2, "%"),
        ("Mean wait for it", ufs["to_device"]["wait_ms"], 4, "ms"),
        ("Link to the host in use", ufs["to_host"]["busy_pct"], 2, "%"),
        ("Mean wait for it", ufs["to_host"]["wait_ms"], 4, "ms"),
        ("Most commands in flight", ufs["most_in_flight"], 0, ""),
        ("Mean wait for a tag", ufs["tag_wait_ms"], 4, "ms"),
        ("Mean wait for a queue", ufs["queue_wait_ms"], 4, "ms"),
        ("In hibernation", ufs["hibernated_pct"], 1, "%"),
        ("Exits from it", ufs["hibernate_exits"], 0, ""),
        ("Mean time of an exit", ufs["hibernate_exit_ms"], 3, "ms"),
    ]
    if zones := ufs["zones"]:
        facts += [
            ("Zones", zones["count"], 0, ""),
            ("Their size", zones["size_bytes"] / (1 << 20), 1, "MB"),
            ("Resets", zones["resets"], 0, ""),
            ("Opened", zones["opened"], 0, ""),
            ("Closed for another", zones["closed"], 0, ""),
            ("Filled", zones["filled"], 0, ""),
            ("Open at once, most", zones["most_open"], 0, ""),
            ("Flash in SLC mode programmed", zones["slc_bytes"] / (1 << 20), 1, "MB"),
        ]
    if booster := ufs["write_booster"]:
        mb = 1 << 20
        facts += [
            ("WriteBooster, size", booster["size_bytes"] / mb, 0, "MB"),
            ("Written to it", booster["bytes_written"] / mb, 1, "MB"),
            ("Written past it", booster["bytes_past_it"] / mb, 1, "MB"),
            ("Its blocks flushed", booster["flushed_blocks"], 0, ""),
            ("Its life used", booster["life_used_pct"], 4, "%"),
        ]
    return facts


class Result(Document):
    """Result of a run; a mapping of the groups of fields that `emmclab simulate --json` prints.

    A field is also found by its path.

    >>> import emmclab
    >>> result = emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0]))
    >>> result["response"]["p99_ms"] == result["response.p99_ms"]
    True
    """

    def __getitem__(self, field: str) -> Any:
        if field in self._fields:
            return self._fields[field]
        if "." not in field:
            raise KeyError(field)
        return at(self._fields, field)

    def __contains__(self, field: object) -> bool:
        return field in self._fields

    def __repr__(self) -> str:
        mean = f"{self['response.mean_response_ms']:.2f} ms mean response"
        return f"<Result {self['trace']!r} on {self.run_name!r}: {mean}>"

    @property
    def run_name(self) -> str:
        """The device, and the stack of layers above it, if any: what tells runs of one trace apart."""
        layers = self._fields.get("options", {}).get("layers", ())
        return f"{self['device']} under {'+'.join(layers)}" if layers else str(self["device"])

    def _repr_html_(self) -> str:
        return result_html(self)

    def shown(self, path: str) -> Any:
        """Return a field to show; None for times of an operation that did not occur and what is not measured.

        >>> import emmclab
        >>> writes = emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[3]))
        >>> writes["requests.write"] > 0 and writes.shown("response.write.mean_ms") > 0
        True
        """
        group, _, rest = path.partition(".")
        op = rest.partition(".")[0]
        if op in ("read", "write") and not self["requests"][op]:
            return None
        if group in ("response", "service", "space") and not self["requests.total"]:
            return None
        if group == "durable":
            durable = self.get(group) or {}
            return durable.get(rest) if durable.get("requests") or rest == "requests" else None
        return self[path]

    def deterministic(self) -> dict[str, Any]:
        """Return the groups that are the same on every computer and in every run.

        >>> import emmclab
        >>> result = emmclab.Device.preset("nexus5").simulate(emmclab.read(emmclab.bundled()[0]))
        >>> sorted(set(result) - set(result.deterministic()))
        ['computing']
        """
        return {name: group for name, group in self.to_dict().items() if name != WALL_GROUP}
