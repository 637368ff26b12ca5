"""Interface for kinds of study cells: reading and expanding grids, running a cell, and the tables of results."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from emmclab.runtime.document import Row
from emmclab.runtime.toml_table import TomlTable
from emmclab.simulation.device import Device
from emmclab.studies.flatten import flat, percentile_columns, with_settings
from emmclab.studies.grid import Grid
from emmclab.studies.input import Input, Sources
from emmclab.studies.power_cut_settings import Cuts
from emmclab.studies.stored_types import CellFields, CellOptions, ImageOptions

#: Name of the table of runs on simulated or served devices.
RUNS = "runs"


class Images(NamedTuple):
    """A folder of preconditioned devices that study cells share, and its maximum size in bytes; 0 stores none."""

    folder: Path
    limit: int
    #: Folder for the logs of power-cut tests.
    logs: Path | None = None

    @property
    def options(self) -> ImageOptions:
        """The options of a run that make it use this folder of preconditioned devices."""
        return {"images": self.folder, "images_limit": self.limit} if self.limit else {}


class Common(NamedTuple):
    """Settings that all cells of a study share: power-cut settings, and `percentiles` if it is set."""

    cuts: Cuts | None
    percentiles: CellOptions


@dataclass(frozen=True)
class Work:
    """What a study cell runs: the input, the options with local paths of files, and the device."""

    input: Input
    options: CellOptions
    #: Options with the original file paths of the study, instead of paths of local copies.
    parts: CellOptions
    #: Function that creates the device of the cell.
    device: Callable[[], Device]
    images: Images | None

    @property
    def image_options(self) -> ImageOptions:
        """Run options with which cells share preconditioned devices; empty if this cell does not share them."""
        return {} if self.images is None else self.images.options


class CellKind(ABC):
    """A kind of study cell."""

    #: Names of the tables with the results; the first table has a row for each cell.
    tables: tuple[str, ...]
    #: Whether the results depend on the kernel and the tools of the machine on which a run of the study takes place.
    is_of_machine = False

    @abstractmethod
    def run(self, work: Work) -> Mapping[str, object]:
        """Return the result of a cell; its form depends on the kind."""

    @abstractmethod
    def rows(self, cell: CellFields, result: Row) -> Iterator[tuple[str, Row]]:
        """Yield the table rows of a result, each with the name of its table; that of the whole result is first."""

    def require(self, inputs: Sequence[Input]) -> None:  # noqa: B027 - most kinds need nothing.
        """Reject cells with these inputs if this machine cannot run them.

        Raises:
            UnsupportedError: no root, FUSE or loop devices, or a tool is missing.
        """


class GridKind(CellKind):
    """A kind of study cell (a single run) that a grid of the study defines: by default a run on a device."""

    #: Modes that a study file can specify for this kind of grid.
    modes: tuple[str, ...]
    tables = (RUNS,)
    #: Whether grids of this kind list their own inputs. Other grids use the inputs of the study.
    has_own_inputs = False

    @abstractmethod
    def read(self, read: TomlTable, cuts: Cuts | None) -> Grid:
        """Read a grid (a set of runs with varied settings) from a study file.

        `cuts` are the power-cut settings that all grids of the study share.

        Raises:
            ConfigError: a key is unknown, missing or wrong.
        """

    @abstractmethod
    def input(self, name: str, seed: int, grid: Grid, sources: Sources) -> Input:
        """Find an input of a grid.

        Raises:
            ConfigError: there is no input of this name.
        """

    def variants(self, grid: Grid) -> tuple[str, ...]:  # noqa: ARG002
        """Return the names of the grid's variants, such as file systems; these are varied besides devices and axes."""
        return ("",)

    def grid_options(self, grid: Grid) -> CellOptions:  # noqa: ARG002
        """Return the options that this kind adds to all runs of a study grid.

        Raises:
            ConfigError: the grid contains an option that none of its runs could use.
        """
        return {}

    def variant_options(self, grid: Grid, variant: str, common: Common) -> CellOptions:  # noqa: ARG002
        """Return the options of the study cells of one variant of a grid."""
        chosen = common.percentiles.get("percentiles")
        return {"percentiles": chosen} if chosen else {}

    def rows(self, cell: CellFields, result: Row) -> Iterator[tuple[str, Row]]:
        """Yield the row of a run for the table `runs`."""
        row = flat({**result, **cell}, is_run=True) | percentile_columns(result.get("percentiles", ()))
        yield RUNS, with_settings(row, cell)
