"""The cost of detecting suspected re-issues while Parquet is read, in instructions per request.

    .venv/bin/python benches/reissue_cost.py [REQUESTS]

Each kind of trace is read twice: once with detection, once with the marks that the file stores; all else is
the same. Instructions are counted as by `off_cost.py`, and do not depend on what else the computer does.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from off_cost import ROOT, counter

KINDS = ("processes", "completions", "both")


def main() -> None:
    """Print the table."""
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
    count = counter()
    if count is None:
        print("instructions cannot be counted: perf is not permitted here, and there is no valgrind")
        return
    build = "cargo build --release --locked --quiet -p emmclab-trace --example reissue_speed"
    subprocess.run(build.split(), check=True, cwd=ROOT)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    program = target / "release" / "examples" / "reissue_speed"
    print(f"instructions counted by {count[0]}; {requests:,} requests")
    print(f"{'recorded':<12} {'read':>8} {'judged':>8} {'more':>7}")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "--make", folder, str(requests)], check=True)
        for kind in KINDS:
            stored, judged = (
                each(count, program, Path(folder, f"{kind}-{state}.parquet")) / requests
                for state in ("stored", "judged")
            )
            print(
                f"{kind:<12} {stored:>8.0f} {judged:>8.0f} {100 * (judged / stored - 1):>+6.1f}%", flush=True
            )


def each(count: list[str], program: Path, trace: Path) -> int:
    """Count the instructions of reading one trace."""
    done = subprocess.run([*count, program, trace], capture_output=True, text=True, check=True)
    found = re.search(r"^(\d+),|Collected : (\d+)", done.stderr, re.MULTILINE)
    if found is None:
        sys.exit(f"no count in: {done.stderr}")
    return int(found[1] or found[2])


if __name__ == "__main__":
    main()
