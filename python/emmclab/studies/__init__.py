"""Studies: run each workload or trace under each setting once, store the results, and query them.

A study is a TOML file that is expanded into cells, each of which is run once: a profile, a simulation, an application,
a run on a served device, or a recording with power cuts. Searches choose further cells. Results are queried with SQL.
Bundled studies are read as files from the folders of `papers`; nothing is imported from there.
"""

from emmclab.runtime.executors import Executor, Pool, Serial
from emmclab.studies.definition import Study
from emmclab.studies.grid import Grid
from emmclab.studies.results import Results
from emmclab.studies.run import run_study

__all__ = ["Executor", "Grid", "Pool", "Results", "Serial", "Study", "run_study"]
