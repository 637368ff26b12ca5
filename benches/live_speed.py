"""IOPS of a served device under fio, compared with a plain file on another FUSE file system.

    .venv/bin/python benches/live_speed.py [--device small-1gb] [--seconds 5] [--runs 3]

Both are accessed through a loop device with direct I/O: the simulated device on a free clock, and a file in
tmpfs through Debian's `bindfs`. Requests of 4 KB at random places; both run in turn, so that load affects
both alike, and the median counts. The device has been written once before. Needs root, FUSE, loop devices,
fio and bindfs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import emmclab as lab

BYTES = 256 << 20
#: Fields of fio's terse output, counted from 0.
_IOPS = {"randread": 7, "randwrite": 48}


def iops(path: str, kind: str, depth: int, seconds: int) -> float:
    """Return the IOPS of random requests on a block device."""
    words = ["fio", "--name=speed", f"--filename={path}", f"--rw={kind}", f"--iodepth={depth}", "--bs=4k"]
    words += ["--direct=1", "--ioengine=libaio", "--time_based", f"--runtime={seconds}", f"--size={BYTES}"]
    words += ["--output-format=terse"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return float(said.splitlines()[-1].split(";")[_IOPS[kind]])


@contextlib.contextmanager
def plain() -> Iterator[str]:
    """Provide a file in tmpfs, accessed through bindfs, as a loop device."""
    with contextlib.ExitStack() as ends:
        folder = ends.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
        mount = ends.enter_context(tempfile.TemporaryDirectory())
        with Path(folder, "disk").open("wb") as file:
            file.truncate(BYTES)
        subprocess.run(["bindfs", "-o", "direct_io", folder, mount], check=True)
        ends.callback(subprocess.run, ["umount", mount], check=False)
        words = ["losetup", "--find", "--show", "--direct-io=on", "--sector-size=512", f"{mount}/disk"]
        path = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
        ends.callback(subprocess.run, ["losetup", "-d", path], check=False)
        yield path


def main() -> int:
    """Print a row for each kind and depth."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="small-1gb")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    print(f"load of this machine: {os.getloadavg()[0]:.2f} on {os.cpu_count()} processors")
    print(f"{'op':>10} {'depth':>6} {'bindfs':>10} {options.device:>12} {'ratio':>7}")
    with plain() as beside, lab.serve(options.device, loop=True, clock="free") as disk:
        fill = ["dd", "if=/dev/zero", f"of={disk.path}", "bs=1M", f"count={BYTES >> 20}", "oflag=direct"]
        subprocess.run(fill, check=True, capture_output=True)
        for kind in _IOPS:
            for depth in (1, 32):
                found: dict[str, list[float]] = {beside: [], disk.path: []}
                for _ in range(options.runs):
                    for path, measured in found.items():
                        measured.append(iops(path, kind, depth, options.seconds))
                file, device = (median(measured) for measured in found.values())
                print(
                    f"{kind:>10} {depth:>6} {file:>10,.0f} {device:>12,.0f} {device / file:>7.2f}", flush=True
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
