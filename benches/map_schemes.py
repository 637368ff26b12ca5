"""How fast schemes with the map on the flash are simulated, and how much memory a device of 128 GB takes.

    .venv/bin/python benches/map_schemes.py [--traces FOLDER] [--rounds N] [--random]

Speed: million page operations per second of `telegram_exec` of a Pixel 6a on `galaxys2`, which is written
once in full before; the fastest run counts. Memory: the most that a process has resident with
`systor24-clustered` (128 GB), written in full in order. `--random` overwrites its map at random instead,
which takes minutes: no two units lie in a row then, so that learned segments are as many as can be. Exit
code 1 where that is over 600 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCHEMES = ("page", "dftl", "tpftl", "leaftl", "rqftl")
LIMIT_MB = 600


def simulated(trace: Path, *options: str) -> tuple[dict[str, Any], float]:
    """The result of a run, and the most memory of its process, MB."""
    command = [sys.executable, "-m", "emmclab", "simulate", str(trace), "--wrap-addresses", "--json"]
    command.extend(options)
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            sys.exit(f"failed: {' '.join(command)}")
        out.seek(0)
        return json.loads(out.read()), usage.ru_maxrss / 1024


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = os.environ.get("EMMCLAB_TRACES", ROOT.parent / "shared" / "traces")
    parser.add_argument("--traces", type=Path, default=Path(default))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--random", action="store_true")
    given = parser.parse_args()
    telegram = given.traces / "pixel6a" / "telegram_exec.csv.gz"
    if not telegram.exists():
        print(f"there is no {telegram}: give the folder of the real traces")
        return 0
    on_phone = ("--device", "galaxys2", "--precondition", "sequential:100")
    aged = "random:90" if given.random else "sequential:100"
    large = ("--device", "systor24-clustered", "--precondition", aged)
    print(f"{'scheme':<8} {'million page operations/s':>26} {'peak MB of 128 GB':>18}")
    worst = 0.0
    for scheme in SCHEMES:
        chosen = ("--set", f"mapping.scheme={scheme}")
        speeds = []
        for _ in range(given.rounds):
            result, _ = simulated(telegram, *on_phone, *chosen)
            speeds.append(result["computing"]["page_operations_per_s"] / 1e6)
        _, peak_mb = simulated(telegram, *large, *chosen)
        worst = max(worst, peak_mb)
        print(f"{scheme:<8} {max(speeds):>26.1f} {peak_mb:>18.0f}")
    return int(worst > LIMIT_MB)


if __name__ == "__main__":
    sys.exit(main())
