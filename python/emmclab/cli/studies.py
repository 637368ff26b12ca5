"""The options that commands on studies share, and how far a study has come."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emmclab.cli.console import say
from emmclab.errors import ConfigError

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
TraceInputs = Annotated[
    list[Path],
    typer.Option(
        "--trace",
        metavar="FILE",
        help="A recorded trace beside the workloads; may be repeated. EMMCLAB_TRACES names a folder of them.",
    ),
]
_LINE_S = 5.0


def executor(jobs: int) -> Executor:
    """One process or several."""
    from emmclab.study import Pool, Serial

    count = jobs or os.cpu_count() or 1
    return Serial() if count == 1 else Pool(count)


def run_with_meter(study: Study, folder: Path, jobs: int, fresh: bool) -> Results:
    """Run a study and say on stderr how far it has come."""
    from emmclab.study import run_study
    from emmclab.study.store import Store

    started = time.monotonic()
    last = started

    def note(done: int, total: int, before: int) -> None:
        nonlocal last
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if now - last < (0.1 if terminal else _LINE_S) and done < total:
            return
        if not terminal and now - started < 1:
            return
        last = now
        kept = f", {before:,} were finished before" if before else ""
        line = f"{study.name}: {done:,} of {total:,} cells{kept}"
        end = "\r" if terminal and done < total else "\n"
        print(line, end=end, file=sys.stderr, flush=True)

    folder.mkdir(parents=True, exist_ok=True)
    try:
        return run_study(study, folder, executor(jobs), fresh=fresh, progress=note)
    except KeyboardInterrupt:
        cells, store = study.cells(), Store(folder)
        kept = sum(map(store.has, cells))
        say(f"{study.name}: {kept:,} of {len(cells):,} cells are kept; the same command runs the rest")
        raise


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
