"""Types of the stored data of a study: options of cells, their results, and the index of a finished run."""

from pathlib import Path
from typing import Any, NotRequired, TypedDict

from emmclab.core_types import AppResult, SimulationResult
from emmclab.simulation.layers import Setting

#: Options of one cell (a single run of a study), by name: `mode`, `capacity`, run options (`RUN_OPTIONS`), and options
#: of the cell's kind. A cell that profiles an input only has percentiles.
CellOptions = dict[str, Any]


class ImageOptions(TypedDict, total=False):
    """Options of a run for sharing preconditioned devices with other runs; empty if they are not shared."""

    images: Path
    images_limit: int


class CellParts(TypedDict):
    """The fields that identify a study cell; the digests are those of files."""

    grid: str
    input: str
    input_digest: str
    synthetic: bool
    requests_asked: int | None
    seed: int
    #: Options of `emmclab.read` with which the input is read, if there are any.
    reading: NotRequired[dict[str, Setting]]
    second_digest: NotRequired[str]
    precondition_digest: NotRequired[str]


class CellFields(CellParts):
    """Everything that determines the result of a study cell, except the version; a profile has no device."""

    device: NotRequired[str]
    device_digest: NotRequired[str]
    settings: NotRequired[dict[str, Setting]]
    options: NotRequired[CellOptions]


class Failed(TypedDict):
    """The reason why a study cell has no result."""

    message: str
    hint: str | None


class FailedCell(CellFields, Failed):
    """A study cell that failed, with the reason."""


class FlatCell(TypedDict):
    """The columns that identify a run of a study in messages; the table row of the run has more columns."""

    grid: str
    input: str
    seed: int
    device: NotRequired[str]


class FailedRow(FlatCell):
    """The table row of a study cell that failed."""

    message: str
    hint: str | None


class RunRow(FlatCell):
    """The table row of a run; if its device stopped early, it contains the reason."""

    run_stopped: NotRequired[str | None]


class FileSystemFields(TypedDict):
    """The file system of a program on a served device; the JSON form of `FileSystem`."""

    format: str
    mount_options: str
    dirty_mb: int


class LiveSoftware(TypedDict):
    """The software with which a program was run: kernel and tools with their versions, and the file system."""

    host: dict[str, str]
    file_system: FileSystemFields


class KeptAppRun(AppResult):
    """A simulated run of an application, as a study stores it: with the fields `runtime_s` and `storage_s`."""

    runtime_s: float
    storage_s: float


class Run(SimulationResult):
    """A stored result of a run, with the fields of its cell."""

    trace: str
    grid: str
    input: str
    input_digest: str
    synthetic: bool
    requests_asked: int | None
    seed: int
    device_digest: str
    options: CellOptions
    #: Device settings by dotted key, with values in the types that the device uses.
    settings: dict[str, Any]
    #: Times and I/O of the simulated application; missing in cells that do not run an application.
    app: KeptAppRun
    #: Kernel, tools and file system with which a program ran on a served device; missing in other cells.
    live: LiveSoftware
    #: Recorded trace that replaces the workload `input`, if any.
    recorded_as: str | None
    #: Error message of a cell that failed, and so has no result.
    message: str | None


class Entry(TypedDict):
    """A stored run of a study with its result (in a form that depends on its kind), or the reason why it failed."""

    cell: CellFields
    result: NotRequired[dict[str, Any]]
    failed: NotRequired[Failed]


class Used(TypedDict):
    """A recorded trace that replaces a workload; `input` is the trace's name in the list of inputs."""

    file: str
    workload: str
    how: str
    input: str


class RecordingsAbout(TypedDict):
    """The recorded traces that replace workloads, and the files that are left out, with the reason."""

    folder: str
    used: list[Used]
    left_out: list[list[str]]


class FittedTo(TypedDict):
    """The sources to which a device was fitted, and its costs of flushes and durable writes."""

    sources: list[str]
    costs_us: list[float]


class FurtherAbout(TypedDict, total=False):
    """Fields of the description of results that only some results have."""

    #: Number of single runs of the study (cells) that have no result.
    missing: int
    #: Names of the grids that contain cells without a result.
    missing_grids: list[str]
    recordings: RecordingsAbout
    traces_folder: str


class About(FurtherAbout):
    """The description stored with the results of a study: study and software."""

    name: str
    about: str
    version: str
    definition: str
    reading: dict[str, Setting]
    percentiles: list[float]
    cells: int
    recorded: list[str]
    sources: list[str]
    #: Sources to which each device was fitted, by device.
    fitted: dict[str, FittedTo]
    recorded_inputs: list[str]


class MissingCell(TypedDict):
    """A study cell without a result, and the reason."""

    key: str
    grid: str
    input: str
    seed: int
    device: str
    reason: str


class Index(TypedDict):
    """Index of the last finished run: the keys of its cells, in the order of the study."""

    study: About
    cells: list[str]
    missing: NotRequired[list[MissingCell]]
