"""Writes figures of runs and traces over time (time bins) to files for other tools."""

from collections.abc import Sequence
from pathlib import Path

from emmclab.runtime.document import Row
from emmclab.runtime.files import refuse_other_endings, to_csv, write_atomically
from emmclab.simulation.result import Result
from emmclab.traces.profile import Profile

Rows = list[Row]


def over_time_rows(sources: Sequence[Profile | Result]) -> Rows:
    """Return the time bins of traces or runs as rows, with the names of trace, device and layers.

    >>> import emmclab
    >>> list(over_time_rows([emmclab.profile(emmclab.bundled()[0])])[0])[:3]
    ['trace', 'time_s', 'width_s']
    """
    rows = []
    for source in sources:
        if isinstance(source, Profile):
            rows += [{"trace": source.name, **row} for row in source.figure("io_over_time")]
        else:
            names = {"trace": source.trace, "device": source.run_name}
            rows += [{**names, **row} for row in source.over_time]
    return rows


def check_target(path: Path) -> str:
    """Reject an output file with an unsupported extension before any work is done; return the extension.

    Raises:
        ConfigError: its name ends in neither `.csv` nor `.parquet`.
    """
    return refuse_other_endings(path, (".csv", ".parquet"), "--over-time")


def write_over_time(rows: Rows, path: Path) -> None:
    """Write time bins as CSV or Parquet, by the file extension; write nothing if there are none.

    Raises:
        ConfigError: the extension is not supported.
    """
    ending = check_target(path)
    if rows and ending == ".csv":
        write_atomically(path, to_csv(rows))
    elif rows:
        from emmclab.runtime.parquet import write_parquet

        write_parquet(path, rows)
