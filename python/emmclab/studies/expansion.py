"""The cells of a study: every input on every device, for all values of all axes."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from emmclab.errors import ConfigError, EmmclabError
from emmclab.simulation.device import Device
from emmclab.simulation.layers import Setting, settings_of, stack
from emmclab.simulation.preconditioning import parse_precondition
from emmclab.simulation.run_options import RUN_OPTIONS
from emmclab.studies.cell import Cell
from emmclab.studies.cell_options import CellOptions
from emmclab.studies.grid import AXES, Grid
from emmclab.studies.input import Input, Sources
from emmclab.studies.kinds import kind_of_modes
from emmclab.studies.kinds.kind import Common
from emmclab.studies.kinds.profile import PROFILE
from emmclab.traces.workload import workload_groups

if TYPE_CHECKING:
    from emmclab.studies.definition import Study

#: Words that represent groups of inputs.
GROUPS = workload_groups()
#: Maximum number of cells of a study; a larger number is probably a mistake, and is refused.
MOST_CELLS = 1_000_000


def expand(study: Study) -> list[Cell]:
    """Expand a study into cells, input by input, so that each input is prepared once; profiles come first.

    Raises:
        ConfigError: a device, setting or input is wrong, or there are too many cells.
    """
    _refuse_too_many(study)
    sources = Sources(study.reading, {program.name: program for program in study.programs})
    common = Common(study.cuts, _percentiles(study))
    wanted: dict[Input, list[Cell]] = {}
    for source in _profiled(study, sources):
        wanted.setdefault(source, []).append(Cell(PROFILE, source, options=json.dumps(common.percentiles)))
    devices: dict[str, tuple[str, str]] = {}
    for grid in study.grids:
        kind = kind_of_modes(grid.modes)
        with _naming(study.file, grid):
            inputs = _inputs(study, grid, sources)
        for one, shared in _by_options(study.file, grid):
            for device, values, mode, variant in _points(one):
                of_layers = settings_of(one.layers, values)
                settings = {key: value for key, value in values.items() if key not in of_layers}
                said = json.dumps(settings)
                point = f"{device} {one.capacity} {said}"
                if point not in devices:
                    with _naming(study.file, grid):
                        devices[point] = _name_and_digest(device, settings, one.capacity)
                options: CellOptions = {
                    "mode": mode,
                    **shared,
                    **kind.variant_options(one, variant, common),
                    **_layer_options(one, of_layers),
                }
                # All cells share one text, because a study may have a million cells.
                text = json.dumps(options)
                for source in inputs:
                    wanted.setdefault(source, []).append(Cell(one.name, source, device, said, *devices[point], text))
    return [cell for cells in wanted.values() for cell in cells]


def _refuse_too_many(study: Study) -> None:
    """Count the cells of the grids before any is made, because a short file can define too many for memory.

    Raises:
        ConfigError: there are more cells than a study may have.
    """
    counts = {}
    for grid in study.grids:
        ways = [grid.devices, *grid.axes.values(), grid.modes, kind_of_modes(grid.modes).variants(grid)]
        sources = [_resolved(grid.inputs or study.inputs), grid.seeds or study.seeds]
        counts[grid.name] = math.prod(map(len, [*ways, *sources]))
    profiled = (name.partition(" --only ")[0] for name in _resolved(study.inputs))
    # A recording does not depend on the seed.
    counts[PROFILE] = sum(
        1 if Path(name).is_file() and not name.endswith(".toml") else len(study.seeds) for name in profiled
    )
    total = sum(counts.values())
    if total > MOST_CELLS:
        largest = max(counts, key=lambda name: counts[name])
        raise ConfigError(
            f"{study.file or study.name}: this study has {total:,} cells, more than {MOST_CELLS:,}",
            file=study.file or None,
            field="grid",
            hint=f"take out axes, values or seeds: `{largest}` alone has {counts[largest]:,} cells",
        )


def _profiled(study: Study, sources: Sources) -> Iterator[Input]:
    """Yield the inputs that are profiled; a recording does not depend on the seed."""
    first, *others = study.seeds
    for name in _resolved(study.inputs):
        found = sources.trace(name, first)
        yield found
        if found.synthetic:
            yield from (sources.trace(name, seed) for seed in others)


def _inputs(study: Study, grid: Grid, sources: Sources) -> list[Input]:
    """Return the inputs of a grid, one for each seed."""
    kind = kind_of_modes(grid.modes)
    names = _resolved(grid.inputs or study.inputs)
    pairs = itertools.product(names, grid.seeds or study.seeds)
    return [kind.input(name, seed, grid, sources) for name, seed in pairs]


def _resolved(names: Sequence[str]) -> list[str]:
    """Replace the words for groups by their members; return each input once, in order."""
    return list(dict.fromkeys(one for name in names for one in GROUPS.get(name, [name])))


def _check(grid: Grid) -> None:
    """Reject settings that no cell of a grid could use.

    Raises:
        ConfigError: an unknown preconditioning, layer, setting of a layer or device.
    """
    parse_precondition(grid.option("precondition"))
    stack(grid.layers, grid.layer_settings)
    if second := grid.option("second"):
        Device.named(second)


def _by_options(file: str, grid: Grid) -> Iterator[tuple[Grid, CellOptions]]:
    """Yield the grid for each combination of options among its axes, with the options of its cells."""
    for one in grid.by_options():
        with _naming(file, grid):
            _check(one)
            shared: CellOptions = {**_shared_options(one), **kind_of_modes(one.modes).grid_options(one)}
        yield one, shared


def _points(grid: Grid) -> Iterator[tuple[str, dict[str, Setting], str, str]]:
    """Yield the points of a grid: device, settings, mode, and variant (file system or network)."""
    variants = kind_of_modes(grid.modes).variants(grid)
    for device, values, mode, variant in itertools.product(
        grid.devices, itertools.product(*grid.axes.values()), grid.modes, variants
    ):
        yield device, {**grid.set, **dict(zip(grid.axes, values, strict=True))}, mode, variant


def _name_and_digest(device: str, settings: Mapping[str, Setting], capacity: str) -> tuple[str, str]:
    made = Device.named(device)
    if settings:
        made = made.set(settings)
    if capacity:
        made = made.with_capacity(capacity)
    return made.name, made.digest


def _shared_options(grid: Grid) -> CellOptions:
    """Return the options that cells of every kind have: those that are always stored, and those set."""
    own = {name: RUN_OPTIONS[name] for name in sorted(AXES) if not _is_of_layers(name)}
    kept = {name: grid.option(name) for name, one in own.items() if one.stored == "always"}
    kept |= {name: grid.option(name) for name in own if grid.option(name) != AXES[name]}
    return {**kept, "capacity": grid.capacity} if grid.capacity else kept


def _is_of_layers(option: str) -> bool:
    return RUN_OPTIONS[option].panel == "Layers"


def _percentiles(study: Study) -> CellOptions:
    return {"percentiles": list(study.percentiles)} if study.percentiles else {}


def _layer_options(grid: Grid, settings: Mapping[str, Setting]) -> CellOptions:
    """Return the options of layers; `settings` are those of this point, besides those of all points."""
    if not grid.layers:
        return {}
    return {
        "layers": list(grid.layers),
        "layer_settings": {**grid.layer_settings, **settings},
        "second": grid.option("second") or None,
        **{name: grid.option(name) for name in AXES if RUN_OPTIONS[name].panel == "Layers" and name != "second"},
    }


@contextlib.contextmanager
def _naming(file: str, grid: Grid) -> Iterator[None]:
    """Add file, grid and, if the message allows it, the key to errors about devices and settings."""
    try:
        yield
    except EmmclabError as error:
        said = str(error)
        tables = {"set": grid.set, "axes": grid.axes, "layer_settings": grid.layer_settings}
        keys = [
            f"{table}.{key}"
            for table, values in tables.items()
            for key in values
            if re.search(rf"(?<![\w.]){re.escape(key)}(?![\w.])", said)
        ]
        if error.field is not None and error.field in AXES:
            keys = [f"axes.{error.field}" if error.field in grid.axes else error.field]
        place = f"{grid.place}{keys[0]}" if keys else grid.place.rstrip(".")
        raise type(error)(
            f"{file}: grid `{grid.name}`: `{place}`: {said}",
            kind=error.kind,
            file=file,
            field=place,
            hint=error.hint,
            errno=error.errno,
        ) from error
