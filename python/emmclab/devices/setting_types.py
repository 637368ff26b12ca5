"""Types of what the core says of the settings of a device."""

from __future__ import annotations

from typing import TypedDict


class ExplainedSetting(TypedDict):
    """A setting: values are TOML; `default` is None for entries of lists, which have none."""

    key: str
    value: str
    default: str | None
    unit: str
    #: `default`, `preset NAME`, the file, or the option that set it.
    origin: str
    doc: str
    #: What it allows, in words.
    allowed: str


class FittedFigure(TypedDict):
    """A published figure that a preset was fitted to, beside the device's own."""

    source: str
    figure: str
    unit: str
    published: float
    here: float
    deviation_pct: float
    least: float
    most: float


class CapabilityValues(TypedDict):
    """What a device can do."""

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
    """A field of the register EXT_CSD; `byte` is its lowest."""

    name: str
    byte: int
    bytes: int
    value: int


class Capabilities(TypedDict):
    """What a device can do, as values and as its register says it."""

    values: CapabilityValues
    ext_csd: list[RegisterField]
