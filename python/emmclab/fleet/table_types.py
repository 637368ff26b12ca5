"""Types of what the table of a fleet says of itself."""

from __future__ import annotations

from typing import Any, TypedDict


class Identity(TypedDict):
    """What decides a row beside the recording: version, build, and the options of `emmclab.read`."""

    version: str
    build: str
    reading: dict[str, Any]


class Bins(TypedDict):
    """A histogram: what is counted, its unit, and the upper edges of its ranges."""

    counts: str
    unit: str
    upper_edges: list[float]


class Description(TypedDict):
    """What a table is of; `metadata` are the keys of folders, `bins` the histograms by their columns."""

    identity: Identity
    metadata: list[str]
    bins: dict[str, Bins]
