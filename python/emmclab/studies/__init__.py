"""Studies: run each workload or trace under each setting once, store the results, and query them.

A study is a TOML file that expands into cells; each cell is profiled, simulated, run as an application, run
on a served device, or recorded to cut power. Searches choose further cells. Results are queried with SQL.
Bundled studies are read as files from the folders of `papers`; nothing is imported from there.
"""

from emmclab.runtime.executors import Executor, Pool, Serial
from emmclab.studies.definition import Study
from emmclab.studies.grid import Grid
from emmclab.studies.results import Results
from emmclab.studies.run import run_study

__all__ = ["Executor", "Grid", "Pool", "Results", "Serial", "Study", "run_study"]
