"""`emmclab profile TRACE...`."""

from __future__ import annotations

import collections
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from emmclab.cli.console import print_json, say, stdout
from emmclab.cli.helping import examples
from emmclab.cli.meter import Counter, Meter
from emmclab.cli.names import one_of, several
from emmclab.cli.options import (
    AsJson,
    Bin,
    Figures,
    OverTime,
    Percentiles,
    Reading,
    TraceFiles,
    note_over_time,
    stands_for_several,
    with_groups,
)
from emmclab.cli.outputs import in_a_folder
from emmclab.cli.studies import Jobs
from emmclab.devices.over_time import check_target
from emmclab.runtime.files import printable
from emmclab.traces.inputs import inputs_of, made_here
from emmclab.traces.profile import Profile
from emmclab.traces.reading import combine, join_parts
from emmclab.traces.trace import Trace


@dataclass(frozen=True)
class Caches:
    """Caches to simulate under the requests, as given on the command line."""

    cache_policies: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="Simulate caches of 4 KB pages, and give miss ratios by size: lru, fifo, clock, arc, "
            "s3-fifo, or all.",
            autocompletion=several(one_of("lru", "fifo", "clock", "arc", "s3-fifo", "all")),
            rich_help_panel="Caches",
        ),
    ] = ""
    cache_sizes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE,...",
            help="Sizes of the caches, as 512KB,16MB,1GB; default: powers of two from 1 MB to 4 GB.",
            rich_help_panel="Caches",
        ),
    ] = None
    cache_ops: Annotated[
        str,
        typer.Option(
            metavar="all|read|write",
            help="Requests that go through the caches.",
            autocompletion=one_of("all", "read", "write"),
            rich_help_panel="Caches",
        ),
    ] = "all"
    cache_exact: Annotated[
        bool,
        typer.Option(
            "--cache-exact",
            help="Follow every page; by default a trace of more than 1,048,576 page touches is sampled.",
            rich_help_panel="Caches",
        ),
    ] = False


#: Names of parts that Spark (`part-00000-...`) and DuckDB (`data_0.parquet`) give.
_PART = re.compile(r"(part-|data_)\d+.*\.parquet")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "emmclab profile trace.txt --html report.html",
            "emmclab profile a.csv.gz b.csv.gz --compare",
            "emmclab profile trace.txt --cache-policies all",
            "emmclab profile trace.txt --over-time load.csv --bin 1s",
        )
    )(with_groups(profile))


def profile(
    *,
    traces: TraceFiles,
    as_json: AsJson = False,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=in_a_folder,
            help="Also write the report page: one file that needs no network.",
        ),
    ] = None,
    figures: Figures = None,
    compare: Annotated[bool, typer.Option("--compare", help="Print the comparison only.")] = False,
    together: Annotated[
        bool, typer.Option("--combine", help="Interleave the traces on one clock and profile them as one.")
    ] = False,
    percentiles: Percentiles = None,
    over_time: OverTime = None,
    bin: Bin = None,
    jobs: Jobs = 0,
    caches: Caches,
    reading: Reading,
) -> None:
    """Characterise traces: Tables III and IV, distributions, findings.

    A folder is one trace in parts, as Spark and DuckDB write it; --jobs parts are profiled at once. With
    --jobs, a Parquet file of more than 4 million requests is profiled in slices of time, too; else in one
    pass.
    """
    measures = {"percentiles": percentiles, "bin": bin, **asdict(caches)}
    if over_time is not None:
        check_target(over_time)
    in_parts = [] if together else [path for path in traces if path.is_dir() or is_sliced(path, jobs)]
    sources = distinct([reading.open(path) for path in traces if path not in in_parts])
    if together and not (len(traces) == 1 and stands_for_several(traces[0])):
        sources = [combine(sources)]
    else:
        sources = join_parts(sources)
        note_parts([path for path in traces if not path.is_dir()] if len(sources) > 1 else [])
    profiles = [run(source, **measures) for source in sources]
    inputs = [inputs_of([source]) for source in sources]
    for place in in_parts:
        profiles.append(run_parts(place, jobs, reading, **measures))
        inputs.append(
            [
                {
                    "name": profiles[-1].name,
                    "path": printable(place),
                    "sha256": profiles[-1]["trace_digest"],
                    "reading": reading.given(),
                }
            ]
        )
    for found in profiles:
        reading.note_changed(found.name, found["ledger"])
    if html is not None:
        from emmclab.pages.profiles import write_report

        write_report(profiles, html, made_here([one for part in inputs for one in part]))
        say(f"report: {html}")
    if figures is not None:
        from emmclab.pages.plots import write_figures

        count = write_figures(profiles, figures)
        say(f"figures: {count} in {figures}")
    if over_time is not None:
        note_over_time(profiles, over_time, bin)
    if as_json:
        whence = [{"provenance": made_here(part)} for part in inputs]
        print_json([found.to_dict() | made for found, made in zip(profiles, whence, strict=True)])
    else:
        # Tables take long to import, which programs that want JSON do not wait for.
        from emmclab.cli.show import show_compared, show_each

        (show_compared if compare else show_each)(stdout(), profiles)


def note_parts(paths: list[Path]) -> None:
    """Print a note if files are named as Spark and DuckDB name the parts of one table."""
    folders = collections.Counter(path.parent for path in paths if _PART.match(path.name))
    for folder, count in folders.items():
        if count > 1:
            say(
                f"note: {count} files of {folder} are named as parts of one trace, but each was profiled by "
                f"itself; to profile them as one: emmclab profile {folder}"
            )


def run(source: Trace, **measures: Any) -> Profile:
    """Profile a trace under a progress meter; `measures` are options of `Trace.profile`."""
    with Meter(f"profile {source.name}") as meter:
        return source.profile(meter, **measures)


def is_sliced(path: Path, jobs: int) -> bool:
    """Whether a file is profiled in slices: if `--jobs` is given and it has several."""
    if not jobs:
        return False
    from emmclab.traces.parallel_profile import slices_of

    if len(slices_of(path)) > 1:
        return True
    say(f"note: {path}: read in one pass; --jobs is for Parquet of more than 4 million requests, and folders")
    return False


def run_parts(place: Path, jobs: int, reading: Reading, **measures: Any) -> Profile:
    """Profile a trace in parts under a progress meter."""
    from emmclab.traces.parallel_profile import profile_parts

    counter = Counter(f"profile {place}", "parts")
    count = jobs or os.cpu_count() or 1
    return profile_parts(place, count, counter, reading=reading.given(), **measures)


def distinct(sources: list[Trace]) -> list[Trace]:
    """Number traces whose files have the same name, so that rows can be distinguished."""
    seen: collections.Counter[str] = collections.Counter()
    for source in sources:
        seen[source.name] += 1
        if seen[source.name] > 1:
            source.name = f"{source.name} ({seen[source.name]})"
    return sources
