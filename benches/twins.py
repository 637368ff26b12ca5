"""The accuracy of synthetic twins: each trace and its twins run on the same simulated devices.

    .venv/bin/python benches/twins.py TRACE... [--published Messaging=TRACE] [--seeds 1,2,3] [--json FILE]

Every trace goes through `fit`, its model makes one twin per seed, and both go through the three devices of
the IISWC 2015 study, open loop, on a new device, with chips alone (2-way) and with dies and planes (8-way)
working in parallel. Printed: mean response of the trace, and by how many percent its twins are off: mean over
the seeds, and the worst seed. `--published` compares a bundled workload with the trace that it represents.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path

import emmclab
from emmclab.simulation.device import Device
from emmclab.traces.trace import Trace
from emmclab.traces.workload import Workload, differences, fit

DEVICES = ("iiswc15-4ps", "iiswc15-8ps", "iiswc15-hps")
UNITS = {"none": "2-way", "both": "8-way"}


def responses(trace: Trace) -> dict[str, float]:
    """Return simulated mean responses in ms by device and unit of parallelism."""
    found = {}
    for unit, words in UNITS.items():
        for name in DEVICES:
            device = Device.preset(name).set({"timing.parallelism": unit})
            result = device.simulate(trace, mode="open", wrap_addresses=True)
            found[f"{name.removeprefix('iiswc15-')} {words}"] = result["response.mean_response_ms"]
    return found


def worst_field(trace: Trace, twin: Trace) -> str:
    """Return the field of Tables III and IV that differs most."""
    rows = [row for row in differences(trace.profile(), twin.profile()) if row["difference_pct"] is not None]
    worst = max(rows, key=lambda row: abs(row["difference_pct"]))
    return f"{worst['field']} {worst['difference_pct']:+.2f} %"


def compare(name: str, trace: Trace, model: Workload, seeds: Iterable[int]) -> list[dict[str, object]]:
    """Print and return one row for each device and unit."""
    twins = [model.trace(seed) for seed in seeds]
    real, made = responses(trace), [responses(twin) for twin in twins]
    size = len(model.to_toml())
    print(f"\n{name}: model of {size} bytes; Tables III and IV: worst {worst_field(trace, twins[0])}")
    print(f"  {'':<12}{'trace, ms':>12}{'twin, ms':>12}{'off, %':>10}{'worst, %':>10}")
    rows: list[dict[str, object]] = []
    for setting, value in real.items():
        mean = statistics.mean(twin[setting] for twin in made)
        off = 100 * (mean / value - 1)
        worst = max((100 * (twin[setting] / value - 1) for twin in made), key=abs)
        print(f"  {setting:<12}{value:>12.3f}{mean:>12.3f}{off:>+10.1f}{worst:>+10.1f}", flush=True)
        rows.append(
            {
                "trace": name,
                "setting": setting,
                "trace_ms": value,
                "twin_ms": mean,
                "off_pct": off,
                "worst_pct": worst,
            }
        )
    return rows


def main() -> None:
    """Measure the given traces."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE")
    parser.add_argument("--published", action="append", default=[], metavar="NAME=TRACE")
    parser.add_argument("--seeds", default="1,2,3", help="as 1,2,3")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the rows as a list of objects")
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    rows = []
    for path in given.traces:
        trace = emmclab.read(path)
        rows += compare(trace.name, trace, fit(trace), seeds)
    for pair in given.published:
        name, _, path = pair.partition("=")
        rows += compare(f"{name} as published", emmclab.read(path), Workload.preset(name), seeds)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")
    if rows:
        worst = max(rows, key=lambda row: abs(float(str(row["worst_pct"]))))
        print(f"\nworst: {worst['trace']} on {worst['setting']}: {worst['worst_pct']:+.1f} %")
    else:
        sys.exit("give at least one trace")


if __name__ == "__main__":
    main()
