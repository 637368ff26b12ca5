"""Compares emmclab with existing tools: whole processes on the same data in one run.

    .venv/bin/python benches/peers.py

* `blkparse` and `btt` on blktrace's own files (where Debian's blktrace is installed);
* a pandas script that computes Tables III and IV of a CSV without service times.

Each command runs three times, and the fastest run is printed. Processor time includes all threads, and depends
least on other work on the machine.
"""

import gzip
import shutil
import struct
import sys
import tempfile
from pathlib import Path

from whole_process import Case, timed

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "crates" / "trace" / "tests" / "fixtures"
EMMCLAB = [sys.executable, "-m", "emmclab"]
RECORD = struct.Struct("<IIQQIIIIIHH")
REPEATS = 400

PANDAS = """
import sys
import pandas as pd
t = pd.read_csv(sys.argv[1])
kb = t.sectors / 2
end = t.sector + t.sectors
write = t.op == "write"
print(len(t), kb.sum(), kb.max(), kb.mean(), kb[~write].mean(), kb[write].mean(), 100 * write.mean(),
      100 * kb[write].sum() / kb.sum(), 100 * (t.sector == end.shift()).mean(),
      100 * t.sector.duplicated().mean(),
      len(t) / ((t.arrival_ns.iloc[-1] - t.arrival_ns.iloc[0]) / 1e9))
"""


def show_best(label: str, *commands: list[str], folder: Path) -> None:
    """Print the lowest cost of three runs of these commands, which run one after the other."""
    costs = []
    for _ in range(3):
        each = [timed(Case("", label, "", command, folder)) for command in commands]
        costs.append([sum(seconds) for seconds in zip(*each, strict=True)])
    wall_s, cpu_s = (min(seconds) for seconds in zip(*costs, strict=True))
    print(f"{label:<52} {wall_s:>8.2f} {cpu_s:>8.2f}")


def repeat_blktrace(folder: Path) -> int:
    """Write the small recorded files repeatedly, with increasing times; return the number of events."""
    events = 0
    for cpu in (0, 1):
        data = gzip.decompress((FIXTURES / f"little.blktrace.{cpu}.gz").read_bytes())
        records = []
        place = 0
        while place < len(data):
            fields = RECORD.unpack_from(data, place)
            length = RECORD.size + fields[-1]
            records.append((fields, data[place + RECORD.size : place + length]))
            place += length
        span = 10**10
        with (folder / f"big.blktrace.{cpu}").open("wb") as file:
            for turn in range(REPEATS):
                for fields, payload in records:
                    later = (*fields[:2], fields[2] + turn * span, *fields[3:])
                    file.write(RECORD.pack(*later) + payload)
                    events += 1
    return events


def make_csv(path: Path, rows: int) -> None:
    """Write a CSV of requests: arrival_ns, op, sector, sectors."""
    state = 1
    with path.open("w") as file:
        file.write("arrival_ns,op,sector,sectors\n")
        for number in range(rows):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            op = "read" if state >> 62 == 0 else "write"
            file.write(f"{number * 100_000},{op},{(state >> 40) % 8_000_000 * 8},{8 << (state >> 38 & 3)}\n")


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        profile = [*EMMCLAB, "profile", "--json"]
        print(f"{'what':<52} {'seconds':>8} {'CPU s':>8}")
        if shutil.which("blkparse") and shutil.which("btt"):
            events = repeat_blktrace(folder)
            parse = ["blkparse", "-q", "-i", "big", "-d", "big.bin", "-O"]
            show_best(f"blkparse + btt, {events:,} events", parse, ["btt", "-i", "big.bin"], folder=folder)
            show_best("emmclab profile, the same files", [*profile, "big.blktrace.0"], folder=folder)
        rows = 2_000_000
        make_csv(folder / "big.csv", rows)
        script = folder / "tables.py"
        script.write_text(PANDAS)
        show_best(f"pandas script, {rows:,} requests in CSV", [sys.executable, str(script), "big.csv"], folder=folder)
        show_best("emmclab profile, the same file", [*profile, "big.csv"], folder=folder)


if __name__ == "__main__":
    main()
