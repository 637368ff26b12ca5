"""Studies: workloads and traces on devices under settings, run once, kept, and read by anything."""

from emmclab.study.definition import Study
from emmclab.study.executors import Executor, Pool, Serial
from emmclab.study.grid import Grid
from emmclab.study.results import Results
from emmclab.study.run import run_study

__all__ = ["Executor", "Grid", "Pool", "Results", "Serial", "Study", "run_study"]
