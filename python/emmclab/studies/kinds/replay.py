"""Cells that replay a trace on a simulated device."""

from __future__ import annotations

from typing import Any

from emmclab.runtime.toml_table import TomlTable
from emmclab.studies.cuts import Cuts
from emmclab.studies.grid import FILES, REPLAYS, Grid, run_options, shared_fields
from emmclab.studies.held import opened
from emmclab.studies.input import Input, Sources
from emmclab.studies.kinds.kind import GridKind, Work


class Replays(GridKind):
    """Replays of traces."""

    modes = REPLAYS

    def read(self, read: TomlTable, cuts: Cuts | None) -> Grid:  # noqa: ARG002
        """Read a grid."""
        grid = Grid(
            **shared_fields(read),
            inputs=read.many("inputs", str, ()),
            **run_options(read),
            capacity=read.text("capacity", ""),
            requests=read.one("requests", int, 0),
        )
        if grid.requests < 0:
            raise read.fault(
                "requests",
                f"{grid.requests} requests are impossible",
                "give 1 or more, or 0 for the length of the input",
            )
        read.done()
        return grid

    def input(self, name: str, seed: int, grid: Grid, sources: Sources) -> Input:
        """Find a trace or a workload."""
        return sources.trace(name, seed, grid.requests)

    def run(self, work: Work) -> dict[str, Any]:
        """Simulate."""
        trace = opened(work.input)
        options = {**work.options, **work.image_options}
        capacity = options.pop("capacity", None)
        # The study has version, settings and digests once, for all cells.
        run = work.device().simulate(trace, seed=work.input.seed, provenance=False, **options)
        result = run.deterministic()
        # Files have the names that the study gives them, wherever copies lie.
        result["options"] |= {name: work.asked[name] for name in FILES if name in result["options"]}
        if capacity:
            result["options"]["capacity"] = capacity
        return result
