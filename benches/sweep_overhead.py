"""What a sweep costs beside its cells, by their number: `sweep_overhead.py [--on local|ray] [CELLS...]`.

Overhead = (wall time x workers - sum of cell times) / sum of cell times, of a whole run: from the definition
of the study to its tables. Beside it the same in CPU time, against the cells in one process without a sweep:
other work on the machine does not count in it. A cell is a simulation of some 10 ms.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from emmclab.cli.studies import executor
from emmclab.study import Study
from emmclab.study.cell import Cell
from emmclab.study.place import Folder
from emmclab.study.run import run_cells
from emmclab.study.sweep import Progress

#: Cells that are run without a sweep.
_ALONE = 400
#: Cells of an input with one seed: the devices, settings and modes below.
EACH = 1 + 2 * 2 * 2 * 12
STUDY = """
name = "overhead"
inputs = ["Movie"]
seeds = {seeds}
[[grid]]
name = "all"
requests = {requests}
devices = ["iiswc15-4ps", "iiswc15-hps"]
modes = ["open", "closed"]
[grid.axes]
"timing.parallelism" = ["none", "both"]
"controller.host_us_per_kb" = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
"""


def cpu_s() -> float:
    """CPU time of this process and of those that have ended below it."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def alone_s(cells: list[Cell]) -> float:
    """CPU time of a cell without a sweep, by at most so many of them."""
    before = cpu_s()
    for cell in cells[:_ALONE]:
        json.dumps(cell.outcome())
    return (cpu_s() - before) / min(_ALONE, len(cells))


def measure(cells: int, requests: int, on: str, jobs: int) -> None:
    """Run a study of so many cells, and print a row."""
    text = STUDY.format(seeds=list(range(1, max(2, round(cells / EACH) + 1))), requests=requests)
    last: list[Progress] = []
    with tempfile.TemporaryDirectory() as folder:
        # Starting a cluster belongs to no study.
        engine = executor(jobs, on)
        before, started = cpu_s(), time.monotonic()
        study = Study.parse(text, "overhead.toml")
        expanded = study.cells()
        expanded_s = time.monotonic() - started

        def note(progress: Progress) -> None:
            last[:] = [progress]

        found = run_cells(study, Folder(Path(folder)), engine, cells=expanded, progress=note)
        wall_s, used_s = time.monotonic() - started, cpu_s() - before
        engine.close()
    total, cells_s, workers = found.about["cells"], last[0].cells_s, last[0].jobs
    overhead = (wall_s * workers - cells_s) / cells_s
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    one_s = alone_s(expanded)
    in_cpu = f"{100 * (used_s / (total * one_s) - 1):>8.1f}" if on == "local" else "       –"
    print(
        f"{total:>9,} {workers:>7} {1e3 * cells_s / total:>8.2f} {1e3 * one_s:>7.2f} {expanded_s:>9.2f} "
        f"{wall_s:>8.1f} {100 * overhead:>9.1f} {in_cpu} {memory_mb:>10.0f}",
        flush=True,
    )


def main() -> None:
    """Measure each number of cells in a process of its own, whose peak of memory is then its own."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("cells", type=int, nargs="*", default=[1_000, 3_000, 10_000])
    options.add_argument("--on", default="local")
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--requests", type=int, default=1_500)
    options.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.one:
        measure(chosen.cells[0], chosen.requests, chosen.on, chosen.jobs)
        return
    print("    cells workers  ms/cell  CPU ms  expand s   wall s  overhead%   in CPU%  memory MB", flush=True)
    for cells in chosen.cells:
        words = ["--one", "--on", chosen.on, "--jobs", str(chosen.jobs), "--requests", str(chosen.requests)]
        subprocess.run([sys.executable, __file__, str(cells), *words], check=True)


if __name__ == "__main__":
    main()
