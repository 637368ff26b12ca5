"""Measures the speed of profiling a fleet of small recordings as a whole process, and the time of each step.

    .venv/bin/python benches/fleet.py [RECORDINGS] [--requests 5000] [--jobs 2] [--folder DIR]

Generates recordings from the workloads of the IISWC 2015 study, each with 100 to `--requests` requests, and runs
`emmclab fleet` on them: first without earlier results, then with nothing changed. Then it measures in this
process the steps of profiling a recording. Prints recordings per minute; the goal is 10,000 on two cores.
"""

import argparse
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import emmclab
from emmclab import _core
from emmclab.runtime.files import folder_aside
from emmclab.traces.workload import Workload, workloads

GOAL_PER_MINUTE = 10_000
#: Number of recordings whose steps are measured.
SAMPLE = 200


def make(folder: Path, count: int, most: int) -> None:
    """Generate recordings of all sizes up to `most` requests, in folders by model and build."""
    models = [Workload.preset(name) for name in workloads()]
    for number in range(count):
        place = folder / f"model=M{number % 7}" / f"build=B{number % 3}"
        place.mkdir(parents=True, exist_ok=True)
        requests = 100 + (number * 7919) % (most - 99)
        model = models[number % len(models)]
        model.trace(number, requests=requests).write(place / f"{number:06}.parquet")


def run(folder: Path, table: Path, jobs: int) -> tuple[float, float, dict[str, int]]:
    """Run the command; return wall and processor time in seconds, and its counts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    command = [sys.executable, "-m", "emmclab", "fleet", str(folder), "-o", str(table), "--jobs", str(jobs), "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, used, json.loads(done.stdout)["tables"][0]["run"]


def parts(paths: list[Path]) -> dict[str, float]:
    """Return the mean processor time of each step over these recordings, in ms."""
    spent = dict.fromkeys(("open", "read and profile", "report", "histograms", "flatten", "digest"), 0.0)

    def note(part: str, since: float) -> float:
        now = time.process_time()
        spent[part] += now - since
        return now

    from emmclab.fleet.table import _numbers

    for path in paths:
        at = time.process_time()
        trace = emmclab.read(path)
        profiler = _core.Profiler(trace.name)
        at = note("open", at)
        for batch in trace.batches():
            profiler.update(batch)
        at = note("read and profile", at)
        report = profiler.finish(trace.ledger, trace.header, distributions=False)
        at = note("report", at)
        profiler.histograms()
        at = note("histograms", at)
        dict(_numbers(report))
        at = note("flatten", at)
        _ = trace.digest
        note("digest", at)
    return {part: 1e3 * seconds / len(paths) for part, seconds in spent.items()}


def main() -> int:
    """Print the figures; exit code 1 if the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", nargs="?", type=int, default=2_000)
    parser.add_argument("--requests", type=int, default=5_000, help="requests of the largest recording")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="folder of the recordings; those of an earlier run are used again")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # The next run removes the files of a killed run.
    with folder_aside(Path(tempfile.gettempdir())) as aside:
        folder = arguments.folder or aside / "recordings"
        if not folder.exists():
            make(folder, arguments.recordings, arguments.requests)
        table = aside / "fleet.parquet"
        wall, _, did = run(folder, table, arguments.jobs)
        count = did["profiled"]
        rate = 60 * count / wall
        print(f"{count:,} recordings, {arguments.jobs} processes: {wall:.1f} s, {rate:,.0f} a minute")
        repeat_wall, used, did = run(folder, table, 1)
        print(f"again, {did['profiled']:,} profiled: {repeat_wall:.1f} s ({used:.1f} s of processor time)")
        # Workers are not children of this process, so their time is derived from one process, without its start.
        _, one_process, did = run(folder, aside / "one.parquet", 1)
        each_ms, size_mb = 1e3 * (one_process - used) / count, table.stat().st_size / 2**20
        print(f"processor time of a recording: {each_ms:.2f} ms; table of {size_mb:.1f} MB")
        for part, ms in parts(sorted(folder.rglob("*.parquet"))[:SAMPLE]).items():
            print(f"  {part:<20} {ms:8.3f} ms")
    return int(rate < GOAL_PER_MINUTE)


if __name__ == "__main__":
    sys.exit(main())
