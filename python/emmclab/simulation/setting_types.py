"""Types of the core's descriptions of the settings of a device."""

from __future__ import annotations

from typing import TypedDict


class ExplainedSetting(TypedDict):
    """A setting: values are TOML; `default` is None for entries of lists, which have none."""

    key: str
    value: str
    default: str | None
    unit: str
    #: `default`, `preset NAME`, the file, or the option that set the value.
    origin: str
    doc: str
    #: The allowed values, in words.
    allowed: str


class FittedFigure(TypedDict):
    """A published figure to which a preset was fitted, with the device's own figure."""

    source: str
    figure: str
    unit: str
    published: float
    here: float
    deviation_pct: float
    least: float
    most: float


class CapabilityValues(TypedDict):
    """Capabilities of a device."""

    interface: str
    sectors: int
    cache_kb: int
    cache_in_order: bool
    barrier: bool
    reliable_write: bool
    packed_writes: int
    packed_reads: int
    queue_depth: int


class RegisterField(TypedDict):
    """A field of the EXT_CSD register; `byte` is its lowest byte."""

    name: str
    byte: int
    bytes: int
    value: int


class Capabilities(TypedDict):
    """Capabilities of a device, as values and as register fields."""

    values: CapabilityValues
    ext_csd: list[RegisterField]
