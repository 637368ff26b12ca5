"""Cells of a study that run an application in closed loop."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from emmclab.apps import program_of, run_application, setup_of
from emmclab.device import Device

#: The mode of grids whose inputs are applications.
APP = "app"


def app_digest(name: str) -> str:
    """SHA-256, first 16 digits, of an application.

    Raises:
        ConfigError: there is no such application, or its file is wrong.
    """
    return _digest(program_of(name).to_json())


def host_digest(name: str) -> str:
    """SHA-256, first 16 digits, of a host.

    Raises:
        ConfigError: there is no such host, or its file is wrong.
    """
    return _digest(setup_of(name).to_json())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def run_app_cell(
    source: str, device: Device, options: Mapping[str, Any], seed: int, images: Any
) -> dict[str, Any]:
    """Run an application; give the result of the device with that of the application as `app`."""
    names = ("network", "host", "precondition", "layers", "layer_settings", "second", "what_if")
    chosen = {name: options[name] for name in names if options.get(name)}
    folder = images.folder if images is not None and images.limit else None
    found = run_application(source, device, seed=seed, images=folder, **chosen)
    app = {**found["app"], "runtime_s": found.runtime_s, "storage_s": found.storage_s}
    return {**found["device"], "app": app}
