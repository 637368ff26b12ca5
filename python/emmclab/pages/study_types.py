"""Types of the content of a study's page."""

from __future__ import annotations

from typing import Any, TypedDict

from emmclab.studies.summary import Metric


class Answer(TypedDict):
    """The best and the worst setting by a metric, in words."""

    label: str
    best: str
    best_value: str
    worst: str
    worst_value: str
    change: str
    equal: bool
    note: str
    inputs: int


class EffectRow(TypedDict):
    """The effect of a key on a metric, in words."""

    label: str
    key: str
    best: str
    best_value: str
    worst: str
    worst_value: str
    change: str
    pairs: str
    note: str


class TableRow(TypedDict):
    """An input with a setting; each cell has the mean, the range over the seeds, and the sort key."""

    input: str
    setting: list[str]
    cells: list[tuple[str, str, float | str]]
    badge: str


class GridTable(TypedDict):
    """The table of a grid: the swept keys, the metrics, and the number of omitted rows."""

    grid: str
    keys: list[str]
    several: bool
    metrics: tuple[Metric, ...]
    rows: list[TableRow]
    left_out: int


class InputRow(TypedDict):
    """An input: text and value of each field, changes made on reading, and the digest of its file."""

    name: str
    kind: str
    cells: list[tuple[str, Any]]
    ledger: str
    digest: str | None
