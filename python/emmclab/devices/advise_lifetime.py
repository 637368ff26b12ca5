"""How long a device lives under a trace, as advice gives it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from emmclab.devices.device import Device
from emmclab.devices.result import Result
from emmclab.devices.result_fields import result_field
from emmclab.devices.result_text import without_slc
from emmclab.devices.run_options import RunOptions
from emmclab.traces.trace import Trace

#: The lifetime, in bytes that the host can write.
LIFETIME = result_field("wear.lifetime.even_host_bytes")
GB = 1 << 30
_YEAR_S = 365.25 * 86400
#: Share of the capacity that a trace has to write for an estimate of the lifetime, and the most passes.
_LIFE_SHARE = 0.01
_MOST_PASSES = 100


@dataclass(frozen=True)
class Life:
    """How long a device lives under a trace: measured on a used device."""

    #: Write amplification there.
    waf: float
    #: Bytes that the host can write until all blocks of one kind have reached their erase limit (perfect
    #: levelling), in GB.
    host_gb: float
    #: The same in years at the trace's own rate, bytes over duration; None if that lasts no time.
    years: float | None
    #: How often the trace was replayed, until it had written 1 % of the capacity.
    passes: int
    #: What the device held before.
    precondition: str

    @property
    def text(self) -> str:
        """The bytes that the host can write, as the lifetime of a run is shown."""
        return lifetime_text(self.host_gb)


def lifetime_text(host_gb: float | None) -> str:
    """Return bytes that the host can write, as the lifetime of a run is shown; a dash if unknown.

    >>> lifetime_text(5120.0), lifetime_text(None)
    ('5.00', '–')
    """
    return LIFETIME.text(None if host_gb is None else host_gb * GB)


def life_under(
    device: Device, layers: Sequence[str], traces: Sequence[Trace], base: Result, replay: RunOptions
) -> Life | None:
    """Return how long a device in use lives under traces.

    None if the device has no erase limit, stops early, or nothing is written. `base` is the run of the traces
    on the device without layers, and `replay` are the options of the run, with the state of the used device.
    """
    written = base.fields["requests"]["bytes_written"]
    if not written:
        return None
    passes = min(
        _MOST_PASSES, math.ceil(_LIFE_SHARE * base.fields["configuration"]["capacity_bytes"] / written)
    )
    aged: RunOptions = {
        "images": replay.get("images"),
        "images_limit": replay.get("images_limit"),
        "precondition": replay["precondition"],
        "seed": replay["seed"],
        "passes": passes,
        "layers": layers,
        "wrap_addresses": True,
    }
    run = device.simulate(*traces, **aged)
    lifetime = run.fields["wear"]["lifetime"]
    if not lifetime or run.fields["run"]["stopped"]:
        return None
    host_bytes = lifetime["even_host_bytes"]
    # As fast as possible is not the trace's own rate.
    seconds = 0.0 if base.fields["run"]["mode"] == "back_to_back" else base.fields["run"]["simulated_s"]
    years = host_bytes / (written / seconds) / _YEAR_S if seconds else None
    waf = run.fields["write_amplification"]["waf"]
    return Life(waf, host_bytes / GB, years, passes, str(run.fields["options"]["precondition"]))


def said(life: Life, base: Result) -> str:
    """Say in a sentence where a lifetime comes from."""
    times = "once" if life.passes == 1 else f"{life.passes} times"
    rate = (
        base.fields["requests"]["bytes_written"] / base.fields["run"]["simulated_s"] * 86400 / 2**30
        if base.fields["run"]["simulated_s"]
        else 0.0
    )
    left_out = f"; {text}" if (text := without_slc(base)) else ""
    own = "" if life.years is None else f"; years at the trace's own rate of {rate:,.1f} GB a day"
    return (
        "Lifetime: bytes that the host can write until all blocks of one kind (of a block group, or in SLC "
        "mode) have reached their erase limit, on a device in use "
        f"(`--precondition {life.precondition}`, then this trace {times}){own}{left_out}."
    )
