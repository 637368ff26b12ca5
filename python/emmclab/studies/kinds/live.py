"""Cells that run a program on a served device."""

from collections.abc import Sequence
from typing import Literal, cast

from emmclab.errors import ConfigError
from emmclab.runtime.toml_table import TomlTable
from emmclab.studies.grid import Grid, shared_fields
from emmclab.studies.input import Input, Sources
from emmclab.studies.kinds.kind import GridKind, Work
from emmclab.studies.power_cut_settings import Cuts
from emmclab.studies.program import Program, ServedOptions, require, run_program
from emmclab.studies.stored_types import RunFields

#: Options of a cell that `emmclab.serve` accepts.
_SERVED: tuple[Literal["precondition", "layers", "layer_settings", "second"], ...] = (
    *("precondition", "layers", "layer_settings", "second"),
)


class LivePrograms(GridKind):
    """Programs on served devices."""

    modes = ("live",)
    is_of_machine = True

    def read(self, read: TomlTable, cuts: Cuts | None) -> Grid:  # noqa: ARG002
        """Read a grid; it has no options of a replay, because the requests come from programs."""
        grid = Grid(**shared_fields(read, ("precondition", "second")), inputs=read.many("inputs", str))
        read.done()
        return grid

    def input(self, name: str, seed: int, grid: Grid, sources: Sources) -> Input:  # noqa: ARG002
        """Find a program of the study."""
        if name not in sources.programs:
            raise ConfigError(
                f"there is no program `{name}`", field="inputs", hint=f"choose one of: {', '.join(sources.programs)}"
            )
        program = sources.programs[name]
        return Input(name, name, synthetic=True, digest=program.digest, seed=seed, program=program.to_json())

    def run(self, work: Work) -> RunFields:
        """Run the program."""
        kept = {name: work.options[name] for name in _SERVED if name in work.options}
        options = cast("ServedOptions", {**kept, **work.image_options, "seed": work.input.seed})
        return run_program(Program.of(work.input.program), work.device(), options)

    def require(self, inputs: Sequence[Input]) -> None:
        """Require what is needed to serve a device, and the tools of the programs."""
        require(map(Program.of, sorted({source.program for source in inputs})))
