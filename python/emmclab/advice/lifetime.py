"""Estimates the lifetime of a device under a trace."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from emmclab.simulation.device import Device
from emmclab.simulation.result import Result
from emmclab.simulation.result_fields import result_field
from emmclab.simulation.result_text import without_slc
from emmclab.simulation.run_options import RunOptions
from emmclab.traces.trace import Trace

#: Result field with the lifetime, in bytes that the host can write.
LIFETIME = result_field("wear.lifetime.even_host_bytes")
GB = 1 << 30
_YEAR_S = 365.25 * 86400
#: Share of the capacity that replays must write for an estimate of the lifetime. There are at most `_MOST_PASSES`
#: replays.
_LIFE_SHARE = 0.01
_MOST_PASSES = 100


@dataclass(frozen=True)
class Life:
    """Lifetime of a device under a trace, measured on a used device."""

    #: Write amplification factor of this run.
    waf: float
    #: Data that the host can write until all blocks of one kind have reached their erase limit, in GB (with perfect
    #: wear levelling).
    host_gb: float
    #: Years until the host has written `host_gb` at the average write rate of the trace; None if the trace has no
    #: duration.
    years: float | None
    #: Number of replays of the trace until 1 % of the capacity was written.
    passes: int
    #: Data on the device before the run, as a value of the option `precondition`.
    precondition: str

    @property
    def text(self) -> str:
        """The number of bytes that the host can write until the device is worn out, formatted as text."""
        return lifetime_text(self.host_gb)


def lifetime_text(host_gb: float | None) -> str:
    """Format bytes that the host can write as the lifetime of a run; a dash if unknown.

    >>> lifetime_text(5120.0), lifetime_text(None)
    ('5.00', '–')
    """
    return LIFETIME.text(None if host_gb is None else host_gb * GB)


def life_under(
    device: Device, layers: Sequence[str], traces: Sequence[Trace], base: Result, replay: RunOptions
) -> Life | None:
    """Return the lifetime of a used device under traces.

    Return None if the traces write nothing, the device has no erase limit, or the run stops early. `base` is the run of
    the traces on the device without layers. `replay` contains the options of the run, including the state of the used
    device.
    """
    bytes_written = base.requests.bytes_written
    if not bytes_written:
        return None
    passes = min(_MOST_PASSES, math.ceil(_LIFE_SHARE * base.configuration.capacity_bytes / bytes_written))
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
    lifetime = run.wear.lifetime
    host_bytes = lifetime.even_host_bytes if lifetime else None
    if host_bytes is None or run.run.stopped:
        return None
    # The request rate in the mode `back_to_back` is not that of the trace, so it determines no lifetime in years.
    seconds = 0.0 if base.run.mode == "back_to_back" else base.run.simulated_s
    years = host_bytes / (bytes_written / seconds) / _YEAR_S if seconds else None
    waf = run.write_amplification.waf
    return Life(waf, host_bytes / GB, years, passes, str(run.options["precondition"]))


def measurement_text(life: Life, base: Result) -> str:
    """Return a sentence that explains how a lifetime was measured."""
    times = "once" if life.passes == 1 else f"{life.passes} times"
    rate = base.requests.bytes_written / base.run.simulated_s * 86400 / GB if base.run.simulated_s else 0.0
    left_out = f"; {text}" if (text := without_slc(base)) else ""
    in_years = "" if life.years is None else f"; years at the trace's own rate of {rate:,.1f} GB a day"
    return (
        "Lifetime: bytes that the host can write until all blocks of one kind (of a block group, or in SLC "
        "mode) have reached their erase limit, on a device in use "
        f"(`--precondition {life.precondition}`, then this trace {times}){in_years}{left_out}."
    )
