"""Whole processes against SSDsim on the same two workloads, in every input format.

    .venv/bin/python benches/whole_process.py [FOLDER OF THE REAL TRACES]

* a Pixel 6a `telegram_exec` (251,879 requests, 1.54 million pages) on a 32 GB device; SSDsim took 5.1 s;
* 786,432 uniform random writes of 4 KB on a new 1 GB device with 7 %; SSDsim took 2.75 s.

SSDsim reads ASCII lines of five columns. All processes run in turn, many times, so that none has the quiet
moments of the machine for itself, and the fastest run of each counts: seconds by the wall, which a user
waits, and seconds on the processor, which other work disturbs less; both are set against SSDsim's, which has
one thread. Here a second thread reads the trace ahead.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import emmclab

ROOT = Path(__file__).parents[1]
ROUNDS = 40
SSDSIM_S = {"telegram": 5.1, "random": 2.75}
TELEGRAM = Path("pixel6a") / "telegram_exec.csv.gz"


def timed(command: list[str]) -> tuple[float, float]:
    """Wall seconds and processor seconds of a run."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    if status:
        sys.exit(f"failed: {' '.join(command)}")
    return wall, usage.ru_utime + usage.ru_stime


def make_telegram(source: Path, folder: Path) -> dict[str, Path]:
    """Write the Pixel trace in every format; the BIOtracer log repeats the arrival for what it lacks."""
    trace = emmclab.read(source)
    files = {"Pixel CSV, gzip": source}
    for label, name in (("SSDsim ASCII", "telegram.ssdsim"), ("Parquet", "telegram.parquet")):
        files[label] = folder / name
        trace.write(files[label])
    lines = []
    for line in files["SSDsim ASCII"].read_text().splitlines():
        arrival, _, sector, sectors, read = map(int, line.split())
        stamps = [f"{arrival // 10**9}.{arrival % 10**9:09d}"] * 4
        lines.append("\t\t".join([str(sector), str(sectors), str(512 * sectors), str(1 - read), *stamps]))
    files["BIOtracer text"] = folder / "telegram.biotracer"
    files["BIOtracer text"].write_text("\n".join(lines) + "\n")
    return files


def make_random(folder: Path) -> dict[str, Path]:
    """Write the random writes, one each millisecond, over the whole capacity of the device."""
    source = random.Random(1)  # noqa: S311
    files = {"SSDsim ASCII": folder / "random.ssdsim", "Parquet": folder / "random.parquet"}
    lines = [f"{number * 1_000_000} 0 {source.randrange(262_144) * 8} 8 0\n" for number in range(786_432)]
    files["SSDsim ASCII"].write_text("".join(lines))
    emmclab.read(files["SSDsim ASCII"]).write(files["Parquet"])
    return files


class Case(NamedTuple):
    """A row of the table: one process."""

    workload: str
    label: str
    device: str
    command: list[str]


def cases(traces: Path, folder: Path) -> Iterator[Case]:
    """Every process that is measured, its files written to `folder`."""
    build = "cargo build --release --quiet --workspace --example whole_process"
    subprocess.run(build.split(), check=True, cwd=ROOT)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    program = str(target / "release" / "examples" / "whole_process")
    cli = [sys.executable, "-m", "emmclab", "simulate", "--json", "--wrap-addresses", "--device"]
    if (traces / TELEGRAM).exists():
        for label, path in make_telegram(traces / TELEGRAM, folder).items():
            for device in ("iiswc15-4ps", "ssdsim"):
                yield Case("telegram", label, device, [program, str(path), device])
        path = folder / "telegram.ssdsim"
        yield Case("telegram", "emmclab simulate", "iiswc15-4ps", [*cli, "iiswc15-4ps", str(path)])
    else:
        print(f"there is no {traces / TELEGRAM}: give the folder of the real traces")
    for label, path in make_random(folder).items():
        yield Case("random", label, "small-1gb", [program, str(path), "small-1gb"])
    path = folder / "random.ssdsim"
    yield Case("random", "emmclab simulate", "small-1gb", [*cli, "small-1gb", str(path)])


def main() -> None:
    """Print the table."""
    traces = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("EMMCLAB_TRACES", "../shared/traces"))
    with tempfile.TemporaryDirectory() as name:
        rows = list(cases(traces, Path(name)))
        rounds = [[timed(row.command) for row in rows] for _ in range(ROUNDS)]
    print(f"{'input':<34} {'device':<12} {'wall s':>8} {'SSDsim /':>9} {'cpu s':>8} {'SSDsim /':>9}")
    for row, runs in zip(rows, zip(*rounds, strict=True), strict=True):
        wall, cpu = min(run[0] for run in runs), min(run[1] for run in runs)
        by_wall, by_cpu = SSDSIM_S[row.workload] / wall, SSDSIM_S[row.workload] / cpu
        label = f"{row.workload}, {row.label}"
        print(f"{label:<34} {row.device:<12} {wall:>8.3f} {by_wall:>7.1f} x {cpu:>8.3f} {by_cpu:>7.1f} x")


if __name__ == "__main__":
    main()
