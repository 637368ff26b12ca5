"""The options of a run, as its result repeats them."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from emmclab.simulation.layers import Setting


class ResultOptions(TypedDict):
    """Requested options of a run; the keys are those of `run_options`, without `_ns`."""

    precondition: str
    seed: int
    check: bool
    rate: float
    passes: int
    wrap_addresses: bool
    drain: bool
    #: A served device has neither these two nor the first writes.
    mode: NotRequired[str]
    start_offset: NotRequired[int]
    first_writes: NotRequired[int]
    #: Only if flushes were added.
    flush_every: NotRequired[int]
    #: Only for runs with layers.
    layers: NotRequired[list[str]]
    layer_settings: NotRequired[dict[str, Setting]]
    second: NotRequired[str | None]
    #: The name of the caller's function.
    victim: NotRequired[str]
    #: In studies, the capacity to which the device was scaled.
    capacity: NotRequired[str]
    #: Only for a served device.
    clock: NotRequired[str]
    think: NotRequired[bool]
    image: NotRequired[str | None]
