"""Power cuts: record a run, explore what a cut may leave, and name who broke which promise."""

from emmclab.crash.explore import Exploration, Options, explore
from emmclab.crash.recording import Workload, record_run

__all__ = ["Exploration", "Options", "Workload", "explore", "record_run"]
