"""Plots one commit of ext4 as it reaches the device, without and with each mode of the layer `journal`.

    .venv/bin/python benches/plot_commit.py [--redraw]

Serves emmc51-cache with a mounted ext4 (root) for each mode, appends 41 records to a file with fdatasync
after each (the workload `append-log` of `emmclab crash`), and uses the device's commands of the last append:
by then the same blocks have been logged before. Writes docs/concepts/journal-commit.json and draws the .svg
beside it; `--redraw` draws the existing data.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from emmclab import _core
from emmclab.crash import Workload, record_run
from emmclab.crash.scratch_folders import scratch
from emmclab.crash.timeline import acknowledged_at
from emmclab.pages.theme import LIGHT

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "concepts" / "journal-commit.json"
PICTURE = DATA.with_suffix(".svg")
MODES = ("none", "legacy", "ordered_fua", "delta", "packed", "aware", "no_barrier", "no_journal")
OPERATIONS = 41
#: Kinds of commands in the drawing, in the order of the legend.
KINDS = ("write", "forced write", "reliable write", "flush")


def commit(mode: str) -> list[dict[str, Any]]:
    """Return the commands of the last operation in a mode, by time since it began."""
    layers = () if mode == "none" else (f"journal:{mode}",)
    with scratch() as folder:
        log = folder / "run.log"
        record_run("emmc51-cache", Workload("append-log", operations=OPERATIONS), log, layers=layers)
        run = _core.CrashRun(str(log))
        begin, end = acknowledged_at(run)[-2:]
        commands = run.commands(0, 1 << 40)
    rows = []
    for _, op, sector, sectors, flags, arrival, complete in commands:
        if begin <= arrival < end and op in ("write", "flush") and complete is not None:
            names = [flag.lower() for flag in flags]
            row = {"mode": mode, "op": op, "sector": sector, "kb": sectors / 2, "flags": names}
            rows.append(row | {"from_us": (arrival - begin) / 1e3, "to_us": (complete - begin) / 1e3})
    return rows


def kind(row: dict[str, Any]) -> str:
    """Return the kind of a command in the drawing."""
    if row["op"] == "flush":
        return "flush"
    found = [name for name in ("reliable", "forced") if name in row["flags"]]
    return f"{found[0]} write" if found else "write"


def draw(rows: list[dict[str, Any]]) -> str:
    """Draw a timeline for each mode, as SVG."""
    shown = [row | {"kind": kind(row), "label": f"{row['kb']:g}" if row["kb"] else ""} for row in rows]
    # A preflush is one command with its write; it is marked in the label.
    for row in shown:
        row["label"] += " +flush" if "preflush" in row["flags"] else ""
    base = alt.Chart(alt.Data(values=shown), width=640, height=alt.Step(34)).encode(
        x=alt.X("from_us:Q", title="µs since the record was appended; labels are KB"),
        y=alt.Y("mode:N", title=None, sort=list(MODES)),
    )
    bars = base.mark_bar(height=16, stroke="white", strokeWidth=1).encode(
        x2="to_us:Q",
        color=alt.Color("kind:N", title=None, sort=list(KINDS), scale=alt.Scale(domain=list(KINDS))),
    )
    labels = base.mark_text(align="left", dy=-13, fontSize=9).encode(text="label:N")
    return vl_convert.vegalite_to_svg((bars + labels).to_dict(), config=LIGHT | {"background": "white"})


def main() -> None:
    """Measure unless `--redraw` is given, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--redraw", action="store_true")
    if not parser.parse_args().redraw:
        rows = [row for mode in MODES for row in commit(mode)]
        DATA.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    PICTURE.write_text(draw(json.loads(DATA.read_text())))


if __name__ == "__main__":
    main()
