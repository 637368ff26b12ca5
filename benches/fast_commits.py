#!/usr/bin/env python3
"""Measures what the journal of ext4 writes under Filebench's mail server, and the sizes of its fast commits, as root.

    sudo .venv/bin/python benches/fast_commits.py [--runs 5] [--loops 4000] [--write]

The work is Filebench's public personality `varmail` (workloads/varmail.f): 1,000 files of 16 KB in the mean, four
fifths of them there from the start, and 16 threads. Each deletes a file; creates one, appends up to 16 KB and calls
fsync; reads one, appends up to 16 KB and calls fsync; and reads one. ext4 has its journal on a loop device of its own,
whose counter has what the journal wrote. `/proc/fs/ext4/DEVICE/fc_info` counts fast commits and their blocks; the
kernel's event `ext4_fc_commit_stop` has the blocks of each and must agree. Figures are medians of the runs; `--write`
stores them in the file that the ledger of claims reads.
"""

import argparse
import json
import os
import platform
import random
import re
import statistics
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyarrow import parquet

import emmclab

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "python" / "emmclab" / "papers" / "dsn17" / "fast-commits.json"
FILES, PRESENT = 1000, 0.8
MEAN_SIZE, GAMMA, APPENDED = 16384, 1.5, 16384
#: Numbers of threads; the first is that of the personality.
THREADS = (16, 4, 1)
#: The served device, whose clock is that of this machine.
DEVICE = "emmc51-cache"
JOURNAL = ("journal_superblock", "descriptor", "logged", "revoke", "commit", "fast_commit")
# A recorder removes instances with its own prefix whose process has ended.
EVENTS = Path(f"/sys/kernel/tracing/instances/fast-commits-{os.getpid()}")


class MailServer:
    """The files of the personality, and one loop of its operations."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rng, self.lock = folder, random.Random(1), threading.Lock()  # noqa: S311
        names = [f"{number:08}" for number in range(FILES)]
        self.present, self.absent = names[: int(PRESENT * FILES)], names[int(PRESENT * FILES) :]
        for name in self.present:
            Path(folder, name).write_bytes(bytes(round(self.rng.gammavariate(GAMMA, MEAN_SIZE / GAMMA))))
        os.sync()

    @contextmanager
    def taken(self, source: list[str], target: list[str]) -> Iterator[Path]:
        """Take a file that no other thread works on, and put it into another list afterwards."""
        with self.lock:
            name = source.pop(self.rng.randrange(len(source)))
        yield Path(self.folder, name)
        with self.lock:
            target.append(name)

    def append(self, path: Path) -> None:
        """Append to a file, and wait until it is durable."""
        with self.lock:
            size = self.rng.randint(1, APPENDED)
        with path.open("ab", buffering=0) as file:
            file.write(bytes(size))
            os.fsync(file.fileno())

    def loop(self) -> None:
        """Run the operations of the personality once."""
        with self.taken(self.present, self.absent) as path:
            path.unlink()
        with self.taken(self.absent, self.present) as path:
            self.append(path)
        with self.taken(self.present, self.present) as path:
            path.read_bytes()
            self.append(path)
        with self.taken(self.present, self.present) as path:
            path.read_bytes()

    def run(self, threads: int, loops: int) -> None:
        """Run `loops` loops in all; what the page cache holds at the end is written, too."""
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda _: self.loop(), range(loops)))
        subprocess.run(["sync", "-f", self.folder], check=True)


def measured(features: str, threads: int, loops: int) -> dict[str, float]:
    """Run the work on a new file system; return what the journal wrote, and the sizes of the fast commits."""
    with (
        tempfile.TemporaryDirectory() as folder,
        emmclab.serve(DEVICE, loop=True, clock="real", record=Path(folder, "all.parquet")) as disk,
    ):
        mounted = Path(folder, "mnt")
        make = f'mkfs.ext4 -q -O {features} -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$EMMCLAB_DEVICE" 4G'
        if disk.run(["sh", "-c", make]):
            raise SystemExit("error: mkfs.ext4 failed")
        disk.mount(mounted, options="noatime")
        server, info = MailServer(mounted), Path("/proc/fs/ext4", Path(disk.path).name, "fc_info")
        number = Path(disk.path).stat().st_rdev
        commit = rf"ext4_fc_commit_stop: dev {os.major(number)},{os.minor(number)} nblks (\d+), reason 0"
        before, prepared = counted(info), disk.result().requests.total
        EVENTS.mkdir()
        try:
            Path(EVENTS, "events/ext4/ext4_fc_commit_stop/enable").write_text("1")
            server.run(threads, loops)
            events = re.findall(commit, Path(EVENTS, "trace").read_text())
        finally:
            EVENTS.rmdir()
        commits, blocks = (after - old for after, old in zip(counted(info), before, strict=True))
        disk.unmount()
        disk.stop()
        written: Counter[bool] = Counter()
        for row in parquet.read_table(Path(folder, "all.parquet")).slice(prepared).to_pylist():
            for role, sectors in zip(row["role"] or (), row["role_sectors"] or (), strict=True):
                written[role in JOURNAL] += sectors
    sizes = Counter(map(int, events))
    if (sizes.total(), sum(size * count for size, count in sizes.items())) != (commits, blocks):
        raise SystemExit(f"error: fc_info has {commits} commits of {blocks} blocks, the events are {dict(sizes)}")
    figures = {"journal_pct": round(100 * written[True] / written.total(), 1)}
    if commits:
        figures |= {"fast_commits": commits, "blocks": blocks, "one_block_pct": round(100 * sizes[1] / commits, 1)}
    return figures


def counted(info: Path) -> list[int]:
    """Return the fast commits of a file system, and their blocks."""
    words = info.read_text().split()
    return [int(words[words.index(word) - 1]) for word in ("commits", "numblks")]


def main() -> None:
    """Measure and print; with `--write`, store the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--loops", type=int, default=4000, help="loops of the personality, over all threads")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    by_threads: dict[int, Any] = {}
    for threads in THREADS:
        runs = [
            measured("fast_commit", threads, options.loops) | measured("^fast_commit", threads, options.loops)
            for _ in range(options.runs)
        ]
        by_threads[threads] = {name: statistics.median(one[name] for one in runs) for name in runs[0]}
        by_threads[threads]["one_block_range_pct"] = [f(one["one_block_pct"] for one in runs) for f in (min, max)]
    figures = {**vars(options), "kernel": platform.release(), "by_threads": by_threads}
    del figures["write"]
    text = json.dumps(figures)
    print(text)
    if options.write:
        KEPT.write_text(text + "\n")


if __name__ == "__main__":
    main()
