"""Results of the core, parsed from JSON: ordered fields by name."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from emmclab import _core


class UnknownFieldError(KeyError):
    """A field that a document does not have; the message names a similar one."""

    def __init__(self, field: str, fields: Mapping[str, Any]) -> None:
        """Name the field, and the fields that the document has."""
        super().__init__(field)
        self._known = fields

    def __str__(self) -> str:
        """Return the message; it is made only if it is printed, since mappings are often searched."""
        field, paths = str(self.args[0]), list(_paths(self._known))
        last = field.rpartition(".")[2]
        begins = (path for path in paths if path.rpartition(".")[2].startswith(last))
        near = _core.closest(field, paths) or next(begins, None)
        hint = f"did you mean `{near}`?" if near else f"there are: {', '.join(self._known)}"
        return f"there is no field `{field}`; {hint}"


def _paths(fields: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the path of each field, groups before their fields."""
    for name, value in fields.items():
        yield f"{above}{name}"
        if isinstance(value, Mapping):
            yield from _paths(value, f"{above}{name}.")


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
        """Return all fields; the caller may change the result."""
        copy: dict[str, Any] = json.loads(json.dumps(self._fields))
        return copy
