"""The effect of Advil on real applications: recorded traces on the devices of its paper, with each layer.

    .venv/bin/python benches/advil_apps.py TRACE... [--mode MODE] [--reserved 256MB] [--seed 1] [--json FILE]

The eMMC of the Galaxy S II, full of data, with a part of the microSD card as the reserved area; addresses are
wrapped into 12 GB. Prints for each trace and layer: mean response, simulated time, bandwidth of writes until
the last request and until the log was drained afterwards, write amplification of the eMMC, and MB logged,
moved to the original area (with padding) and kept hot. A name of a bundled workload (`emmclab synth`) is also
accepted as a trace; it is generated with the seed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import emmclab
from emmclab.simulation.device import Device
from emmclab.traces.trace import Trace
from emmclab.traces.workload import Workload, benchmark, benchmarks

LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bare": ("pass-through", {}),
    "ReSSD": ("ressd", {}),
    "padding": ("advil", {"hot": "none"}),
    "Advil": ("advil", {}),
    "data": ("advil", {"hot_invalidated": "data"}),
    "fixed 30 %": ("advil", {"hot_step_pct": 0}),
    "fixed 10 %": ("advil", {"hot_step_pct": 0, "hot_start_pct": 10}),
    "fixed 5 %": ("advil", {"hot_step_pct": 0, "hot_start_pct": 5}),
    "each hole by itself": ("advil", {"read_through": "0"}),
    "rewritten": ("advil", {"hot": "rewritten"}),
    "with recovery": ("advil", {"hot": "rewritten", "recovery": True}),
    "no checkpoints": ("advil", {"hot": "rewritten", "recovery": True, "checkpoint": "0"}),
}
AREAS = {"second_device": True, "original": "12GB"}
_MB = 2**20


def opened(name: str, seed: int) -> Trace:
    """Open a trace by its path, or a workload or benchmark by its name."""
    if Path(name).exists():
        return emmclab.read(name)
    if name in benchmarks():
        return benchmark(name, seed)
    return Workload.named(name).trace(seed)


def run(name: str, label: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run one trace with one layer."""
    layer, settings = LAYERS[label]
    chosen = {} if layer == "pass-through" else AREAS | {"reserved": options.reserved} | settings
    result = (
        Device.preset("galaxys2")
        .set(dict(options.device_settings))
        .simulate(
            opened(name, options.seed),
            mode=options.mode,
            wrap_addresses=True,
            precondition="sequential:100",
            layers=[layer],
            layer_settings={f"{layer}.{key}": value for key, value in chosen.items()},
            second=None if layer == "pass-through" else "microsd-class10",
            drain=True,
            images=options.images,
        )
    )
    written, run_s, drain_s = (
        result[path] for path in ("requests.bytes_written", "run.simulated_s", "run.drain_s")
    )
    counts = result["layers"][0]
    return {
        "trace": Path(name).name.partition(".")[0],
        "seed": options.seed,
        "layer": label,
        "mean_response_ms": result["response.mean_response_ms"],
        "simulated_s": run_s,
        "drain_s": drain_s,
        "write_mb_s": written / _MB / run_s,
        "drained_mb_s": written / _MB / (run_s + drain_s),
        "waf": result["write_amplification.waf"],
        "written_mb": written / _MB,
        **{
            field: sum(counts.get(count, 0) for count in parts) / _MB
            for field, parts in {
                "logged_mb": ["logged_bytes"],
                "moved_mb": ["moved_bytes", "padded_bytes"],
                "hot_mb": ["hot_bytes"],
                "rewritten_mb": ["rewritten_bytes"],
                "block_mb": ["move_block_bytes"],
                "page_mb": ["move_page_bytes"],
                "other_mb": ["move_other_bytes"],
                "checkpoint_mb": ["checkpoint_bytes"],
            }.items()
        },
        "switches": counts.get("switches", 0),
        "hot_pct": counts.get("hot_region_pct", 0),
        "logged_writes": counts.get("logged_writes", 0),
        "passed_writes": counts.get("passed_writes", 0),
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
    parser.add_argument("--images", type=Path, help="folder of preconditioned devices, for reuse")
    parser.add_argument(
        "--set",
        dest="device_settings",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        type=lambda text: tuple(text.split("=", 1)),
        help="setting of the eMMC",
    )
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
