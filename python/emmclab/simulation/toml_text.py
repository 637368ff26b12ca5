"""Formats values as TOML."""

import json
from typing import Any


def toml_text(value: Any) -> str:
    """Return a JSON value as TOML in one line.

    >>> toml_text({"gc": {"policy": "fifo", "blocks": [1, 2.5, True]}})
    '{"gc" = {"policy" = "fifo", "blocks" = [1, 2.5, true]}}'
    """
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(name)} = {toml_text(one)}" for name, one in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_text, value))}]"
    return json.dumps(value, ensure_ascii=False)
