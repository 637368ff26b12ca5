"""Immutable mappings of the fields of a result of the core."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from emmclab import _core


class UnknownFieldError(KeyError):
    """The error for an unknown field; the message suggests a similar one."""

    def __init__(self, field: str, fields: Mapping[str, Any]) -> None:
        """Store the unknown field and the existing fields."""
        super().__init__(field)
        self._fields = fields

    def __str__(self) -> str:
        """Return the message; it is computed only here, because most of these errors are caught and not printed."""
        field, paths = str(self.args[0]), list(_paths(self._fields))
        last = field.rpartition(".")[2]
        same_start = (path for path in paths if path.rpartition(".")[2].startswith(last))
        similar = _core.closest(field, paths) or next(same_start, None)
        hint = f"did you mean `{similar}`?" if similar else f"there are: {', '.join(self._fields)}"
        return f"there is no field `{field}`; {hint}"


def _paths(fields: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the path of each field, such as `response.p99_ms`; a group precedes its fields."""
    for name, value in fields.items():
        yield f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _paths(value, f"{prefix}{name}.")


class FieldMapping(Mapping[str, Any]):
    """A mapping of the fields that a command prints with `--json`; immutable.

    >>> FieldMapping({"name": "chat", "requests": 400})["requests"]
    400
    >>> FieldMapping({"response": {"p99_ms": 1.5}})["p99"]
    Traceback (most recent call last):
    ...
    emmclab.runtime.field_mapping.UnknownFieldError: there is no field `p99`; did you mean `response.p99_ms`?
    """

    def __init__(self, fields: dict[str, Any]) -> None:
        """Wrap the fields, as the core returns them."""
        self._fields = fields

    def __getitem__(self, field: str) -> Any:
        try:
            return self._fields[field]
        except KeyError:
            raise UnknownFieldError(field, self._fields) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def to_dict(self) -> dict[str, Any]:
        """Return a deep copy of all fields, which the caller may change."""
        copy: dict[str, Any] = json.loads(json.dumps(self._fields))
        return copy
