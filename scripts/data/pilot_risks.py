"""Measures the data that a power cut may lose with each pilot solution, for python/emmclab/data/pilot-risks.json.

    .venv/bin/python scripts/data/pilot_risks.py [--cuts 500] [--operations 60] [--solution lfs]

Needs root, FUSE, loop devices and mkfs.ext4. Each solution runs the workloads of `emmclab crash` on a device
with a cache; if a solution does not sync some files, their syncs return at once. States are those that the
contract of the devices allows. The layer `lfs` under ext4 represents the log-structured file system, because the
explorer reads ext4, and both write a log with the same order of writes and flushes. With `--solution` the
stored results of the other solutions do not change.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from emmclab.apps.solutions import SOLUTIONS
from emmclab.simulation.device import Device
from emmclab.studies.kinds import run_cuts
from emmclab.studies.power_cut_settings import CutOptions

_OUT = Path(__file__).parents[2] / "python/emmclab/data/pilot-risks.json"
_DEVICE, _CAPACITY = "emmc51-cache", "256MB"
#: The second device by layer; under power cuts it must not have a cache.
_SECOND = {"nvm-buffer": "pcm-16mb", "raid0": "emmc51-tlc"}
#: Settings by layer; a small buffer is read faster in recovery.
_SETTINGS = {"nvm-buffer": {"nvm-buffer.size": "1MB"}, "advil": {"advil.reserved": "16MiB"}}
_SYNCED = ("files", "append-log", "sqlite-delete", "sqlite-wal")
_WORKLOADS = {
    "selective-sync": ("files-unsynced", "append-log-unsynced", "sqlite-delete", "sqlite-wal"),
    "no-sync": ("files-unsynced", "append-log-unsynced", "sqlite-delete-unsynced", "sqlite-wal-unsynced"),
}
#: The layer that represents the file system of a solution.
_AS_LAYER = {"lfs": ["lfs"]}
_SEED = 1


def _scaled(name: str) -> Device:
    return Device.named(name) if name == "pcm-16mb" else Device.named(name).with_capacity(_CAPACITY)


def _explore(
    solution: str, workload: str, layers: list[str], settings: dict[str, Any], cuts: int, operations: int
) -> dict[str, Any]:
    second = _SECOND.get(solution)
    options = CutOptions(
        file_system="ordered",
        mkfs=[],
        mount="",
        recovery="process",
        capacity=_CAPACITY,
        operations=operations,
        cuts=cuts,
        states="device,boundary,omit1,only1,pairs,random",
        recovery_cuts=2,
    )
    result = run_cuts(
        *(workload, _scaled(_DEVICE), options, _SEED, None),
        layers=layers,
        layer_settings=settings,
        second=None if second is None else _scaled(second),
    )
    return {
        "workload": workload,
        "cuts": result.cuts,
        "states": result.states,
        "lost_states": result.lost_states,
        "documented_states": result.documented_states,
        "promises": sorted({finding["promise"] for finding in result.findings}),
        "first": result.first.detail,
    }


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cuts", type=int, default=500)
    parser.add_argument("--operations", type=int, default=60)
    parser.add_argument("--solution", action="append", choices=[choice.name for choice in SOLUTIONS])
    arguments = parser.parse_args()
    measured: dict[str, list[dict[str, Any]]] = {}
    if arguments.solution:
        measured = json.loads(_OUT.read_text(encoding="utf-8"))["solutions"]
    for solution in SOLUTIONS:
        name = solution.name
        if arguments.solution and name not in arguments.solution:
            continue
        measured[name] = []
        for workload in _WORKLOADS.get(name, _SYNCED):
            layers = _AS_LAYER.get(name, list(solution.layers))
            settings = {**solution.layer_settings, **_SETTINGS.get(name, {})}
            row = _explore(name, workload, layers, settings, arguments.cuts, arguments.operations)
            measured[name].append(row)
            print(f"{name} {workload}: {row['lost_states']:,} of {row['states']:,} states", file=sys.stderr)
    command = f"scripts/data/pilot_risks.py --cuts {arguments.cuts} --operations {arguments.operations}"
    about = {"command": command, "device": f"{_DEVICE}, {_CAPACITY}", "second": _SECOND, "solutions": measured}
    _OUT.write_text(_text(about), encoding="utf-8")


def _text(about: dict[str, Any]) -> str:
    """Return the file, with a line for each workload of a solution."""
    solutions = ",\n".join(
        f"  {json.dumps(name)}: [\n" + ",\n".join(f"   {json.dumps(row)}" for row in rows) + "\n  ]"
        for name, rows in about["solutions"].items()
    )
    head = "".join(f" {json.dumps(key)}: {json.dumps(about[key])},\n" for key in about if key != "solutions")
    return f'{{\n{head} "solutions": {{\n{solutions}\n }}\n}}\n'


if __name__ == "__main__":
    main()
