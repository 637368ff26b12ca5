"""Results of the core, parsed from JSON: ordered fields by name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


class Document(Mapping[str, Any]):
    """A mapping of the fields that a command prints with `--json`; immutable.

    >>> Document({"name": "chat", "requests": 400})["requests"]
    400
    """

    def __init__(self, fields: dict[str, Any]) -> None:
        """Wrap the fields, as the core returns them."""
        self._fields = fields

    def __getitem__(self, field: str) -> Any:
        return self._fields[field]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields; the caller may change the result."""
        copy: dict[str, Any] = json.loads(json.dumps(self._fields))
        return copy
