"""Section II-C: the requests that a tracer's own log adds, as measured on our machine."""

import json
from importlib.resources import files

from emmclab.papers.measures import Measurement, measure
from emmclab.studies.results import Results


@measure
def overhead(_results: Results) -> Measurement:
    """Measure the requests that writing a log of 32 KB for every 300 requests adds on ext4."""
    found = json.loads(files(__package__).joinpath("tracer-overhead.json").read_text("utf-8"))
    added, on_device = found["added_per_log"], found["recorder_added_on_the_device"]
    return Measurement(
        f"{added:.1f} requests per log of {found['log_kb']} KB, for every {found['requests_per_log']} "
        "recorded; "
        f"`emmclab record` adds {max(found['recorder_added'], 0):.1f}, or {on_device:.1f} where it records "
        "to the "
        "same device",
        {"added": added},
        "Reading: the paper's traces hold reads and writes, so these are counted. With the flush commands "
        f"{found['with_flushes']:.1f}; if the metadata of each log were written before the next one, "
        f"{found['metadata_written_at_once']:.1f}. Measured with {found['logs']} logs on "
        f"{found['file_system']} on "
        f"a loop device under Linux {found['kernel']} (benches/tracer_overhead.py): open, append, fsync, "
        "close.",
    )
