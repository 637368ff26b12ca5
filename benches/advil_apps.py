"""What Advil does for real applications: recorded traces on the devices of its paper, under each layer.

    .venv/bin/python benches/advil_apps.py TRACE... [--mode MODE] [--reserved 256MB] [--seed 1] [--json FILE]

The eMMC of the Galaxy S II, full of data, with a part of the microSD card as the reserved area; addresses
are wrapped into 12 GB. Printed for each trace and layer: mean response, simulated time, write amplification
of the eMMC, and MB logged, moved to the original area (with padding) and kept hot. A name that comes with
emmclab (`emmclab synth`) stands for a trace, with its seed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import emmclab
from emmclab.device import Device
from emmclab.trace import Trace
from emmclab.workload import Workload, benchmark, benchmarks

LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bare": ("pass-through", {}),
    "ReSSD": ("ressd", {}),
    "padding": ("advil", {"hot": "none"}),
    "Advil": ("advil", {}),
    "rewritten": ("advil", {"hot": "rewritten"}),
    "with recovery": ("advil", {"hot": "rewritten", "recovery": True}),
    "no checkpoints": ("advil", {"hot": "rewritten", "recovery": True, "checkpoint": "0"}),
}
AREAS = {"second_device": True, "original": "12GB"}
_MB = 2**20


def opened(name: str, seed: int) -> Trace:
    """A trace by its path, or a workload or benchmark by its name."""
    if Path(name).exists():
        return emmclab.read(name)
    if name in benchmarks():
        return benchmark(name, seed)
    return Workload.named(name).trace(seed)


def run(name: str, label: str, options: argparse.Namespace) -> dict[str, Any]:
    """One trace under one layer."""
    layer, settings = LAYERS[label]
    chosen = {} if layer == "pass-through" else AREAS | {"reserved": options.reserved} | settings
    result = Device.preset("galaxys2").simulate(
        opened(name, options.seed),
        mode=options.mode,
        wrap_addresses=True,
        precondition="sequential:100",
        layers=[layer],
        layer_settings={f"{layer}.{key}": value for key, value in chosen.items()},
        second=None if layer == "pass-through" else "microsd-class10",
    )
    counts = result["layers"][0]
    return {
        "trace": Path(name).name.partition(".")[0],
        "seed": options.seed,
        "layer": label,
        "mean_response_ms": result["response.mean_response_ms"],
        "simulated_s": result["run.simulated_s"],
        "waf": result["write_amplification.waf"],
        "written_mb": result["requests.bytes_written"] / _MB,
        **{
            field: sum(counts.get(count, 0) for count in parts) / _MB
            for field, parts in {
                "logged_mb": ["logged_bytes"],
                "moved_mb": ["moved_bytes", "padded_bytes"],
                "hot_mb": ["hot_bytes"],
                "checkpoint_mb": ["checkpoint_bytes"],
            }.items()
        },
        "switches": counts.get("switches", 0),
    }


def main(arguments: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--mode", default="back_to_back", help="open, closed or back_to_back")
    parser.add_argument("--reserved", default="256MB")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layers", default=",".join(LAYERS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    rows = []
    for name in options.traces:
        for label in options.layers.split(","):
            row = run(name, label, options)
            if not rows:
                print("| " + " | ".join(row) + " |\n|" + " --- |" * len(row))
            cells = [f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values()]
            print("| " + " | ".join(cells) + " |", flush=True)
            rows.append(row)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
