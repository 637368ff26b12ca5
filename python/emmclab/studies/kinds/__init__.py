"""The kinds of study cells; `kind` defines their interface.

The modes of a grid determine its kind. Profiles of inputs are cells without a grid.
"""

from collections.abc import Sequence

from emmclab.runtime.toml_table import TomlTable
from emmclab.studies.grid import Grid
from emmclab.studies.kinds.kind import CellKind, GridKind
from emmclab.studies.kinds.power_cut import PowerCuts
from emmclab.studies.kinds.run_kinds import PROFILE, Apps, LivePrograms, Profiles, Replays
from emmclab.studies.power_cut_settings import Cuts
from emmclab.studies.stored_types import CellOptions

#: Kinds of study grids. Only a grid of the first kind, which replays traces, can have several modes.
KINDS: tuple[GridKind, ...] = (Replays(), LivePrograms(), PowerCuts(), Apps())
PROFILES: CellKind = Profiles()
_BY_MODE = {mode: kind for kind in KINDS for mode in kind.modes}
#: Names of all tables that a study can have.
TABLES = (*dict.fromkeys(kind.tables[0] for kind in (*KINDS, PROFILES)), "failures", *PROFILES.tables[1:])


def kind_of_modes(modes: Sequence[str]) -> GridKind:
    """Return the kind of a study grid from its modes.

    >>> kind_of_modes(("open", "closed")).tables
    ('runs',)
    """
    return _BY_MODE[modes[0]]


def kind_of_cell(grid: str, options: CellOptions | None) -> CellKind:
    """Return the kind of a single run of a study (cell), from the name of its grid and its options.

    The options may be None for a profile.

    >>> kind_of_cell("profile", None).tables[0]
    'profiles'
    """
    return PROFILES if grid == PROFILE or options is None else _BY_MODE[options["mode"]]


def read_grid(read: TomlTable, cuts: Cuts | None) -> Grid:
    """Read a grid (a group of similar runs) of a study; `cuts` are the settings that all power-cut grids share."""
    modes = read.alternatives("modes", str, Grid.modes)
    if not modes:
        raise read.fault("modes", "this list is empty", "give at least one, or leave it out")
    for mode in modes:
        if mode not in _BY_MODE:
            *most, last = _BY_MODE
            raise read.fault("modes", f"there is no mode `{mode}`", f"use {', '.join(most)} or {last}")
        if len(modes) > 1 and _BY_MODE[mode] is not KINDS[0]:
            raise read.fault(
                "modes", f"a grid of mode {mode} has no other mode", f'give it alone: `modes = ["{mode}"]`'
            )
    return kind_of_modes(modes).read(read, cuts)


def has_own_inputs(read: TomlTable) -> bool:
    """Return whether every `[[grid]]` table of a study file is of a kind with its own inputs."""
    grids = read.tables("grid")
    modes = {mode for kind in KINDS if kind.has_own_inputs for mode in kind.modes}
    return bool(grids) and all(modes & {*part.value("modes", (list, tuple), ())} for part in grids)
