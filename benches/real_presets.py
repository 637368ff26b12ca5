"""The simulation speed of presets of real devices, compared with those of papers: the reference benchmark.

    .venv/bin/python benches/real_presets.py [--traces FOLDER] [--against OTHER_WHOLE_PROCESS] [--rounds N]

Three workloads: Messaging (Nexus 5), Telegram (Pixel 6a), and a stream of random writes of 4 to 64 KB that
keeps collection busy, on devices reduced to less than 1 GB if a setting allows that. Whole processes run in
turn, so that changes in the machine's load affect all builds alike; the fastest run counts. Million page
operations per second of the replay, and with `--against` the other build's and the ratio: above 1, this build
is the faster one.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import emmclab

ROOT = Path(__file__).parents[1]
PRESETS = (
    "nexus5",
    "emmc51-tlc",
    "ufs31",
    "ufs40",
    "pixel6a",
    "galaxys2",
    "microsd-class10",
    "iiswc15-4ps",
    "iiswc15-hps",
    "ssdsim",
    "small-1gb",
)
#: Settings that make a device so small that a short stream causes collection. Block-mapped devices merge from
#: the first overwrite on.
SMALL = {
    "nexus5": {"geometry.block_groups.0.blocks": 70, "geometry.block_groups.1.blocks": 120},
    "emmc51-tlc": {"geometry.block_groups.0.blocks": 40},
    "small-1gb": {},
    "galaxys2": {},
    "microsd-class10": {},
}
WRITES = 150_000
SPEED = re.compile(r"([\d.]+) million page operations/s")


def stream(folder: Path) -> Path:
    """Write random writes of 4 to 64 KB over 4 GB, one each 10 ms."""
    source = random.Random(1)  # noqa: S311
    file = folder / "stream.ssdsim"
    lines = []
    for number in range(WRITES):
        sectors = source.choice((8, 8, 8, 16, 32, 128))
        sector = source.randrange((4 << 30) // 512 // sectors) * sectors
        lines.append(f"{number * 10_000_000} 0 {sector} {sectors} 0\n")
    file.write_text("".join(lines))
    return file


def speed(program: str, arguments: list[str]) -> float:
    """Return million page operations per second of one run."""
    out = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    found = SPEED.search(out.stdout)
    if not found:
        sys.exit(f"failed: {program} {' '.join(arguments)}\n{out.stderr}")
    return float(found[1])


def workloads(traces: Path, folder: Path) -> dict[str, Path]:
    """Return every workload whose trace exists."""
    found = {"stream": stream(folder)}
    for name, source in (
        ("messaging", traces / "nexus5" / "log106_Messaging.txt"),
        ("telegram", traces / "pixel6a" / "telegram_exec.csv.gz"),
    ):
        if source.exists():
            found[name] = folder / f"{name}.parquet"
            emmclab.read(source).write(found[name])
        else:
            print(f"there is no {source}: give the folder of the real traces")
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    traces = Path(os.environ.get("EMMCLAB_TRACES", "../shared/traces"))
    parser.add_argument("--traces", type=Path, default=traces)
    parser.add_argument("--against", help="another build of whole_process")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    build = "cargo build --release --quiet --workspace --example whole_process"
    subprocess.run(build.split(), check=True, cwd=ROOT)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    own = str(target / "release" / "examples" / "whole_process")
    programs = [own] if options.against is None else [own, options.against]
    head = f"{'device':<16} {'workload':<10} {'M ops/s':>8}"
    print(f"{head} {'other':>8} {'ratio':>6}" if options.against else head)
    with tempfile.TemporaryDirectory() as name:
        files = workloads(options.traces, Path(name))
        for preset in PRESETS:
            for workload, file in sorted(files.items()):
                if workload == "stream" and preset not in SMALL:
                    continue
                settings = SMALL[preset] if workload == "stream" else {}
                arguments = [str(file), preset, *(f"{key}={value}" for key, value in settings.items())]
                runs = [[speed(program, arguments) for program in programs] for _ in range(options.rounds)]
                best = [max(run[i] for run in runs) for i in range(len(programs))]
                row = f"{preset:<16} {workload:<10} {best[0]:>8.2f}"
                if options.against:
                    row += f" {best[1]:>8.2f} {best[0] / best[1]:>6.2f}"
                print(row, flush=True)


if __name__ == "__main__":
    main()
