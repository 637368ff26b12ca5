"""Power cuts: record a run, explore the states that a cut may leave, and find which level broke which promise.

A run on a served device is recorded as a log; each state that a power cut may leave is recovered and judged
from the device up to the application. Studies of power cuts are in `studies`.
"""

from emmclab.crash.explore import Exploration, Options, explore
from emmclab.crash.recording import Workload, record_run

__all__ = ["Exploration", "Options", "Workload", "explore", "record_run"]
