"""`emmclab profile TRACE...`."""

import collections
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from emmclab.cli.command import command
from emmclab.cli.console import print_json, print_stderr, stdout
from emmclab.cli.declared_options import Percentiles, argument, option
from emmclab.cli.name_completion import workload_names
from emmclab.cli.options import (
    AsJson,
    Bin,
    Figures,
    OverTime,
    Reading,
    note_over_time,
    one_per_recording,
    stands_for_several,
)
from emmclab.cli.output_files import in_a_folder
from emmclab.cli.progress import Counter, Meter
from emmclab.cli.study_options import Jobs
from emmclab.errors import ConfigError, EmmclabError, FormatError
from emmclab.runtime.files import printable
from emmclab.runtime.lists import once
from emmclab.simulation.over_time import check_target
from emmclab.traces.inputs import InputRecord, inputs_of, provenance_here
from emmclab.traces.profile import Profile
from emmclab.traces.reading import bundled, combine, join_parts
from emmclab.traces.trace import Trace


@dataclass(frozen=True)
class Measured:
    """Further figures, as given on the command line."""

    percentiles: Percentiles = None
    over_time: OverTime = None
    bin: Bin = None


#: Names of parts that Spark (`part-00000-...`) and DuckDB (`data_0.parquet`) give.
_PART = re.compile(r"(part-|data_)\d+.*\.parquet")


class _Profiled(NamedTuple):
    """A profile and what it was made from."""

    profile: Profile
    inputs: list[InputRecord]


@command(
    "emmclab profile --demo --html report.html",
    "emmclab profile trace.txt --html report.html",
    "emmclab profile a.csv.gz b.csv.gz --compare",
    "emmclab profile trace.txt --against Messaging",
    "emmclab profile phone.parquet --fsync",
    "emmclab profile trace.txt --over-time load.csv --bin 1s",
)
def profile(
    *,
    traces: Annotated[
        list[Path] | None,
        argument(
            "TRACE...",
            "Traces of any format; gzip, bzip2, zstd, xz too; `-` for stdin.",
            callback=one_per_recording,
            show_default=False,
        ),
    ] = None,
    demo: Annotated[bool, option("Profile the traces that come with emmclab.")] = False,
    as_json: AsJson = False,
    html: Annotated[
        Path | None, option("Also write the report page: one file that needs no network.", callback=in_a_folder)
    ] = None,
    figures: Figures = None,
    compare: Annotated[bool, option("Print the comparison only.")] = False,
    against: Annotated[
        str | None,
        option(
            "Compare one trace with another trace, a workload of the paper by name, or a model (.toml): prints how far "
            "each value of Tables III and IV differs from it, in percent, shares in percentage points.",
            metavar="TRACE|NAME",
            autocompletion=workload_names,
        ),
    ] = None,
    seed: Annotated[int, option("With --against: seed of a workload or model.", advanced=True, min=0)] = 1,
    together: Annotated[
        bool, option("Interleave the traces on one clock and profile them as one.", None, "--combine", advanced=True)
    ] = False,
    fsync: Annotated[
        bool,
        option(
            "Also divide each recorded wait for durability (fsync) into data, commit, flush, queue and "
            "the rest, and print this only."
        ),
    ] = False,
    measured: Measured,
    jobs: Jobs = 0,
    reading: Reading,
) -> None:
    """Characterise traces: Tables III and IV, distributions, findings.

    A folder is one trace in parts, as Spark and DuckDB write it; --jobs parts are profiled at once. With
    --jobs, a Parquet file of more than 4 million requests is profiled in slices of time, too; else in one
    pass. With --against, prints differences; duration and rates are compared without clock jumps.
    """
    measures = {**asdict(measured), "fsync": fsync}
    if (over_time := measures.pop("over_time")) is not None:
        check_target(over_time)
    profiled = _profiles(_chosen(traces, demo), together, jobs, reading, against is not None, **measures)
    if against is not None:
        profiled.append(_other(against, seed, jobs, reading, **measures))
    profiles = [one.profile for one in profiled]
    for found in profiles:
        if found["header"]["format"] != "synthetic":
            reading.note_changed(found.name, found["ledger"])
    _write(profiled, html, figures)
    if over_time is not None:
        note_over_time(profiles, over_time, measured.bin)
    if against is not None:
        _print_differences(profiles, as_json)
    elif as_json:
        print_json([one.profile.to_dict() | {"provenance": provenance_here(one.inputs)} for one in profiled])
    else:
        # Imported here because tables take long to import, and JSON does not need them.
        from emmclab.cli.show_profile import show_compared, show_each, show_fsync

        (show_fsync if fsync else show_compared if compare else show_each)(stdout(), profiles)


def _chosen(traces: list[Path] | None, demo: bool) -> list[Path]:
    """Return the given traces, or with --demo those that come with emmclab."""
    if traces and demo:
        raise ConfigError(
            "`--demo` names the traces itself", field="--demo", hint="leave out --demo to profile traces of your own"
        )
    if traces:
        return traces
    if not demo:
        raise ConfigError(
            "no trace is given",
            field="TRACE",
            hint="name a file, as in `emmclab profile trace.txt`; `--demo` profiles the included traces",
        )
    if paths := bundled():
        return paths
    raise EmmclabError(
        "no trace came with this installation", hint="install emmclab again, or run `make demo` in a clone"
    )


