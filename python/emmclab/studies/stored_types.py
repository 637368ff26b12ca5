"""Types of the stored data of a study: options of cells, their results, and the index of a finished run."""

from pathlib import Path
from typing import Any, NotRequired, TypedDict

from emmclab.apps.result_types import KeptAppRun
from emmclab.core_types import SimulationResult
from emmclab.simulation.layers import Setting

#: The options of a cell by name: `mode`, `capacity`, options of a run (`RUN_OPTIONS`), and those of its kind.
#: A profile has only percentiles.
CellOptions = dict[str, Any]


class ImageOptions(TypedDict, total=False):
    """Options for sharing preconditioned devices between runs; empty if they are not shared."""

    images: Path
    images_limit: int


class CellParts(TypedDict):
    """The parts of a cell; the digests are those of files."""

    grid: str
    input: str
    input_digest: str
    synthetic: bool
    requests_asked: int | None
    seed: int
    #: Options of `emmclab.read`, if there are any.
    reading: NotRequired[dict[str, Setting]]
    second_digest: NotRequired[str]
    precondition_digest: NotRequired[str]


class CellFields(CellParts):
    """Everything that determines the result of a cell, except the version; a profile has no device."""

    device: NotRequired[str]
    device_digest: NotRequired[str]
    settings: NotRequired[dict[str, Setting]]
    options: NotRequired[CellOptions]


class Failed(TypedDict):
    """Why a cell has no result."""

    message: str
    hint: str | None


class FailedCell(CellFields, Failed):
    """A cell that failed."""


class FlatCell(TypedDict):
    """The columns by which messages name a cell; the row of the cell in its table has further columns."""

    grid: str
    input: str
    seed: int
    device: NotRequired[str]


class FailedRow(FlatCell):
    """The row of a cell that failed."""

    message: str
    hint: str | None


class RunRow(FlatCell):
    """The row of a run; if its device stopped early, it contains the reason."""

    run_stopped: NotRequired[str | None]


class FileSystemFields(TypedDict):
    """The file system of a program on a served device, as `FileSystem`."""

    format: str
    mount_options: str
    dirty_mb: int


class LiveSoftware(TypedDict):
    """The software that a program ran on: kernel and tools with their versions, and the file system."""

    host: dict[str, str]
    file_system: FileSystemFields


class Run(SimulationResult):
    """A stored result with its cell."""

    trace: str
    grid: str
    input: str
    input_digest: str
    synthetic: bool
    requests_asked: int | None
    seed: int
    device_digest: str
    options: CellOptions
    #: By dotted key, with values in the types of the device.
    settings: dict[str, Any]
    #: Only for applications: times and I/O.
    app: KeptAppRun
    #: Only for programs on served devices.
    live: LiveSoftware
    #: The recorded trace that replaces the workload `input`.
    recorded_as: str | None
    #: Why the cell failed; it then has no result.
    message: str | None


class Entry(TypedDict):
    """A stored cell with its result (whose form depends on the cell's kind), or why it failed."""

    cell: CellFields
    result: NotRequired[dict[str, Any]]
    failed: NotRequired[Failed]


class Used(TypedDict):
    """A recorded trace that replaces a workload; `input` is its name among the inputs."""

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
    """Properties that only some results have."""

    #: Cells without a result.
    missing: int
    #: The grids of these cells.
    missing_grids: list[str]
    recordings: RecordingsAbout
    traces_folder: str


class About(FurtherAbout):
    """The origin of results: study and software."""

    name: str
    about: str
    version: str
    definition: str
    reading: dict[str, Setting]
    percentiles: list[float]
    cells: int
    recorded: list[str]
    sources: list[str]
    #: By device: the sources to which it was fitted.
    fitted: dict[str, FittedTo]
    recorded_inputs: list[str]


class MissingCell(TypedDict):
    """A cell without a result, and the reason."""

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
