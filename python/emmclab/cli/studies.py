"""The options that commands on studies share, and how far a study has come."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emmclab.cli.console import say
from emmclab.cli.failures import kept
from emmclab.cli.meter import Counter
from emmclab.cli.options import Reading
from emmclab.errors import ConfigError, EmmclabError, InputError

if TYPE_CHECKING:
    from emmclab.study import Executor, Results, Study

#: Where results are kept when nothing else is said.
RESULTS = Path("emmclab-results")

StudyName = Annotated[
    str, typer.Argument(metavar="STUDY", help="A study that comes with emmclab (iiswc15), or a TOML file.")
]
Jobs = Annotated[
    int,
    typer.Option(min=0, metavar="N", help="Processes; 0 for one per processor.", rich_help_panel="Running"),
]
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh/--resume",
        help="Run every cell again, or only cells that are missing or of another build.",
        rich_help_panel="Running",
    ),
]
ResultsFolder = Annotated[
    Path, typer.Option("--results", metavar="DIR", help="Results folder; each study has its own in it.")
]
ImagesSpace = Annotated[
    float,
    typer.Option(
        "--images-gb",
        min=0,
        metavar="GB",
        help="Space for preconditioned devices in the results folder, which cells share; 0 keeps none.",
        rich_help_panel="Running",
    ),
]
TraceInputs = Annotated[
    list[Path],
    typer.Option(
        "--trace",
        metavar="FILE",
        help="A recorded trace beside the workloads; may be repeated. EMMCLAB_TRACES names a folder of them.",
    ),
]


def executor(jobs: int) -> Executor:
    """One process or several."""
    from emmclab.study import Pool, Serial

    count = jobs or os.cpu_count() or 1
    return Serial() if count == 1 else Pool(count)


def run_with_meter(
    study: Study,
    folder: Path,
    jobs: int,
    fresh: bool,
    *,
    images_limit: int | None = None,
    failures: bool = False,
) -> Results:
    """Run a study and say on stderr how far it has come, and how long the rest will take.

    Raises:
        EmmclabError: the study cannot be run, or a cell failed and `failures` does not allow it.
    """
    from emmclab.study import run_study
    from emmclab.study.store import IMAGES_BYTES, Store

    note = Counter(study.name, "cells")
    limit = IMAGES_BYTES if images_limit is None else images_limit

    def kept_cells() -> str:
        store = Store(folder)
        return f"{sum(map(store.has, cells)):,} of {len(cells):,} cells are kept in {folder}"

    cells = study.cells()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        found = run_study(
            *(study, folder, executor(jobs)), fresh=fresh, images_limit=limit, cells=cells, progress=note
        )
    except KeyboardInterrupt:
        kept.append(f"{study.name}: {kept_cells()}; the same command runs the rest")
        raise
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        hint = f"{kept_cells()}; free some space, and the same command runs the rest"
        raise InputError.of(error, hint=hint) from error
    if found.failures and not failures:
        first = found.failures[0]
        raise EmmclabError(f"{study.name}: {first['input']}: {first['message']}", hint=first["hint"])
    return found


def note_reading(reading: Reading, recorded: list[str]) -> None:
    """Print where options of reading change nothing, because no trace is recorded."""
    if reading.given() and not recorded:
        say("note: no recorded trace is read (--trace, EMMCLAB_TRACES): options of reading change nothing")


def recorded_traces(paths: list[Path]) -> list[str]:
    """Give real traces as inputs: those named, else those of the Nexus 5 in the folder EMMCLAB_TRACES."""
    for path in paths:
        if not path.is_file():
            raise ConfigError(f"{path}: there is no such file", kind="config", field="--trace")
    if paths or "EMMCLAB_TRACES" not in os.environ:
        return [str(path) for path in paths]
    folder = Path(os.environ["EMMCLAB_TRACES"])
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: there is no such folder",
            kind="config",
            file=str(folder),
            field="EMMCLAB_TRACES",
            hint="let EMMCLAB_TRACES name the folder of recorded traces, or unset it",
        )
    return [str(path) for path in sorted(folder.glob("nexus5/*.txt"))]
