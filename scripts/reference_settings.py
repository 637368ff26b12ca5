"""Makes the page of a device's settings, from its JSON Schema and from what `emmclab explain` knows."""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from emmclab import _core
from emmclab.simulation.device import Device

#: Settings that are required in a file, with the smallest values that make a device.
NEEDED = {"page_kb": 4, "blocks": 512, "pages_per_block": 64}
#: Settings of which some choices have further settings.
CHOICES = ("gc.policy", "allocation.policy", "mapping.scheme")
#: Maximum values of the kinds of numbers that the schema names.
MOST = {"uint8": 2**8 - 1, "uint16": 2**16 - 1, "uint32": 2**32 - 1, "uint64": 2**63 - 1}
_INTRODUCTION = """# Settings of a device

A device file is TOML; `--set SECTION.KEY=VALUE` changes one setting, an axis of a study sweeps it, and
`emmclab explain DEVICE` prints all of them with the values of that device and where each came from. An
unknown key, a value outside its range and settings that contradict each other are errors, all found at
once, before a run begins.

A file gives at least one `[[geometry.block_groups]]` with `page_kb`, `blocks` and `pages_per_block`. *0
to N* is the range in which a number is accepted by itself; other settings bound some further, and the
error says which.
"""


def settings_page(table: Callable[[list[str], list[list[str]]], str]) -> str:
    """Describe every setting: default, unit, allowed values or range, meaning."""
    schema = json.loads(_core.device_schema())
    rows = {row["key"]: row for row in _rows()}
    for path in _paths(schema, schema):
        # Lists that are empty by default, but whose items have settings.
        rows.setdefault(path, {"key": path, "value": "", "unit": "", "doc": _doc(schema, path), "allowed": ""})
    parts = [_INTRODUCTION]
    sections = dict.fromkeys(key.rpartition(".")[0].partition(".")[0] for key in rows)
    for section in sorted(sections):
        node = _node(schema, section)
        title = f"`[{section}]`" if section else "At the top"
        about = node.get("description", "") if section else "The device by itself."
        parts.append(f"\n## {title}\n\n{about}\n\n")
        mine = [row for key, row in sorted(rows.items()) if key.rpartition(".")[0].partition(".")[0] == section]
        parts.append(table(["setting", "default", "unit", "allowed", "meaning"], [_cells(schema, row) for row in mine]))
    return "".join(parts)


def _rows() -> Iterator[dict[str, Any]]:
    """Yield the settings of the smallest device, and those of each choice that has its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "device.toml"
        lines = [f"{key} = {value}" for key, value in NEEDED.items()]
        file.write_text("\n".join(["[[geometry.block_groups]]", *lines, ""]))
        plain = Device.file(file)
    yield from plain.explain()
    known = {row["key"] for row in plain.explain()}
    allowed = {row["key"]: row["allowed"].split(", ") for row in plain.explain()}
    for choice in CHOICES:
        for word in allowed[choice]:
            yield from (row for row in plain.set({choice: word}).explain() if row["key"] not in known)


def _cells(schema: dict[str, Any], row: dict[str, Any]) -> list[str]:
    key = row["key"]
    default = "required" if key.rpartition(".")[2] in NEEDED and "block_groups" in key else row["value"]
    shown = default if default in ("", "required") else f"`{default}`"
    return [f"`{key}`", shown, row["unit"], row["allowed"] or _kind(_node(schema, key)), row["doc"]]


def _kind(node: dict[str, Any]) -> str:
    """Return the range of a number by its kind in the schema, or describe its type."""
    if node.get("type") == "integer" and node.get("format") in MOST:
        return f"{node.get('minimum', 0):,} to {MOST[node['format']]:,}"
    return {"string": "text", "array": "a list", "number": "a number", "integer": "a whole number"}.get(
        str(node.get("type")), ""
    )


def _paths(schema: dict[str, Any], node: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the path of every setting of the items of lists."""
    for key, inner in node.get("properties", {}).items():
        here = f"{path}.{key}" if path else key
        inner = _resolved(schema, inner)
        items = _resolved(schema, inner.get("items", {}))
        if "properties" in items:
            yield from (f"{here}.0.{name}" for name in items["properties"])
        else:
            yield from _paths(schema, inner, here)


def _node(schema: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the schema of a dotted key; a number in the key is the index of an item of a list."""
    node = schema
    for part in filter(None, key.split(".")):
        inner = node.get("items", {}) if part.isdigit() else node.get("properties", {}).get(part, {})
        # A setting has its own meaning, not that of its kind.
        node = {**_resolved(schema, inner), **inner}
    return node


def _doc(schema: dict[str, Any], key: str) -> str:
    return str(_node(schema, key).get("description", ""))


def _resolved(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    name = str(node.get("$ref", "")).rpartition("/")[2]
    found: dict[str, Any] = schema["$defs"][name] if name else node
    return found
