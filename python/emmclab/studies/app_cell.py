"""Cells of a study that run an application in closed loop."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from emmclab import _core
from emmclab.apps.closed_loop import run_application
from emmclab.devices.device import Device

#: The mode of grids whose inputs are applications.
APP = "app"


def digest_of(described: _core.Program | _core.HostSetup) -> str:
    """SHA-256, first 16 digits, of an application or a host; comments of its file do not matter."""
    return hashlib.sha256(described.to_json().encode()).hexdigest()[:16]


def run_app_cell(
    source: str, device: Device, options: Mapping[str, Any], seed: int, images: Any
) -> dict[str, Any]:
    """Run an application; give the result of the device with that of the application as `app`."""
    names = ("network", "host", "precondition", "layers", "layer_settings", "second", "what_if")
    chosen = {name: options[name] for name in names if options.get(name)}
    if images is not None and images.limit:
        chosen |= {"images": images.folder, "images_limit": images.limit}
    found = run_application(source, device, seed=seed, **chosen)
    app = {**found["app"], "runtime_s": found.runtime_s, "storage_s": found.storage_s}
    return {**found["device"], "app": app}
