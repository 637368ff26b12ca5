"""Measures whole processes that simulate two workloads in every input format, and SSDsim if its folder is given.

    .venv/bin/python benches/whole_process.py [--traces FOLDER] [--ssdsim FOLDER] [--rounds 9]
    .venv/bin/python benches/whole_process.py --instructions [--keep]

* a Pixel 6a `telegram_exec` (251,879 requests, 1.54 million pages) on a 32 GB device;
* 786,432 uniform random writes of 4 KB on a new 1 GB device with 7 % of over-provisioning.

All processes run in turn in each round, so that changes of the load of the machine affect all equally. The table has
medians of wall seconds, for which a user waits, and of processor seconds, which other work affects less; a second
thread of emmclab reads the trace ahead.

`--ssdsim`, or the variable EMMCLAB_SSDSIM, is a folder with SSDsim's program `ssd` and its parameters for each
workload, `telegram.parameters` and `random.parameters`. SSDsim then runs in the same rounds, and the table has
the ratio of the medians.

`--instructions` counts the instructions of each process (Valgrind's cachegrind, a minute each) and compares them with
the stored table, instructions.csv, which `--keep` replaces. A case that takes 2 % more fails. The
column `nov_25` has the counts of 25 November 2026, when all crates were built at level 3 in one unit.
"""

import argparse
import csv
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import emmclab

ROOT = Path(__file__).parents[1]
SSDSIM = "SSDsim"
INSTRUCTIONS = Path(__file__).with_name("instructions.csv")
TELEGRAM = Path("pixel6a") / "telegram_exec.csv.gz"


class Case(NamedTuple):
    """A row of the table: one process, its folder, and its standard input."""

    workload: str
    label: str
    device: str
    command: list[str]
    folder: Path = ROOT
    answer: str = ""


def timed(case: Case) -> tuple[float, float]:
    """Return wall seconds and processor seconds of a run."""
    begin = time.perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(case.command, cwd=case.folder, stdin=subprocess.PIPE, text=True, **quiet)
    if process.stdin is not None:
        process.stdin.write(case.answer)
        process.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    # SSDsim exits with 1 when it is done.
    if status and case.label != SSDSIM:
        sys.exit(f"failed: {' '.join(case.command)}")
    return wall, usage.ru_utime + usage.ru_stime


def count_instructions(rows: list[Case], keep: bool) -> None:
    """Print the millions of instructions of each process and of the stored table; with `keep`, store them there."""
    if shutil.which("valgrind") is None:
        sys.exit("not measured: valgrind is missing; install Debian's package valgrind")
    with INSTRUCTIONS.open() as file:
        stored = {row["case"]: row for row in csv.DictReader(file)}
    worse = []
    print(f"{'case':<48} {'Minstr':>8} {'of kept':>8} {'of 25 Nov':>9}")
    for row in rows:
        if row.label in (SSDSIM, "emmclab simulate"):
            continue
        name = f"{row.workload}, {row.label}, {row.device}"
        count = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", *row.command]
        text = subprocess.run(count, cwd=row.folder, check=True, capture_output=True, text=True).stderr
        (number,) = re.findall(r"I +refs: +([\d,]+)", text)
        millions = int(number.replace(",", "")) / 1e6
        before = stored.setdefault(name, {"case": name, "kept": "", "nov_25": ""})
        ratios = [f"{millions / float(before[of]):.3f}" if before[of] else "-" for of in ("kept", "nov_25")]
        print(f"{name:<48} {millions:>8.1f} {ratios[0]:>8} {ratios[1]:>9}", flush=True)
        if before["kept"] and millions > 1.02 * float(before["kept"]):
            worse.append(name)
        before["kept"] = f"{millions:.1f}"
    if keep:
        with INSTRUCTIONS.open("w") as file:
            table = csv.DictWriter(file, ["case", "kept", "nov_25"], lineterminator="\n")
            table.writeheader()
            table.writerows(stored.values())
    elif worse:
        sys.exit(f"2 % more instructions than in the stored table: {'; '.join(worse)}")


