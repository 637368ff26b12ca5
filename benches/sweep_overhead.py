"""The overhead of a sweep by the number of cells: `sweep_overhead.py [--on local|ray] [CELLS...]`.

Overhead = (wall time x workers - sum of cell times) / sum of cell times, of a whole run: from the definition
of the study to its tables. Also prints the CPU time of the coordinator in ms for each cell, and its peak of
memory. A cell is a simulation of about 10 ms.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from emmclab.cli.study_options import executor
from emmclab.runtime.files import folder_aside
from emmclab.runtime.result_storage import Folder
from emmclab.studies import Study
from emmclab.studies.cell_scheduler import Progress
from emmclab.studies.run import run_cells

#: Number of cells of an input with one seed: the devices, settings and modes below.
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


def measure(folder: Path, cells: int, requests: int, on: str, jobs: int) -> None:
    """Run a study of this many cells, store its results in a folder, and print a row."""
    text = STUDY.format(seeds=list(range(1, max(2, round(cells / EACH) + 1))), requests=requests)
    last: list[Progress] = []
    # The time to start a cluster does not count.
    engine = executor(jobs, on)
    before, started = time.process_time(), time.monotonic()
    study = Study.parse(text, "overhead.toml")
    expanded = study.cells()
    expanded_s = time.monotonic() - started

    def note(progress: Progress) -> None:
        last[:] = [progress]

    found = run_cells(study, Folder(folder), engine, cells=expanded, progress=note)
    wall_s, used_s = time.monotonic() - started, time.process_time() - before
    engine.close()
    total, cells_s, workers = found.about["cells"], last[0].cells_s, last[0].jobs
    overhead = (wall_s * workers - cells_s) / cells_s
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{total:>9,} {workers:>7} {1e3 * cells_s / total:>8.2f} {expanded_s:>9.2f} {wall_s:>8.1f} "
        f"{100 * overhead:>9.1f} {1e3 * used_s / total:>12.2f} {memory_mb:>10.0f}",
        flush=True,
    )


def end_with_parent() -> None:
    """End when standard input ends, which also happens if the parent is killed."""
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    """Measure each number of cells in a separate process, so that the peak of memory is its own."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("cells", type=int, nargs="*", default=[1_000, 3_000, 10_000])
    options.add_argument("--on", default="local")
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--requests", type=int, default=11_000)
    options.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.one:
        threading.Thread(target=end_with_parent, daemon=True).start()
        measure(chosen.one, chosen.cells[0], chosen.requests, chosen.on, chosen.jobs)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print("    cells workers  ms/cell  expand s   wall s  overhead%  coordinator  memory MB", flush=True)
    for cells in chosen.cells:
        words = ["--on", chosen.on, "--jobs", str(chosen.jobs), "--requests", str(chosen.requests)]
        # The next run removes what a killed run left.
        with folder_aside(Path(tempfile.gettempdir())) as folder:
            command = [sys.executable, __file__, str(cells), "--one", str(folder), *words]
            with subprocess.Popen(command, stdin=subprocess.PIPE) as one:
                try:
                    status = one.wait()
                except BaseException:
                    one.kill()
                    raise
        if status:
            sys.exit(status)


if __name__ == "__main__":
    main()
