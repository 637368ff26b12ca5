"""The fields of a result: path, unit, meaning, column in SQL, and the name in flat results."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

_FILE = Path(__file__).parent / "data" / "result-fields.toml"


class ResultField(NamedTuple):
    """A field; `path` names its groups, as `response.read.p99_ms`."""

    path: str
    unit: str
    about: str
    #: The name in results before they were nested; empty for a new field.
    was: str = ""
    #: The column of the SQL table `runs`.
    column: str = ""


class ResultGroup(NamedTuple):
    """A group of fields."""

    name: str
    about: str
    fields: tuple[ResultField, ...]


@functools.cache
def result_groups() -> tuple[ResultGroup, ...]:
    """Give all fields by group, in the order of the JSON output.

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
    """Give all fields."""
    return [field for group in result_groups() for field in group.fields]


@functools.cache
def old_names() -> dict[str, str]:
    """Give the path of each field by its name in flat results.

    >>> old_names()["p99_response_ms"]
    'response.p99_ms'
    """
    return {field.was: field.path for field in result_fields() if field.was}


def at(fields: Mapping[str, Any], path: str) -> Any:
    """Give a value by its path; None below a group that a result does not have.

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
