"""Cells that replay a trace on a simulated device."""

from typing import cast

from emmclab.runtime.toml_table import TomlTable
from emmclab.simulation.result_fields import ResultFields
from emmclab.simulation.run_options import RunOptions
from emmclab.studies.grid import AXES, FILES, REPLAYS, Grid, shared_fields
from emmclab.studies.input import Input, Sources
from emmclab.studies.input_cache import open_cached
from emmclab.studies.kinds.kind import GridKind, Work
from emmclab.studies.power_cut_settings import Cuts


class Replays(GridKind):
    """Replays of traces."""

    modes = REPLAYS

    def read(self, read: TomlTable, cuts: Cuts | None) -> Grid:  # noqa: ARG002
        """Read a grid."""
        grid = Grid(
            **shared_fields(read, AXES),
            inputs=read.many("inputs", str, ()),
            capacity=read.text("capacity", ""),
            requests=read.value("requests", int, 0),
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

    def run(self, work: Work) -> ResultFields:
        """Run the simulation."""
        trace = open_cached(work.input)
        given = {name: value for name, value in work.options.items() if name != "capacity"}
        # The study stores version, settings and digests once for all cells.
        fixed: RunOptions = {"seed": work.input.seed, "provenance": False}
        options = cast("RunOptions", {**given, **work.image_options, **fixed})
        run = work.device().simulate(trace, **options)
        result = run.deterministic()
        # Files have the names used in the study, independent of the place of copies.
        for name in FILES:
            if name in result["options"]:
                result["options"][name] = work.parts[name]
        if capacity := work.options.get("capacity"):
            result["options"]["capacity"] = capacity
        return result
