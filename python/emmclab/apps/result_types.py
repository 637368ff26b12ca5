"""Types of the results of applications, built from types of the core."""

from typing import TypedDict

from emmclab.core_types import AppResult


class LearnedTime(TypedDict):
    """The time of the thread that the user waits for in a learned program, in ns.

    `asleep_ns` and `unexplained_ns` are waits of this thread, and of threads that it waited for; they do not
    depend on the device. `behind_ns` is the work of other threads after its end; the program omits it.
    """

    thread: str
    runs: str
    lasted_ns: int
    asleep_ns: int
    unexplained_ns: int
    behind_ns: int


#: Result of a run in the model or live; fields that a live run does not have are None.
AppRun = AppResult


class KeptAppRun(AppResult):
    """A simulated run of an application in the form in which a study stores it."""

    runtime_s: float
    storage_s: float


class Agreement(TypedDict):
    """A figure of a live run and of a simulated run; `difference_pct` is None if the live figure is 0."""

    name: str
    unit: str
    live: float
    model: float
    difference_pct: float | None
