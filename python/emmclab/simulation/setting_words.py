"""The allowed words for settings of a device, with their meanings."""

import json
from typing import Any

from emmclab import _core


def choices(key: str) -> list[tuple[str, str]]:
    """Return the allowed words for a setting of a device, each with its meaning; empty if it has none.

    >>> [word for word, _ in choices("cache.write_back")]
    ['eager', 'idle', 'when_full']
    >>> choices("cache.size_kb")
    []
    """
    schema: dict[str, Any] = json.loads(_core.device_schema())
    node = schema
    for part in key.split("."):
        if part.isdigit():
            continue
        node = _resolved(node.get("properties", {}).get(part, {}), schema)
    return [
        (one["const"], " ".join(one["description"].split()))
        for one in node.get("oneOf", [])
        if "const" in one and "description" in one
    ]


def _resolved(node: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the definition to which a node refers; for a list, the definition of its elements."""
    while "$ref" in node or "items" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node["items"]
    return node
