"""Measures the memory of a process that profiles a large trace.

    .venv/bin/python benches/memory.py TRACE.parquet

Prints requests, processor time and the peak resident memory; exit code 1 if the memory is over 200 MB.
"""

import json
import resource
import subprocess
import sys

LIMIT_MB = 200


def main() -> int:
    """Print the line."""
    command = [sys.executable, "-m", "emmclab", "profile", sys.argv[1], "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    (profile,) = json.loads(done.stdout)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak_mb = used.ru_maxrss / 1024
    pages = profile["working_set"]["unique_pages"]
    print(f"{'requests':>12} {'unique GB':>10} {'CPU s':>8} {'peak MB':>8}")
    print(
        f"{profile['requests']:>12,} {pages * 4096 / 2**30:>10.1f} {used.ru_utime + used.ru_stime:>8.1f} "
        f"{peak_mb:>8.1f}"
    )
    return int(peak_mb > LIMIT_MB)


if __name__ == "__main__":
    sys.exit(main())
