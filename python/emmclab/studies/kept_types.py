"""Types of what is kept of a study: cells, their results, and the index of a finished run."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from emmclab.devices.layers import Setting


class Asked(TypedDict):
    """What a cell is of; the digests are those of files."""

    grid: str
    input: str
    input_digest: str
    synthetic: bool
    requests_asked: int | None
    seed: int
    #: Options of `emmclab.read`, where there are any.
    reading: NotRequired[dict[str, Setting]]
    second_digest: NotRequired[str]
    precondition_digest: NotRequired[str]


class CellFields(Asked):
    """All that determines the result of a cell, but for the version; a profile has no device."""

    device: NotRequired[str]
    device_digest: NotRequired[str]
    settings: NotRequired[dict[str, Setting]]
    options: NotRequired[dict[str, Any]]


class Failed(TypedDict):
    """Why a cell has no result."""

    message: str
    hint: str | None


class Entry(TypedDict):
    """A cell as it is kept, with its result (its form is that of the kind of the cell), or why it failed."""

    cell: CellFields
    result: NotRequired[dict[str, Any]]
    failed: NotRequired[Failed]


class Used(TypedDict):
    """A recorded trace in the place of a workload; `input` is its name among the inputs."""

    file: str
    workload: str
    how: str
    input: str


class RecordingsAbout(TypedDict):
    """The recorded traces that take the place of workloads, and files that are left out, with the reason."""

    folder: str
    used: list[Used]
    left_out: list[list[str]]


class FittedTo(TypedDict):
    """What a device was fitted to, and its costs of flushes and durable writes."""

    sources: list[str]
    costs_us: list[float]


class FurtherAbout(TypedDict, total=False):
    """What only some results say."""

    #: Cells without a result.
    missing: int
    recordings: RecordingsAbout
    traces_folder: str


class About(FurtherAbout):
    """What results are of."""

    name: str
    about: str
    version: str
    definition: str
    reading: dict[str, Setting]
    percentiles: list[float]
    cells: int
    recorded: list[str]
    sources: list[str]
    #: By device: what it was fitted to.
    fitted: dict[str, FittedTo]
    recorded_inputs: list[str]


class MissingCell(TypedDict):
    """A cell without a result, and why."""

    key: str
    grid: str
    input: str
    seed: int
    device: str
    reason: str


class Index(TypedDict):
    """The last finished run: the keys of its cells, in the order of the study."""

    study: About
    cells: list[str]
    missing: NotRequired[list[MissingCell]]
