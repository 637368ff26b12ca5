"""Time of a workload on ext4 under each mode of the layer `journal`: live, and replayed.

    .venv/bin/python benches/live_journal.py [--device emmc51-cache] [--inserts 300]

Records inserts of SQLite (WAL, full) on the device without a layer, in free time, replays that trace in
closed loop through each mode, and runs the inserts live through the same mode. Times include mkfs. ext4
does not send the same requests in every run; for equal requests the times are equal, which
crates/live/tests/live_equals_simulated.rs proves. Needs root, FUSE and loop devices.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import emmclab as lab

MODES = ("legacy", "ordered_fua", "delta", "packed", "aware", "no_barrier", "no_journal")
_INSERTS = """
import sqlite3, sys
base = sqlite3.connect(sys.argv[1] + "/a.db", isolation_level=None)
base.execute("pragma journal_mode=wal")
base.execute("pragma synchronous=full")
base.execute("create table t(a, b)")
for number in range(int(sys.argv[2])):
    base.execute("insert into t values (?, ?)", (number, "x" * 100))
"""


def served(device: str, layers: list[str], inserts: int, folder: Path) -> lab.Trace:
    """Run the inserts on a served device; return the trace with the times of its simulation."""
    trace, mount = folder / f"{len(list(folder.iterdir()))}.parquet", folder / "mount"
    mount.mkdir(exist_ok=True)
    with lab.serve(device, layers=layers, clock="free", mkfs="ext4", mount=mount, record=trace) as disk:
        status = disk.run([sys.executable, "-c", _INSERTS, str(mount), str(inserts)])
        if status:
            raise SystemExit(f"the inserts failed, exit status {status}")
    return lab.read(trace)


def duration(trace: lab.Trace) -> tuple[float, int]:
    """Return the seconds from the first arrival to the last completion, and the number of requests."""
    rows = trace.to_arrow()
    arrivals, completions = (rows[name].to_pylist() for name in ("arrival_ns", "complete_ns"))
    return (max(completions) - min(arrivals)) / 1e9, len(arrivals)


def main() -> None:
    """Print a row for each mode."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="emmc51-cache")
    parser.add_argument("--inserts", type=int, default=300)
    given = parser.parse_args()
    device = lab.Device.preset(given.device)
    with tempfile.TemporaryDirectory() as name:
        plain = served(given.device, [], given.inserts, Path(name))
        print(f"{'mode':12} {'live s':>8} {'requests':>9} {'replayed s':>11} {'requests':>9}")
        for mode in MODES:
            layers = [f"journal:{mode}"]
            seconds, requests = duration(served(given.device, layers, given.inserts, Path(name)))
            # Addresses at the place of the layer's log are wrapped: mkfs accesses the end of the device.
            run = device.simulate(plain, layers=layers, mode="closed", wrap_addresses=True)
            replayed = f"{run['run.simulated_s']:11.3f} {run['requests.total']:9,}"
            print(f"{mode:12} {seconds:8.3f} {requests:9,} {replayed}", flush=True)


if __name__ == "__main__":
    main()
