"""Types of the result of an application, so that mypy finds misspelt keys.

The structs of `crates/apps/src/result.rs` and `requests.rs` have the same fields.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

from emmclab.simulation.result_types import DeviceFields

#: A part of the time that the user waited for. For storage, `wait` is the cause of the wait, and `class` and
#: `partition` are those of the file; otherwise they are None.
Spent = TypedDict(
    "Spent",
    {"state": str, "wait": str | None, "class": str | None, "partition": str | None, "ns": int},
)


class LearnedTime(TypedDict):
    """The time of the thread that the user waits for in a learned program, in ns.

    `asleep_ns` and `unexplained_ns` are waits of this thread, and of threads that it waited for; they are as
    long on every device. `behind_ns` is the work of other threads after its end; the program lacks it.
    """

    thread: str
    runs: str
    lasted_ns: int
    asleep_ns: int
    unexplained_ns: int
    behind_ns: int


class Thread(TypedDict):
    """A thread: its time by state, in ns."""

    name: str
    alive_ns: int
    states: dict[str, int]


class Lane(TypedDict):
    """The time of a thread, or of the critical path, in each bin by state, in ns."""

    name: str
    states: dict[str, list[int]]


class OverTime(TypedDict):
    """The run in bins of equal width; first the critical path, then each thread."""

    bin_ns: int
    lanes: list[Lane]


class RequestGroup(TypedDict):
    """Number, bytes and total time of requests of one sort."""

    requests: int
    bytes: int
    sequential: int
    sequential_bytes: int
    device_ns: int
    sequential_device_ns: int


class ReadsWrites(TypedDict):
    """Reads and writes of one class of files."""

    read: RequestGroup
    write: RequestGroup


class WrittenRole(TypedDict):
    """Bytes that were written as blocks of a role."""

    role: str
    bytes: int


class RequestCounts(TypedDict):
    """Requests that reached the device."""

    all: ReadsWrites
    discards: int
    flushes: int
    sync_points: int
    classes: dict[str, ReadsWrites]
    causes: dict[str, int]
    roles: list[WrittenRole]


class AppTimes(TypedDict):
    """Times of an application by thread and cause."""

    program: str
    host: str
    era: str
    network: str
    seed: int
    what_if: list[str]
    runtime_ns: int
    user_waits_for: str
    states: dict[str, int]
    spent: list[Spent]
    threads: list[Thread]
    cpu_ns: int
    network_bytes: int
    file_operations: int
    file_syncs: int
    over_time: OverTime


class AppRun(AppTimes):
    """A run in the model, or live; figures that a live run does not have are None."""

    kernel_cpu_ns: int | None
    requests: RequestCounts | None


class KeptAppRun(AppTimes):
    """A run in the model as a study stores it."""

    kernel_cpu_ns: int
    requests: RequestCounts
    runtime_s: float
    storage_s: float


class AppFields(TypedDict):
    """The groups of the result of an application, without its options."""

    app: AppRun
    device: DeviceFields
    #: Reasons not to trust the run.
    warnings: NotRequired[list[str]]


class Agreement(TypedDict):
    """A figure of a live run and of one in the model; `difference_pct` is None if the live figure is 0."""

    name: str
    unit: str
    live: float
    model: float
    difference_pct: float | None
