"""Types of the description in a fleet's table."""

from typing import Any, TypedDict


class Identity(TypedDict):
    """What determines a row besides the recording: version, build, and the options of `emmclab.read`."""

    version: str
    build: str
    reading: dict[str, Any]


class Bins(TypedDict):
    """A histogram: what is counted, its unit, and the upper edges of its bins."""

    counts: str
    unit: str
    upper_edges: list[float]


class Description(TypedDict):
    """Description of a table; `metadata` are the keys of folders, `bins` the histograms by column."""

    identity: Identity
    metadata: list[str]
    bins: dict[str, Bins]
