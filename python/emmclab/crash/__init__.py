"""Power cuts: record a run, explore its crash states, and find which level broke which durability promise.

A run on a served device is recorded as a log. Each crash state, that is, each content that a power cut may leave, is
recovered and checked from the device up to the application. Studies of power cuts are in `studies`.
"""

from emmclab.crash.explore import Exploration, Options, explore
from emmclab.crash.recorded_folder import FilesOutcome, RecordedFolder, explore_files
from emmclab.crash.recording import Workload, record_run

__all__ = [
    "Exploration",
    "FilesOutcome",
    "Options",
    "RecordedFolder",
    "Workload",
    "explore",
    "explore_files",
    "record_run",
]
