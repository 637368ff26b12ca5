"""Types of the options of a cell, in grids and in stored results."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from emmclab.simulation.layers import Setting


class SharedOptions(TypedDict, total=False):
    """The options that all kinds of cells have."""

    precondition: str
    rate: float
    wrap_addresses: bool
    flush_every: int
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
    """The options of applications; `host_digest` is that of the host's file."""

    host: str
    host_digest: str
    network: str


class CutFields(TypedDict, total=False):
    """The options of power cuts, like `CutOptions`."""

    file_system: str
    mkfs: list[str]
    mount: str
    recovery: str
    operations: int
    cuts: int
    states: str
    recovery_cuts: int


class CellOptions(SharedOptions, LayerOptions, PercentileOptions, HostOptions, CutFields, total=False):
    """The options of a cell; its mode determines which of them it has, and a profile has only percentiles."""

    mode: str


class ImageOptions(TypedDict, total=False):
    """Options for sharing preconditioned devices between runs; empty if they are not shared."""

    images: Path
    images_limit: int
