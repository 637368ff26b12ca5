"""Command-line options that the commands for studies share, and functions that run studies with progress."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from emmclab.cli.console import print_stderr
from emmclab.cli.failures import complete_files
from emmclab.cli.name_completion import complete_words, study_names
from emmclab.cli.options import Reading, argument, option
from emmclab.cli.progress import StudyMeter
from emmclab.errors import ConfigError, EmmclabError, InputError

if TYPE_CHECKING:
    from emmclab.papers.registry import Paper
    from emmclab.runtime.result_storage import Place
    from emmclab.studies import Executor, Results, Study
    from emmclab.studies.cell import Cell
    from emmclab.studies.input import Recordings
    from emmclab.studies.store import Finished

#: Default results folder.
RESULTS = Path("emmclab-results")

StudyName = Annotated[
    str, argument("STUDY", "An included study such as iiswc15, or a TOML file.", autocompletion=study_names)
]
Jobs = Annotated[int, option("Processes; 0 for one per processor.", "Running", min=0)]
Fresh = Annotated[
    bool,
    option("Run all cells again, or only cells that are missing or of another build.", "Running", "--fresh/--resume"),
]
ResultsFolder = Annotated[
    Path, option("Results folder, with a subfolder per study.", None, "--results", advanced=True, metavar="DIR")
]
ResultsPlace = Annotated[
    str,
    option(
        "Results folder, or a bucket as s3://BUCKET/PREFIX, with a subfolder per study.",
        None,
        "--results",
        metavar="DIR|URL",
    ),
]
Engine = Annotated[
    str,
    option(
        "local; ray: a new Ray cluster on this machine; auto or ray://HOST:PORT: a running Ray cluster.",
        "Running",
        "--on",
        advanced=True,
        metavar="ENGINE",
        autocompletion=complete_words("local", "ray", "auto"),
    ),
]
ImagesSpace = Annotated[
    float,
    option(
        "Space for preconditioned devices in the results folder, which cells share; 0 stores none.",
        "Running",
        "--images-gb",
        advanced=True,
        min=0,
        metavar="GB",
    ),
]
TraceInputs = Annotated[
    list[Path], option("A recorded trace in addition to the workloads; may be repeated.", None, "--trace")
]
PaperTraces = Annotated[
    Path | None,
    option(
        "A folder with the original traces of a paper. IISWC 2015: they replace the workloads "
        "(WorkSpace_nexus5/Trace_files of the archive at SNIA IOTTA). SYSTOR 2024: the study needs them "
        "(the public repository acsl-technion/MobileBlockIOTraces).",
        None,
        "--traces",
        metavar="DIR",
    ),
]


def executor(jobs: int, on: str = "local") -> Executor:
    """Return the executor named `on`: this process, `jobs` processes (0 for one per CPU), or a Ray cluster."""
    from emmclab.studies import Pool, Serial

    if on == "local":
        count = jobs or os.cpu_count() or 1
        return Serial() if count == 1 else Pool(count)
    if on not in ("ray", "auto") and not on.startswith("ray://"):
        raise ConfigError(
            f"`{on}` is not an engine that runs cells",
            field="--on",
            hint="use local, ray (starts a cluster on this machine), auto or ray://HOST:PORT (joins one)",
        )
    from emmclab.studies.cluster import RayCluster

    if jobs and on != "ray":
        raise ConfigError(
            "the number of processes of a running cluster cannot be changed", field="--jobs", hint="leave out --jobs"
        )
    cluster = RayCluster(None if on == "ray" else on, jobs)
    if cluster.dashboard:
        print_stderr(f"Ray's dashboard: http://{cluster.dashboard.removeprefix('http://')}")
    return cluster


@contextlib.contextmanager
def keeping(study: Study, cells: Sequence[Cell] | None, place: Place) -> Iterator[None]:
    """Print how many results of a study are stored, if the `with` block is interrupted or the disk is full.

    If `cells` is not None, only the results of these cells (runs of the study) are counted.
    """
    from emmclab.studies.store import Store

    def stored_text() -> str:
        stored = Store(place).keys()
        if cells is None:
            return f"{len(stored):,} cells are stored in {place}"
        count = sum(cell.key in stored for cell in cells)
        return f"{count:,} of {len(cells):,} cells are stored in {place}"

    try:
        yield
    except KeyboardInterrupt:
        complete_files.append(f"{study.name}: {stored_text()}; the same command continues the run")
        raise
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        hint = f"{stored_text()}; free some space; the same command then continues the run"
        raise InputError.of(error, getattr(error, "file", None), hint=hint) from error


def finish_with_meter(
    study: Study,
    place: Place,
    engine: Executor,
    *,
    cells: Sequence[Cell] | None = None,
    without: Collection[str] = (),
    fresh: bool = False,
    images_limit: int | None = None,
) -> Finished:
    """Run a study without the grids in `without`; print progress and the remaining time on stderr."""
    from emmclab.studies.run import run_cells
    from emmclab.studies.store import IMAGES_BYTES

    limit = IMAGES_BYTES if images_limit is None else images_limit
    cells = study.cells() if cells is None else cells
    selected = [cell for cell in cells if cell.grid not in without]
    with contextlib.closing(engine), keeping(study, selected, place), StudyMeter(study.name) as meter:
        return run_cells(
            study,
            place,
            engine,
            fresh=fresh,
            images_limit=limit,
            cells=cells,
            without=without,
            progress=meter,
            note=print_stderr,
        )


def run_with_meter(
    study: Study, folder: Path, jobs: int, fresh: bool = False, without: Collection[str] = ()
) -> Results:
    """Run a study, except the grids of cells in `without`; print progress on stderr. A failed cell is an error."""
    from emmclab.runtime.result_storage import Folder
    from emmclab.studies import Results

    place = Folder(folder)
    finished = finish_with_meter(study, place, executor(jobs), without=without, fresh=fresh)
    if finished.failures:
        first = finished.failures[0]
        raise EmmclabError(f"{study.name}: {first['input']}: {first['message']}", hint=first["hint"])
    return Results.load(place)


def rerun_command(study: str, results: str | Path) -> str:
    """Return the command that runs a study again with the same results folder."""
    results_option = "" if str(results) == str(RESULTS) else f" --results {shlex.quote(str(results))}"
    return f"emmclab run {shlex.quote(study)}{results_option}"


def warn_of_changes(place: Path, study: str | None = None) -> None:
    """Print a warning if results were computed from other versions of files, or by another build.

    `place` is the folder of the results of a study, or a file of `emmclab collect`.
    """
    from emmclab.studies.kinds import TABLES
    from emmclab.studies.run import changes, study_of

    # All tables of a study run contain the same provenance, so any one of them can be read.
    tables = [place / f"{name}.parquet" for name in TABLES] if place.is_dir() else [place]
    table = next(filter(Path.is_file, tables), None)
    reasons = [] if table is None else changes(table)
    if table is None or not reasons:
        return
    text = ", ".join(reasons[:3]) + (f" and {len(reasons) - 3} more" if len(reasons) > 3 else "")
    rerun = rerun_command(study or study_of(table), place.parent if place.is_dir() else RESULTS)
    then_collect = "" if place.is_dir() else ", then `emmclab collect`,"
    print_stderr(f"warning: the results in {place} are out of date: {text}; `{rerun}`{then_collect} updates them")


def incomplete(missing: int, cells: int) -> str:
    """Return a sentence on the missing cells of a study.

    >>> incomplete(1, 72)
    'incomplete: 1 of 72 cells has no result (1.4 %)'
    """
    have = "has" if missing == 1 else "have"
    return f"incomplete: {missing:,} of {cells:,} cells {have} no result ({100 * missing / cells:.1f} %)"


def note_reading(reading: Reading, recorded: Sequence[str], recordings: Recordings | None) -> None:
    """Print a note if options for reading traces have no effect because no recorded trace is read."""
    if reading.changed_options() and not recorded and recordings is None:
        print_stderr("note: no recorded trace is read (--trace, --traces): options for reading have no effect")


def recorded_traces(paths: list[Path]) -> list[str]:
    """Return the paths of recorded traces as inputs of a study; reject a path that is not a file."""
    for path in paths:
        if not path.is_file():
            raise ConfigError(f"{path}: file not found", field="--trace", hint="check the path")
    return [str(path) for path in paths]


def recordings_of(folder: Path | None, papers: Sequence[Paper], reading: Reading) -> Recordings | None:
    """Find the original traces of papers in a folder, and print which workload each file contains."""
    if folder is None:
        return None
    if not any(paper.takes_traces for paper in papers):
        from emmclab.papers.registry import studies
        from emmclab.studies import Study

        replacing = [name for name, paper in studies().items() if paper.takes_traces]
        of_traces = [name for name in studies() if Study.named(name).traces is not None]
        raise ConfigError(
            f"original traces cannot replace workloads of {', '.join(paper.name for paper in papers) or 'findings'}",
            field="--traces",
            hint=f"use --traces only for {' and '.join(replacing)}, or in `emmclab reproduce` for "
            f"{' and '.join(of_traces)}; to add a trace of your own, use --trace FILE",
        )
    from emmclab.papers.iiswc15.recorded_workload import identified

    identified_traces = identified(folder, reading.changed_options())
    for recording in identified_traces.used:
        print_stderr(f"{recording.workload}: {recording.file}, {recording.how}")
    for file, reason in identified_traces.left_out:
        print_stderr(f"left out: {file}, {reason}")
    return identified_traces
