"""Plots the cost of a page operation by size of the device and length of the run.

    .venv/bin/python benches/plot_cost.py [--redraw] [--rounds 3] [--longest 1000000000] [--largest 1024]

Runs `device_cost` for each case, in rounds over all cases, keeps the fastest run of each (load on the host
must not count), writes docs/concepts/device-cost.json and draws the .svg beside it; `--redraw` draws the
existing data. A round takes three minutes, the largest device 2 GB of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from emmclab.pages.theme import LIGHT

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "concepts" / "device-cost.json"
PICTURE = DATA.with_suffix(".svg")
SIZES_GB = (1, 4, 16, 64, 256, 1024)
LENGTHS = (10**5, 10**6, 10**7, 10**8, 10**9)


def measure(rounds: int, longest: int, largest: int) -> list[dict[str, Any]]:
    """Return the fastest run of every case up to these bounds, each in a separate process."""
    build = "cargo build --release --quiet --workspace --example device_cost"
    subprocess.run(build.split(), check=True, cwd=ROOT)
    program = (
        Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "examples" / "device_cost"
    )
    cases = [("length", str(count)) for count in LENGTHS if count <= longest]
    cases += [("size", str(gb)) for gb in SIZES_GB if gb <= largest]
    fastest: dict[tuple[str, str], dict[str, Any]] = {}
    for case in cases * rounds:
        done = subprocess.run([program, *case], check=True, capture_output=True, text=True)
        print(done.stdout, end="", flush=True)
        row = json.loads(done.stdout)
        fastest[case] = min(fastest.get(case, row), row, key=lambda run: run["ns_per_page_operation"])
    return list(fastest.values())


def panel(rows: list[dict[str, Any]], across: tuple[str, str], up: tuple[str, str]) -> alt.Chart:
    """Draw one figure over another; the first axis is logarithmic."""
    ticks = [row[across[0]] for row in rows]
    scale = alt.Scale(type="log", base=10 if across[0] == "requests" else 2)
    axis = alt.Axis(values=ticks, format="~s" if across[0] == "requests" else "d")
    base = alt.Chart(alt.Data(values=rows), width=230, height=190).encode(
        x=alt.X(f"{across[0]}:Q", title=across[1], scale=scale, axis=axis),
        y=alt.Y(f"{up[0]}:Q", title=up[1], scale=alt.Scale(zero=True)),
    )
    return base.mark_line() + base.mark_circle(size=45, opacity=1)


def draw(rows: list[dict[str, Any]]) -> str:
    """Arrange the panels side by side, as SVG."""
    sizes = [row for row in rows if row["case"] == "size"]
    lengths = [row for row in rows if row["case"] == "length"]
    cost = ("ns_per_page_operation", "ns per page operation")
    chart = alt.hconcat(
        panel(sizes, ("gb", "capacity in GB, device full"), cost),
        panel(lengths, ("requests", "requests in the run"), cost),
        panel(lengths, ("requests", "requests in the run"), ("peak_mb", "peak memory in MB")),
    )
    return vl_convert.vegalite_to_svg(chart.to_dict(), config=LIGHT | {"background": "white"})


def main() -> None:
    """Measure unless `--redraw` is given, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--redraw", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--longest", type=int, default=LENGTHS[-1])
    parser.add_argument("--largest", type=int, default=SIZES_GB[-1])
    arguments = parser.parse_args()
    if not arguments.redraw:
        rows = measure(max(1, arguments.rounds), arguments.longest, arguments.largest)
        DATA.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    PICTURE.write_text(draw(json.loads(DATA.read_text())))


if __name__ == "__main__":
    main()
