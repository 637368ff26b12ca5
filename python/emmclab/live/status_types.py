"""Types of the figures of a served device."""

from __future__ import annotations

from typing import TypedDict

from emmclab.simulation.result_types import Refusal, SettingChange


class FoundImage(TypedDict):
    """What the image of an earlier run contained."""

    image: bool
    #: Whether that run ended cleanly.
    clean: bool
    #: Map units in the image that were missing in the saved tables.
    units_entered: int
    setting_changes: list[SettingChange]


class LiveStatus(TypedDict):
    """Totals of a served device, and figures of the time since the last call (`interval_*`, `response_*`)."""

    clock: str
    simulated_s: float
    powered: bool
    cuts: int
    requests: int
    bytes_read: int
    bytes_written: int
    failed: int
    open: int
    interval_s: float
    interval_requests: int
    interval_bytes: int
    response_p50_us: float | None
    response_p99_us: float | None
    volatile_bytes: int
    waf: float | None
    free_blocks: int
    collections: int
    erases: int
    wake_ups: int
    late_p50_us: float | None
    late_p99_us: float | None
    file_system: str | None
    setting_changes: list[SettingChange]
    stopped: str | None
    refused: list[Refusal]
    image_error: str | None
