#!/usr/bin/env python3
"""Measures the overhead of recording in interleaved pairs of runs with the recorder off and on, as root.

    cargo build --release -p emmclab-record --example record
    python3 benches/record_overhead.py [--pairs 15] [--record PATH-OF-THE-EXAMPLE]

Runs two workloads on ext4 on a loop device over tmpfs, which is the worst case, because it is far faster than the
storage of a phone: fio (4 KB random reads and writes, queue depth 4) and SQLite transactions. Prints medians and
quartiles of both, the change within pairs, the processor time of the workload per request (which depends less on other
work on the machine than its speed), the requests on the device, and the processor time of the recorder per event.
"""

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def run(*command: str) -> str:
    """Run a command and return what it printed."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def loop_disk() -> Iterator[tuple[str, Path]]:
    """Provide a mounted ext4 file system on a loop device over tmpfs."""
    with tempfile.TemporaryDirectory() as work:
        run("mount", "-t", "tmpfs", "-o", "size=1g", "none", work)
        try:
            image, folder = Path(work, "image"), Path(work, "mnt")
            folder.mkdir()
            run("truncate", "-s", "512M", str(image))
            device = run("losetup", "-f", "--show", str(image))
            try:
                run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
                run("mount", device, str(folder))
                yield device, folder
            finally:
                subprocess.run(["umount", str(folder)], check=False)
                run("losetup", "-d", device)
        finally:
            # The kernel may hold the image of a detached loop device for a moment.
            run("umount", "--lazy", work)


def counted(device: str) -> int:
    """Return the number of reads, writes, discards and flushes that the device has completed."""
    fields = Path("/sys/block", Path(device).name, "stat").read_text().split()
    return sum(int(fields[i]) for i in (0, 4, 11, 15))


def fio(folder: Path) -> float:
    """Return the requests per second for a fixed number of requests at fixed addresses."""
    report = run(
        "fio", "--name=mix", f"--filename={folder}/data", "--size=64m", "--rw=randrw", "--bs=4k", "--direct=1",
        "--ioengine=libaio", "--iodepth=4", "--randseed=1", "--io_size=256m", "--norandommap=1", "--output-format=json",
    )  # fmt: skip
    job = json.loads(report[report.index("{") :])["jobs"][0]
    return (job["read"]["total_ios"] + job["write"]["total_ios"]) / (job["job_runtime"] / 1000)


def sqlite(folder: Path) -> float:
    """Return the transactions per second with a rollback journal."""
    file = folder / "messages.db"
    file.unlink(missing_ok=True)
    statements = "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB);" + "INSERT INTO t(v) VALUES(zeroblob(2000));" * 2000
    start = time.monotonic()
    subprocess.run(["sqlite3", str(file)], input=statements, text=True, check=True)
    return 2000 / (time.monotonic() - start)


class Recording:
    """The recorder, running in parallel to a workload."""

    def __init__(self, program: str, device: str, folder: Path) -> None:
        command = [program, device, str(folder / "trace.parquet")]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr and "recording" in self.process.stderr.readline()

    def end(self) -> tuple[int, int, float]:
        """Stop the recorder; return the number of events, of lost events, and processor seconds."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        output = self.process.stdout.read()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = status
        events = int(re.search(r"(\d+) seen", output)[1])  # type: ignore[index]
        lost = re.search(r"(\d+) lost", output)
        return events, int(lost[1]) if lost else 0, usage.ru_utime + usage.ru_stime


def summary(values: list[float], digits: int = 0) -> str:
    """Return median and quartiles as text."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:>10,.{digits}f} ({low:,.{digits}f} - {high:,.{digits}f})"


def within_pairs(values: dict[bool, list[float]]) -> str:
    """Return median and quartiles of the change from off to on, in percent."""
    change = [100 * (on / off - 1) for off, on in zip(values[False], values[True], strict=True)]
    low, middle, high = statistics.quantiles(change, n=4)
    return f"{middle:+.1f} % ({low:+.1f} - {high:+.1f})"


def processor_us() -> float:
    """Return the processor time of the workloads so far, in user and kernel mode, in us."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1e6


def compare(name: str, unit: str, work: Callable[[Path], float], pairs: int, program: str) -> None:
    """Print the rows of one workload."""
    speeds: dict[bool, list[float]] = {False: [], True: []}
    requests: dict[bool, list[int]] = {False: [], True: []}
    costs: dict[bool, list[float]] = {False: [], True: []}
    events = lost = 0
    cpu = 0.0
    with loop_disk() as (device, folder), tempfile.TemporaryDirectory() as out:
        work(folder)
        for pair in range(pairs):
            # The order alternates, so that a drift of the machine affects both sides equally.
            for on in (False, True) if pair % 2 == 0 else (True, False):
                run("sync")
                before = counted(device)
                recording = Recording(program, device, Path(out)) if on else None
                used = processor_us()
                speeds[on].append(work(folder))
                used = processor_us() - used
                run("sync")
                requests[on].append(counted(device) - before)
                costs[on].append(used / requests[on][-1])
                if recording:
                    more, missed, seconds = recording.end()
                    events, lost, cpu = events + more, lost + missed, cpu + seconds
    print(f"{name}, {pairs} pairs")
    print(f"  off            {summary(speeds[False])} {unit}")
    print(f"  on             {summary(speeds[True])} {unit}")
    print(f"  change         {within_pairs(speeds)}")
    print(f"  cost off       {summary(costs[False], 2)} us of processor time per request")
    print(f"  cost on        {summary(costs[True], 2)} us of processor time per request")
    print(f"  change         {within_pairs(costs)}")
    off, on = (statistics.median(requests[is_on]) for is_on in (False, True))
    print(f"  device counted {off:,.0f} requests off, {on:,.0f} on")
    print(f"  recorder       {cpu / events * 1e6:.2f} us of processor time per event, {events:,} events, {lost:,} lost")


def main() -> None:
    """Run both workloads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--record", default=f"{target}/release/examples/record")
    arguments = parser.parse_args()
    compare("fio, 4 KB random, 4 deep", "requests/s", fio, arguments.pairs, arguments.record)
    compare("SQLite, rollback journal", "transactions/s", sqlite, arguments.pairs, arguments.record)


if __name__ == "__main__":
    main()
