"""The fields of a result: path, unit, meaning, and column in SQL."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import NamedTuple

_FILE = Path(__file__).parents[1] / "data" / "result-fields.toml"


class ResultField(NamedTuple):
    """A field; `path` names its groups, as `response.read.p99_ms`."""

    path: str
    unit: str
    about: str
    #: The column of the SQL table `runs`.
    column: str = ""


class ResultGroup(NamedTuple):
    """A group of fields."""

    name: str
    about: str
    fields: tuple[ResultField, ...]


@functools.cache
def result_groups() -> tuple[ResultGroup, ...]:
    """Return all fields by group, in the order of the JSON output.

    >>> [group.name for group in result_groups()][2:5]
    ['run', 'requests', 'response']
    """
    table = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return tuple(
        ResultGroup(
            group["name"],
            group["about"],
            tuple(ResultField(**{"column": one["path"].replace(".", "_"), **one}) for one in group["fields"]),
        )
        for group in table["group"]
    )


def result_fields() -> list[ResultField]:
    """Return the fields of all groups, in the order of the JSON output."""
    return [field for group in result_groups() for field in group.fields]
