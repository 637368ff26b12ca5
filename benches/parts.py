"""The cost of profiling a trace in parts, by the number of parts, as a whole process.

    .venv/bin/python benches/parts.py [PARTS...] [--requests 1000000] [--jobs 2]

A part has this many requests of a model, generated with its own seed, and begins where the previous one ends.
Prints wall and processor time, and the peak of memory; exit code 1 if the peak is over 300 MB for each job.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

from emmclab.runtime.files import folder_aside
from emmclab.traces.workload import Workload

LIMIT_MB = 300
#: Time between two parts.
_BETWEEN_NS = 1_000_000_000


def make(folder: Path, parts: int, requests: int) -> None:
    """Make those of the parts that do not exist yet."""
    model, begins_ns = Workload.preset("Facebook"), 0
    with duckdb.connect(config={"threads": 1, "memory_limit": "1GB"}) as database:
        for number in range(parts):
            path, aside = folder / f"part-{number:05}.parquet", folder / ".made.parquet"
            if not path.exists():
                model.trace(number, requests=requests).write(aside)
                described = database.execute(f"describe from '{aside}'").fetchall()
                times = [name for name, *_ in described if name.endswith("_ns")]
                moved = ", ".join(f"{name} + {begins_ns} as {name}" for name in times)
                database.execute(f"copy (select * replace ({moved}) from '{aside}') to '{path}'")  # noqa: S608
                aside.unlink()
            last = database.execute(f"select max(arrival_ns) from '{path}'").fetchone()  # noqa: S608
            begins_ns = (last or (0,))[0] + _BETWEEN_NS


def measure(folder: Path, jobs: int) -> float:
    """Profile the parts, print a row, and return the peak of memory in MB."""
    words = [sys.executable, "-m", "emmclab", "profile", str(folder), "--jobs", str(jobs), "--json"]
    started = time.monotonic()
    with tempfile.TemporaryFile() as said:
        run = subprocess.Popen(words, stdout=said, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(run.pid, 0)
        wall_s = time.monotonic() - started
        if status:
            sys.exit(f"emmclab profile ended with {os.waitstatus_to_exitcode(status)}")
        said.seek(0)
        (profile,) = json.load(said)
    peak_mb = used.ru_maxrss / 1024
    size_mb = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
    print(
        f"{profile['requests']:>13,} {profile['parts']:>6} {jobs:>5} {size_mb:>8,.0f} "
        f"{profile['working_set']['unique_pages']:>13,} {wall_s:>8.1f} "
        f"{used.ru_utime + used.ru_stime:>8.1f} {peak_mb:>8.0f}",
        flush=True,
    )
    return peak_mb


def main() -> int:
    """Print a row for each number of parts."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("parts", nargs="*", type=int, default=[1, 3, 10])
    options.add_argument("--requests", type=int, default=1_000_000, help="of each part")
    options.add_argument("--jobs", type=int, nargs="*", default=[1, 2])
    given = options.parse_args()
    print("     requests  parts  jobs     MB   unique pages   wall s    CPU s  peak MB", flush=True)
    within = True
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # The next run removes what a killed run left.
    with folder_aside(Path(tempfile.gettempdir())) as folder:
        for parts in sorted(given.parts):
            make(folder, parts, given.requests)
            for jobs in given.jobs:
                within &= measure(folder, jobs) <= LIMIT_MB * jobs
    return int(not within)


if __name__ == "__main__":
    sys.exit(main())
