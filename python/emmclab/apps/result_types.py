"""Types of the results of applications, built from types of the core."""

from typing import TypedDict

from emmclab.core_types import AppResult


class LearnedTime(TypedDict):
    """Times of the thread for which the user of a learned program waits, in ns.

    `asleep_ns` and `unexplained_ns` are waits of this thread and of the threads for which it waited; they do not depend
    on the device. `behind_ns` is the work of other threads after the end of this thread; the learned program omits this
    work.
    """

    thread: str
    runs: str
    lasted_ns: int
    asleep_ns: int
    unexplained_ns: int
    behind_ns: int


#: Result of an application run, simulated or on a served device. The latter leaves some fields None.
AppRun = AppResult


class KeptAppRun(AppResult):
    """A simulated run of an application, as a study stores it: with the fields `runtime_s` and `storage_s`."""

    runtime_s: float
    storage_s: float


class Agreement(TypedDict):
    """A figure of a live run and of a simulated run; `difference_pct` is None if the live figure is 0."""

    name: str
    unit: str
    live: float
    model: float
    difference_pct: float | None
