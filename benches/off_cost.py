"""The cost of each option of the simulated device while it is off and on, in instructions.

    .venv/bin/python benches/off_cost.py [--against OTHER_WHOLE_PROCESS]

Off: the same run by this build and by another build of `whole_process`, usually of the commit before a
change; an option that is off must not add instructions. On: the ratio of a run with the option to one
without. Instructions are counted by `perf stat` if the kernel permits that, else by callgrind; unlike seconds
they do not depend on other load. Reading the trace is part of every run.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import emmclab

ROOT = Path(__file__).parents[1]
DEVICE = "small-1gb"
REQUESTS = 40_000
#: A device of a quarter of the size, so that the mixed load causes collection.
SMALLER = {"geometry.block_groups.0.blocks": "68"}
#: The settings that turn on each option.
OPTIONS = {
    "sleep": {"power.sleep_after_us": "1000", "power.wake_us": "3000"},
    "queue of one command": {"controller.queue_depth": "1"},
    "read-first scheduling": {"controller.scheduling": "read_first"},
    "request merging and packing": {
        "controller.queue_depth": "1",
        "host.merge_max_kb": "512",
        "host.packed_writes": "8",
    },
    "write buffer of 1 MB": {"cache.size_kb": "1024"},
    "SLC cache": {
        "slc.mode": "cache",
        "slc.blocks": "6",
        "slc.max_kb": "16",
        "slc.read_us": "25",
        "slc.program_us": "200",
        "slc.erase_us": "1500",
    },
    "idle collection": {"gc.idle_after_us": "5000"},
    "incremental collection": {"gc.mode": "incremental", "gc.high_watermark": "4"},
    "static wear levelling": {"wear.levelling": "static", "wear.threshold": "4"},
    "hot/cold separation": {"allocation.hot_max_kb": "4"},
    "same-offset rule": {"timing.same_offset": "true"},
    "cache read and program": {"timing.cache_read": "true", "timing.cache_program": "true"},
    "map on the flash": {"mapping.scheme": "dftl", "mapping.cached_entries": "16384"},
}


def make_traces(folder: Path) -> tuple[Path, Path]:
    """Write a mixed load with idle gaps for the options, and random writes for the cost while off."""
    source = random.Random(2)  # noqa: S311
    at = 0
    mixed, plain = [], []
    for _ in range(REQUESTS):
        at += source.randrange(8_000_000) if source.randrange(100) else 1_000_000_000
        sectors = source.choice([8, 8, 8, 16, 40, 128])
        mixed.append(f"{at} 0 {source.randrange(262_000) * 8} {sectors} {int(source.random() < 0.25)}\n")
    for number in range(10 * REQUESTS):
        plain.append(f"{number * 1_000_000} 0 {source.randrange(262_144) * 8} 8 0\n")
    files = folder / "mixed.ssdsim", folder / "plain.ssdsim"
    files[0].write_text("".join(mixed))
    files[1].write_text("".join(plain))
    return files


def counter() -> list[str] | None:
    """Return the command that counts instructions on this machine, or None."""
    perf = ["perf", "stat", "-x,", "-e", "instructions:u"]
    if shutil.which("perf"):
        tried = subprocess.run([*perf, "true"], capture_output=True, text=True, check=False)
        if re.search(r"^\d+,", tried.stderr, re.MULTILINE):
            return perf
    if shutil.which("valgrind"):
        return ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    return None


def instructions(count: list[str], program: Path, trace: Path, settings: dict[str, str]) -> int:
    """Count the instructions of a whole process."""
    pairs = [f"{key}={value}" for key, value in settings.items()]
    command = [*count, str(program), str(trace), DEVICE, *pairs]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"^(\d+),|Collected : (\d+)", done.stderr, re.MULTILINE)
    if found is None:
        sys.exit(f"no count in: {done.stderr}")
    return int(found[1] or found[2])


def page_operations(trace: Path, settings: dict[str, str]) -> int:
    """Run the same in Python to get the number of page operations, which the program prints only as text."""
    device = emmclab.Device.preset(DEVICE).set(settings)
    result = device.simulate(emmclab.read(trace), mode="open", wrap_addresses=True)
    return int(result["flash.page_reads.total"] + result["flash.page_programs.total"])


def main() -> None:
    """Print both tables."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--against", type=Path, metavar="PROGRAM", help="another build of whole_process")
    given = arguments.parse_args()
    count = counter()
    if count is None:
        print("instructions cannot be counted: perf is not permitted here, and there is no valgrind")
        return
    build = "cargo build --release --quiet --workspace --example whole_process"
    subprocess.run(build.split(), check=True, cwd=ROOT)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    program = target / "release" / "examples" / "whole_process"
    print(f"instructions counted by {count[0]}")
    with tempfile.TemporaryDirectory() as name:
        mixed, plain = make_traces(Path(name))
        if given.against is not None:
            for label, trace in (("mixed", mixed), ("random writes", plain)):
                before, now = (instructions(count, each, trace, {}) for each in (given.against, program))
                print(f"everything off, {label}: {now / before:.3f} of the other build", flush=True)
        print(f"{'option':<30} {'page operations':>16} {'instructions each':>18} {'to none':>8}")
        base = instructions(count, program, mixed, SMALLER)
        for label, added in {"none": {}, **OPTIONS}.items():
            settings = SMALLER | added
            total = instructions(count, program, mixed, settings) if added else base
            operations = page_operations(mixed, settings)
            print(
                f"{label:<30} {operations:>16,} {total / operations:>18.0f} {total / base:>8.2f}", flush=True
            )


if __name__ == "__main__":
    main()