def make_telegram(source: Path, folder: Path) -> dict[str, Path]:
    """Write the Pixel trace in every format; the BIOtracer log repeats the arrival for missing times."""
    trace = emmclab.read(source)
    files = {"Pixel CSV, gzip": source}
    for label, name in (("SSDsim ASCII", "telegram.ssdsim"), ("Parquet", "telegram.parquet")):
        files[label] = folder / name
        trace.write(files[label])
    lines = []
    for line in files["SSDsim ASCII"].read_text().splitlines():
        arrival, _, sector, sectors, read = map(int, line.split())
        stamps = [f"{arrival // 10**9}.{arrival % 10**9:09d}"] * 4
        lines.append("\t\t".join([str(sector), str(sectors), str(512 * sectors), str(1 - read), *stamps]))
    files["BIOtracer text"] = folder / "telegram.biotracer"
    files["BIOtracer text"].write_text("\n".join(lines) + "\n")
    return files


def make_random(folder: Path) -> dict[str, Path]:
    """Write random writes, one per millisecond, over the whole capacity of the device."""
    source = random.Random(1)  # noqa: S311
    files = {"SSDsim ASCII": folder / "random.ssdsim", "Parquet": folder / "random.parquet"}
    lines = [f"{number * 1_000_000} 0 {source.randrange(262_144) * 8} 8 0\n" for number in range(786_432)]
    files["SSDsim ASCII"].write_text("".join(lines))
    emmclab.read(files["SSDsim ASCII"]).write(files["Parquet"])
    return files


def ssdsim(folder: Path, workload: str, trace: Path, scratch: Path) -> Case:
    """Return the case of SSDsim on a trace; its standard input answers the question for a name."""
    work = scratch / f"ssdsim-{workload}"
    work.mkdir()
    shutil.copy(folder / f"{workload}.parameters", work / "page.parameters")
    (work / "trace").write_text(trace.read_text().rstrip("\n"))
    return Case(workload, SSDSIM, "", [str((folder / "ssd").resolve())], work, "trace\n")


def cases(traces: Path, peer: Path | None, folder: Path) -> Iterator[Case]:
    """Yield every measured process; its files are written to `folder`."""
    build = "cargo build --release --quiet --example whole_process"
    subprocess.run(build.split(), check=True, cwd=ROOT)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    program = str(target / "release" / "examples" / "whole_process")
    cli = [sys.executable, "-m", "emmclab", "simulate", "--json", "--wrap-addresses", "--device"]
    telegram = (traces / TELEGRAM).resolve()
    if telegram.exists():
        for label, path in make_telegram(telegram, folder).items():
            for device in ("iiswc15-4ps", "ssdsim", "nexus5", "ufs31"):
                yield Case("telegram", label, device, [program, str(path), device])
        path = folder / "telegram.ssdsim"
        yield Case("telegram", "emmclab simulate", "iiswc15-4ps", [*cli, "iiswc15-4ps", str(path)])
        if peer:
            yield ssdsim(peer, "telegram", path, folder)
    else:
        print(f"there is no {telegram}: give the folder of the recorded traces")
    for label, path in make_random(folder).items():
        yield Case("random", label, "small-1gb", [program, str(path), "small-1gb"])
    path = folder / "random.ssdsim"
    yield Case("random", "emmclab simulate", "small-1gb", [*cli, "small-1gb", str(path)])
    if peer:
        yield ssdsim(peer, "random", path, folder)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--traces", type=Path, default=os.environ.get("EMMCLAB_TRACES", "../shared/traces"))
    parser.add_argument("--ssdsim", type=Path, default=os.environ.get("EMMCLAB_SSDSIM") or None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rows = list(cases(arguments.traces, arguments.ssdsim, Path(name)))
        if arguments.instructions:
            count_instructions(rows, arguments.keep)
            return
        rounds = [[timed(row) for row in rows] for _ in range(arguments.rounds)]
    medians = [
        tuple(statistics.median(run[which] for run in runs) for which in (0, 1)) for runs in zip(*rounds, strict=True)
    ]
    peers = {row.workload: wall for row, (wall, _) in zip(rows, medians, strict=True) if row.label == SSDSIM}
    print(f"{'input':<34} {'device':<12} {'wall s':>8} {'cpu s':>8}{' SSDsim / ours, wall' if peers else ''}")
    for row, (wall, cpu) in zip(rows, medians, strict=True):
        label = f"{row.workload}, {row.label}"
        ratio = f" {peers[row.workload] / wall:>8.1f}" if row.workload in peers else ""
        print(f"{label:<34} {row.device:<12} {wall:>8.3f} {cpu:>8.3f}{ratio}")


if __name__ == "__main__":
    main()
