"""Layers: host software between the workload and the device."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from emmclab import _core
from emmclab.errors import ConfigError

#: A value of a setting; sizes are written as `256MiB`.
Setting = str | int | float | bool


def layers() -> list[dict[str, Any]]:
    """List the layers there are: `name`, `about` and `settings`.

    Each setting has `name`, `default`, `unit` and `about`; one without default (`None`) is worked out from
    the device or from other settings, as `about` says.

    >>> [layer["name"] for layer in layers()]
    ['pass-through', 'advil', 'ressd', 'pair']
    """
    found: list[dict[str, Any]] = json.loads(_core.layer_kinds())
    return found


def stack(names: Sequence[str], settings: Mapping[str, Setting]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Put layers by name together with their settings, given as `{"advil.reserved": "256MiB"}`.

    Raises:
        ConfigError: there is no such layer, or a setting belongs to no layer of the stack.

    >>> stack(["advil"], {"advil.hot": "none"})
    [('advil', [('hot', 'none')])]
    """
    known = [layer["name"] for layer in layers()] if names else []
    for name in names:
        if name not in known:
            hint = f"choose from: {', '.join(known)}"
            raise ConfigError(f"there is no layer `{name}`", kind="config", field="layers", hint=hint)
    for key in settings:
        if key.partition(".")[0] not in names:
            raise ConfigError(
                f"`{key}` is a setting of no layer of this run",
                kind="config",
                field=key,
                hint=f"the layers are: {', '.join(names) or 'none'}",
            )

    def of(name: str) -> list[tuple[str, str]]:
        return [
            (key.removeprefix(f"{name}."), value if isinstance(value, str) else json.dumps(value))
            for key, value in settings.items()
            if key.startswith(f"{name}.")
        ]

    return [(name, of(name)) for name in names]
