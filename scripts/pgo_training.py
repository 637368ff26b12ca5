"""Runs the work from which the compiler learns the hot paths of the core: `python scripts/pgo_training.py`.

`make wheel` runs it (pgo-command in pyproject.toml) in an environment that has the package with an instrumented core.
It needs no other files: it simulates included recordings and generated traces, from files of several formats, on
devices of every kind of interface and mapping, and characterises them.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import emmclab

DEVICES = ("nexus5", "iiswc15-4ps", "iiswc15-hps", "ssdsim", "emmc51-tlc", "ufs31", "ufs40", "galaxys2", "small-1gb")
#: Endings of the files of both generated traces, for the formats that people simulate most.
ENDINGS = ((".ssdsim", ".biotracer", ".pixel.csv.gz", ".csv", ".fio"), (".ssdsim", ".csv"))
REQUESTS = "40000"


def run(*arguments: str | Path) -> None:
    """Run a command of emmclab; its output is shown only if it fails."""
    process = subprocess.run([sys.executable, "-m", "emmclab", *map(str, arguments)], capture_output=True, text=True)
    if process.returncode:
        sys.exit(f"emmclab {' '.join(map(str, arguments))}\n{process.stdout}{process.stderr}")


def main() -> None:
    """Run all of it, which takes about a minute."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        traces = [folder / "messaging.parquet", folder / "random.parquet"]
        run("synth", "Messaging", traces[0], "--requests", REQUESTS)
        run("synth", traces[1], "--reads", "10", "--span", "1g", "--requests", "400000")
        for trace in (*traces, *emmclab.bundled()):
            for device in DEVICES:
                run("simulate", trace, "--device", device, "--wrap-addresses", "--json")
            run("profile", trace, "--json")
        for trace, endings in zip(traces, ENDINGS, strict=True):
            for ending in endings:
                copy = trace.with_suffix(ending)
                run("convert", trace, copy)
                run("simulate", copy, "--device", "nexus5", "--wrap-addresses", "--json")


if __name__ == "__main__":
    main()
