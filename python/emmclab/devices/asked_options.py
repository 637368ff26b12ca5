"""The options of a run as its result repeats them."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from emmclab.devices.layers import Setting


class AskedOptions(TypedDict):
    """How a run was asked for; the keys are those of `run_options`, without `_ns`."""

    precondition: str
    seed: int
    check: bool
    rate: float
    passes: int
    wrap_addresses: bool
    drain: bool
    #: These two, and the first writes, a served device does not have.
    mode: NotRequired[str]
    start_offset: NotRequired[int]
    first_writes: NotRequired[int]
    #: With layers only.
    layers: NotRequired[list[str]]
    layer_settings: NotRequired[dict[str, Setting]]
    second: NotRequired[str | None]
    #: The name of a function of the caller.
    victim: NotRequired[str]
    #: In studies, the capacity that the device was scaled to.
    capacity: NotRequired[str]
    #: Of a served device only.
    clock: NotRequired[str]
    think: NotRequired[bool]
    image: NotRequired[str | None]
