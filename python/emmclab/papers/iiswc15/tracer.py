"""Section II-C: the requests that a tracer's own log adds, as measured on a machine of ours."""

from __future__ import annotations

import json
from importlib.resources import files

from emmclab.papers.measuring import Measurement, measure
from emmclab.study.results import Results


@measure
def overhead(_results: Results) -> Measurement:
    """Requests that writing a log of 32 KB for every 300 requests adds on ext4."""
    found = json.loads(files(__package__).joinpath("tracer-overhead.json").read_text("utf-8"))
    added = found["added_per_log"]
    on_device = found["recorder_added_on_the_device"]
    return Measurement(
        f"{added['mean']:.1f} requests per log of {found['log_kb']} KB ({added['least']} - {added['most']}), "
        f"for every {found['requests_per_log']} recorded; `emmclab record` adds "
        f"{max(found['recorder_added'], 0):.1f}, or {on_device:.1f} where it records to the same device",
        {"added": added["mean"]},
        "Reading: the paper's traces hold reads and writes, so these are counted, with the metadata that the "
        f"log causes to be written later ({found['without_delayed_metadata']:.1f} without it, "
        f"{added['mean'] + found['flushes_beside']:.1f} with the flush commands). Measured with "
        f"{found['logs']} logs on {found['file_system']} on a loop device under Linux {found['kernel']} "
        "(benches/tracer_overhead.py): open, append, fsync, close.",
    )
