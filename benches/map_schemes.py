"""Speed and memory of simulated schemes with the map on the flash, for a device of 128 GB.

    .venv/bin/python benches/map_schemes.py [--traces FOLDER] [--rounds N] [--random]

Speed: million page operations of `telegram_exec` of a Pixel 6a on `galaxys2`, which is written once in full
before, per second of processor time of the thread that simulates. That time is the least of all rounds, minus
the least of runs with only one request, which also fill the device; the trace is read by another thread.
Other programs slow it down by about a tenth when they double the wall time.

Memory: the most that a process has resident with `systor24-clustered` (128 GB), written in full in order.
`--random` overwrites its map at random instead, which takes minutes: no two units are consecutive then, so
that the number of learned segments is maximal. Exit code 1 if a scheme is below 3 million page operations a
second, or takes more than 600 MB.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import emmclab

ROOT = Path(__file__).parents[1]
SCHEMES = ("page", "dftl", "tpftl", "leaftl", "rqftl")
LEAST_MILLIONS = 3.0
LIMIT_MB = 600


def first_request_of(trace: Path, folder: Path) -> Path:
    """Write the header and the first request of a trace into a separate file."""
    one = folder / "one.csv"
    with gzip.open(trace, "rt") as lines:
        one.write_text("".join(itertools.islice(lines, 2)))
    return one


def speed(scheme: str, trace: Path, one: Path, rounds: int) -> float:
    """Return million page operations per second of processor time, without preconditioning."""
    device = emmclab.Device.preset("galaxys2").set({"mapping.scheme": scheme})
    least = {one: float("inf"), trace: float("inf")}
    operations = 0
    for _ in range(rounds):
        for path in (one, trace):
            began = time.thread_time()
            result = device.simulate(emmclab.read(path), precondition="sequential:100", wrap_addresses=True)
            least[path] = min(least[path], time.thread_time() - began)
        flash = result["flash"]
        operations = flash["page_reads"]["total"] + flash["page_programs"]["total"]
    return operations / (least[trace] - least[one]) / 1e6


def peak_mb(scheme: str, trace: Path, precondition: str) -> float:
    """Return the peak memory of a process that simulates the large device, in MB."""
    command = [sys.executable, "-m", "emmclab", "simulate", str(trace), "--wrap-addresses", "--json"]
    command += ["--device", "systor24-clustered", "--precondition", precondition]
    command += ["--set", f"mapping.scheme={scheme}"]
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"failed: {' '.join(command)}")
    return usage.ru_maxrss / 1024


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = os.environ.get("EMMCLAB_TRACES", ROOT.parent / "shared" / "traces")
    parser.add_argument("--traces", type=Path, default=Path(default))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--random", action="store_true")
    given = parser.parse_args()
    telegram = given.traces / "pixel6a" / "telegram_exec.csv.gz"
    if not telegram.exists():
        print(f"there is no {telegram}: give the folder of the real traces")
        return 0
    aged = "random:90" if given.random else "sequential:100"
    print(f"{'scheme':<8} {'million page operations/s':>26} {'peak MB of 128 GB':>18}")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        one = first_request_of(telegram, Path(folder))
        for scheme in SCHEMES:
            millions = speed(scheme, telegram, one, given.rounds)
            peak = peak_mb(scheme, telegram, aged)
            failed |= millions < LEAST_MILLIONS or peak > LIMIT_MB
            print(f"{scheme:<8} {millions:>26.1f} {peak:>18.0f}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
