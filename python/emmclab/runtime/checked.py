"""JSON with its own SHA-256, for data stored between runs, so that damage is detected."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

#: The key with the SHA-256 of all other entries.
_CHECK = "sha256_of_the_rest"


def checked(value: Mapping[str, Any]) -> bytes:
    """Return a table as JSON with its checksum.

    >>> checked_value(checked({"a": 1}))
    {'a': 1}
    """
    return (json.dumps({**value, _CHECK: _sum(value)}, indent=1) + "\n").encode()


def checked_value(text: bytes | str) -> dict[str, Any] | None:
    """Return the table that was written; None if the text is damaged or has no checksum.

    >>> checked_value(checked({"a": 1}).replace(b"1", b"2", 1)), checked_value("{}"), checked_value("[")
    (None, None, None)
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    check = found.pop(_CHECK, None)
    return found if check == _sum(found) else None


def _sum(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
