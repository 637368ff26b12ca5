"""Measures the start of the command line: best and median wall time of whole processes, in ms.

    .venv/bin/python benches/start_up.py [RUNS]

The trace is the smallest bundled one, so that almost nothing is computed. The commands run in turn, so that
load on the machine affects all of them equally. The first row is the start of Python itself.
"""

import statistics
import sys

from whole_process import Case, timed

import emmclab

RUNS = 20
TRACE = str(min(emmclab.bundled(), key=lambda path: path.stat().st_size))
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import emmclab": ["-c", "import emmclab"],
    "emmclab --version": ["-m", "emmclab", "--version"],
    "emmclab --help": ["-m", "emmclab", "--help"],
    "emmclab formats --json": ["-m", "emmclab", "formats", "--json"],
    "emmclab formats, as a table": ["-m", "emmclab", "formats"],
    "emmclab profile --json": ["-m", "emmclab", "profile", "--json", TRACE],
    "emmclab simulate --json": ["-m", "emmclab", "simulate", "--json", "--wrap-addresses", TRACE],
    "emmclab compare --json": ["-m", "emmclab", "compare", "--json", "--wrap-addresses", TRACE],
}


def main() -> None:
    """Print the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    walls: dict[str, list[float]] = {command: [] for command in COMMANDS}
    for _ in range(runs):
        for command, words in COMMANDS.items():
            walls[command].append(1e3 * timed(Case("", command, "", [sys.executable, *words]))[0])
    print(f"{'what':<30} {'best ms':>9} {'median ms':>10}")
    for command, times in walls.items():
        print(f"{command:<30} {min(times):>9.1f} {statistics.median(times):>10.1f}")


if __name__ == "__main__":
    main()
