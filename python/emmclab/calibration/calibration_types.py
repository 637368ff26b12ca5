"""Types of a calibration."""

from __future__ import annotations

from typing import TypedDict


class CalibratedFigure(TypedDict):
    """A fitted figure with its 90 % range; None if the samples do not show it."""

    name: str
    unit: str
    value: float | None
    low: float | None
    high: float | None


class CalibratedSize(TypedDict):
    """Service times of requests of one size in us: of the half used for fitting, and of the held-out half."""

    op: str
    kb: float
    requests: int
    measured_us: float
    predicted_us: float
    held_out_requests: int
    held_out_measured_us: float | None
    held_out_predicted_us: float | None
    held_out_error_pct: float | None


class DurabilityCost(TypedDict):
    """Cost of flushes, durable writes or discards, and the setting that contains it."""

    kind: str
    requests: int
    median_us: float
    setting: str | None


class Stalls(TypedDict):
    """Requests that took at least twice the usual time for their size."""

    op: str
    requests: int
    stalls: int
    median_us: float


class Calibration(TypedDict):
    """A preset fitted to measured service times, with the errors of the fit."""

    toml: str
    page_kb: list[int]
    units: int
    figures: list[CalibratedFigure]
    sizes: list[CalibratedSize]
    held_out_request_error_pct: float
    held_out_median_error_pct: float
    held_out_within_10_pct: float
    requests: int
    woken: int
    durability: list[DurabilityCost]
    stalls: list[Stalls]
    queue_depth: int
    overlapping: int
    warnings: list[str]
    packed: int
