"""Types of the options of a cell, as its grid asks for them and results keep them."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from emmclab.devices.layers import Setting


class SharedOptions(TypedDict, total=False):
    """The options that all cells of a grid have, whatever they run."""

    precondition: str
    rate: float
    wrap_addresses: bool
    capacity: str


class Software(TypedDict, total=False):
    """The layers of a cell, with their settings and the second device."""

    layers: list[str]
    layer_settings: dict[str, Setting]
    second: str | None


class LayerOptions(Software, total=False):
    """The options of replays with layers."""

    first_writes: int
    drain: bool


class PercentileOptions(TypedDict, total=False):
    """The chosen percentiles of replays and profiles."""

    percentiles: list[float]


class HostOptions(TypedDict, total=False):
    """The host of applications; `host_digest` is of its file."""

    host: str
    host_digest: str
    network: str


class CutFields(TypedDict, total=False):
    """The options of power cuts, as `CutOptions`."""

    file_system: str
    mkfs: list[str]
    mount: str
    recovery: str
    operations: int
    cuts: int
    states: str
    recovery_cuts: int


class CellOptions(SharedOptions, LayerOptions, PercentileOptions, HostOptions, CutFields, total=False):
    """The options of a cell; its mode decides which it has, and a profile has percentiles only."""

    mode: str


class ImageOptions(TypedDict, total=False):
    """The options of a run that shares preconditioned devices; empty if it does not."""

    images: Path
    images_limit: int