def _profiles(
    traces: list[Path], together: bool, jobs: int, reading: Reading, single: bool, **measures: Any
) -> list[_Profiled]:
    """Profile each trace, or all as one; with `single`, several are an error."""
    traces = traces if together else once(traces)
    in_parts = [] if together else [path for path in traces if path.is_dir() or is_sliced(path, jobs)]
    sources = distinct([reading.open(path) for path in traces if path not in in_parts])
    if together and not (len(traces) == 1 and stands_for_several(traces[0])):
        sources = [combine(sources)]
    else:
        sources = join_parts(sources)
        note_parts([path for path in traces if not path.is_dir()] if len(sources) > 1 else [])
    if single and len(sources) + len(in_parts) != 1:
        raise ConfigError(
            "`--against` accepts only one trace",
            field="--against",
            hint="name one trace, or use --compare for tables of several",
        )
    profiled = [_Profiled(run(source, **measures), inputs_of([source])) for source in sources]
    return profiled + [_in_parts(place, jobs, reading, **measures) for place in in_parts]


def _in_parts(place: Path, jobs: int, reading: Reading, **measures: Any) -> _Profiled:
    """Profile a folder of parts, or one large file in slices."""
    try:
        found = run_parts(place, jobs, reading, **measures)
    except FormatError as error:
        if not place.is_dir():
            raise
        raise FormatError(
            f"{printable(place)} is read as one trace in parts: {error}",
            kind=error.kind,
            file=error.file,
            line=error.line,
            field=error.field,
            hint=f"name single files, or use `emmclab fleet` to profile each of them; {error.hint}",
        ) from error
    whence: InputRecord = {
        "name": found.name,
        "path": printable(place),
        "sha256": found["trace_digest"],
        "reading": reading.changed_options(),
    }
    return _Profiled(found, [whence])


def _other(name: str, seed: int, jobs: int, reading: Reading, **measures: Any) -> _Profiled:
    """Profile the value of --against: a trace, a folder of parts, a workload or a model."""
    if Path(name).is_dir():
        return _in_parts(Path(name), jobs, reading, **measures)
    from emmclab.traces.workload import open_input

    source = open_input(name, seed, **reading.changed_options())
    return _Profiled(run(source, **measures), inputs_of([source]))


def _write(profiled: list[_Profiled], html: Path | None, figures: Path | None) -> None:
    """Write the page and the figures, if requested."""
    if html is not None:
        from emmclab.pages.profiles import write_report

        inputs = [each for one in profiled for each in one.inputs]
        write_report([one.profile for one in profiled], html, provenance_here(inputs))
        print_stderr(f"report: {html}")
    if figures is not None:
        from emmclab.pages.chart_files import write_figures

        count = write_figures([one.profile for one in profiled], figures)
        print_stderr(f"figures: {count} in {figures}")


def _print_differences(profiles: list[Profile], as_json: bool) -> None:
    """Print the second of two profiles compared with the first, without clock jumps if there are any."""
    from emmclab.traces.workload import differences, jump_notes

    rows, notes = differences(*profiles), jump_notes(profiles)
    for text in notes:
        print_stderr(f"warning: {text}")
    if as_json:
        names = {"first": profiles[0].name, "second": profiles[1].name}
        print_json(names | {"fields": rows, "warnings": notes})
        return
    from emmclab.cli.show_profile import show_differences

    show_differences(stdout(), profiles, rows)


def note_parts(paths: list[Path]) -> None:
    """Print a note if files are named as Spark and DuckDB name the parts of one table."""
    folders = collections.Counter(path.parent for path in paths if _PART.match(path.name))
    for folder, count in folders.items():
        if count > 1:
            print_stderr(
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
    print_stderr(f"note: {path}: read in one pass; --jobs is for Parquet of more than 4 million requests, and folders")
    return False


def run_parts(place: Path, jobs: int, reading: Reading, *, fsync: bool = False, **measures: Any) -> Profile:
    """Profile a trace in parts under a progress meter."""
    if fsync:
        raise ConfigError(
            f"{printable(place)}: waits for durability are divided in one pass, not in parts",
            field="--fsync",
            hint="name one recording, without --jobs",
        )
    from emmclab.traces.parallel_profile import profile_parts

    count = jobs or os.cpu_count() or 1
    with Counter(f"profile {place}", "parts") as counter:
        return profile_parts(place, count, counter, reading=reading.changed_options(), **measures)


def distinct(sources: list[Trace]) -> list[Trace]:
    """Number traces whose files have the same name, so that rows can be distinguished."""
    seen: collections.Counter[str] = collections.Counter()
    for source in sources:
        seen[source.name] += 1
        if seen[source.name] > 1:
            source.name = f"{source.name} ({seen[source.name]})"
    return sources
