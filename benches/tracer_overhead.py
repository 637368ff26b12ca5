#!/usr/bin/env python3
"""Counts the requests that the log of a recorder adds on the recorded device (IISWC 2015, section II-C), as root.

    sudo .venv/bin/python benches/tracer_overhead.py [--logs 200] [--write]

BIOtracer collects 32 KB of records, about 300 requests, and appends them to a log file on the recorded eMMC.
This script does the same on ext4 on a loop device over tmpfs (open, append 32 KB, fsync, close), and reads the
device's counter of requests before and after each log. For comparison, it measures the requests that `emmclab
record` adds, with its recording on another device and on the recorded device. `--write` stores the figures in
the file that the claims ledger reads.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from record_overhead import loop_disk

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "python" / "emmclab" / "papers" / "iiswc15" / "tracer-overhead.json"
LOG_KB = 32
REQUESTS_PER_LOG = 300
BLOCK = 4096


class Counts(NamedTuple):
    """Numbers of requests that a device has completed (Documentation/block/stat.rst)."""

    data: int
    """Reads and writes, which are what BIOtracer records."""
    flushes: int


def counted(device: str) -> Counts:
    """Read the device's counters."""
    fields = [int(word) for word in Path("/sys/block", Path(device).name, "stat").read_text().split()]
    return Counts(fields[0] + fields[4], fields[15] if len(fields) > 15 else 0)


def settled(device: str, folder: Path) -> Counts:
    """Return the counters after the file system has written all dirty data."""
    subprocess.run(["sync", "-f", str(folder)], check=True)
    time.sleep(0.05)
    return counted(device)


def append_log(folder: Path, number: int) -> None:
    """Append one full buffer of records to the log file."""
    descriptor = os.open(folder / "biotracer.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, number.to_bytes(4, "little") * (LOG_KB * 1024 // 4))
    os.fsync(descriptor)
    os.close(descriptor)


def load(folder: Path, count: int) -> list[str]:
    """Return a command that writes `count` blocks in place, each as a separate request."""
    program = (
        "import mmap, os, sys\n"
        f"fd = os.open({str(folder / 'data')!r}, os.O_RDWR | os.O_DIRECT)\n"
        f"page = mmap.mmap(-1, {BLOCK})\n"
        f"for i in range({count}): os.pwrite(fd, page, (i * 7919 % 256) * {BLOCK})\n"
    )
    return [sys.executable, "-c", program]


def recorded(device: str, folder: Path, count: int, recording: Path | None) -> int:
    """Return the number of requests that the device completes for the load, with or without a recording."""
    before = settled(device, folder)
    command = load(folder, count)
    if recording is not None:
        record = [sys.executable, "-m", "emmclab", "record", "--device", device, "-o", str(recording), "--"]
        command = [*record, *command]
    subprocess.run(command, check=True, capture_output=True)
    return settled(device, folder).data - before.data


def measure_logs(device: str, folder: Path, logs: int) -> dict[str, Any]:
    """Write `logs` logs in a row and count their requests in total; then count the requests of single logs."""
    append_log(folder, 0)
    before = settled(device, folder)
    for number in range(1, logs + 1):
        append_log(folder, number)
        time.sleep(0.05)
    after = settled(device, folder)
    alone = []
    for number in range(1, min(logs, 20) + 1):
        start = settled(device, folder)
        append_log(folder, number)
        alone.append(settled(device, folder).data - start.data)
    return {
        "added_per_log": round((after.data - before.data) / logs, 2),
        "with_flushes": round((sum(after) - sum(before)) / logs, 2),
        "metadata_written_at_once": round(statistics.mean(alone), 2),
    }


def measure_recorder(device: str, folder: Path, elsewhere: Path) -> dict[str, Any]:
    """Record 20 times 300 requests, with the recording on another device and on this one; return medians of 5."""
    (folder / "data").write_bytes(bytes(256 * BLOCK))
    logs = 20

    def per_log(recording: Path | None) -> float:
        runs = (recorded(device, folder, logs * REQUESTS_PER_LOG, recording) for _ in range(5))
        return statistics.median(runs) / logs

    plain = per_log(None)
    return {
        "recorder_added": round(per_log(elsewhere) - plain, 2),
        "recorder_added_on_the_device": round(per_log(folder / "own.parquet") - plain, 2),
    }


def main() -> None:
    """Measure and print; with `--write`, store the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--logs-only", action="store_true", help="leave out our recorder")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    figures: dict[str, Any] = {
        "log_kb": LOG_KB,
        "requests_per_log": REQUESTS_PER_LOG,
        "logs": options.logs,
        "file_system": "ext4",
        "kernel": platform.release(),
    }
    with loop_disk() as (device, folder), tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        figures |= measure_logs(device, folder, options.logs)
        if not options.logs_only:
            figures |= measure_recorder(device, folder, Path(memory, "recording.parquet"))
    print(json.dumps(figures, indent=2))
    if options.write:
        KEPT.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
