"""`emmclab profile TRACE...`."""

import collections
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from emmclab.cli.command import command
from emmclab.cli.console import in_a_folder, print_json, print_stderr, stdout
from emmclab.cli.name_completion import workload_names
from emmclab.cli.options import (
    AsJson,
    Bin,
    Figures,
    OverTime,
    Percentiles,
    Reading,
    argument,
    note_over_time,
    one_per_recording,
    option,
    stands_for_several,
)
from emmclab.cli.progress import Counter, Meter
from emmclab.cli.study_options import Jobs
from emmclab.errors import ConfigError, EmmclabError, FormatError
from emmclab.runtime.files import printable
from emmclab.runtime.lists import once
from emmclab.simulation.result import check_target
from emmclab.traces.inputs import InputRecord, inputs_of, provenance_here
from emmclab.traces.profile import Profile
from emmclab.traces.reading import bundled, combine, join_parts
from emmclab.traces.trace import Trace


@dataclass(frozen=True)
class Measured:
    """Command-line options that request additional figures."""

    percentiles: Percentiles = None
    over_time: OverTime = None
    bin: Bin = None


#: Matches the file names that Spark (`part-00000-...`) and DuckDB (`data_0.parquet`) give to the parts of a table.
_PART = re.compile(r"(part-|data_)\d+.*\.parquet")


class _Profiled(NamedTuple):
    """A profile and the inputs from which it was computed."""

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
            "Traces of any format, plain, gzip, bzip2, zstd or xz; `-` for stdin.",
            callback=one_per_recording,
            show_default=False,
        ),
    ] = None,
    demo: Annotated[bool, option("Profile the traces that are included in emmclab.")] = False,
    as_json: AsJson = False,
    html: Annotated[
        Path | None, option("Also write the report page: one file that needs no network.", callback=in_a_folder)
    ] = None,
    figures: Figures = None,
    compare: Annotated[bool, option("Print only the table that compares the traces.")] = False,
    against: Annotated[
        str | None,
        option(
            "Compare one trace with another trace, a workload of the paper by name, or a model (.toml): print by how "
            "much each value of Tables III and IV differs, in percent, or in percentage points for shares.",
            metavar="TRACE|NAME",
            autocompletion=workload_names,
        ),
    ] = None,
    seed: Annotated[int, option("With --against: seed of a workload or model.", advanced=True, min=0)] = 1,
    together: Annotated[
        bool,
        option("Interleave the traces on one clock and profile them as one trace.", None, "--combine", advanced=True),
    ] = False,
    fsync: Annotated[
        bool,
        option(
            "Divide each recorded wait for durability (fsync) into data, commit, flush, queue and the rest, "
            "and print only this."
        ),
    ] = False,
    measured: Measured,
    jobs: Jobs = 0,
    reading: Reading,
) -> None:
    """Characterise traces: Tables III and IV, distributions, findings.

    A folder is one trace in parts, as Spark and DuckDB write it; --jobs parts are profiled at once. With --jobs, a
    Parquet file of more than 4 million requests is profiled in slices of time; any other file in one
    pass. With --against, prints differences; duration and rates are compared without clock jumps.
    """
    measures = {**asdict(measured), "fsync": fsync}
    if (over_time := measures.pop("over_time")) is not None:
        check_target(over_time)
    profiled = _profiles(_chosen(traces, demo), together, jobs, reading, against is not None, **measures)
    if against is not None:
        profiled.append(_other(against, seed, jobs, reading, **measures))
    profiles = [row.profile for row in profiled]
    for each in profiles:
        if each["header"]["format"] != "synthetic":
            reading.note_changed(each.name, each["ledger"])
    _write(profiled, html, figures)
    if over_time is not None:
        note_over_time(profiles, over_time, measured.bin)
    if against is not None:
        _print_differences(profiles, as_json)
    elif as_json:
        print_json([row.profile.to_dict() | {"provenance": provenance_here(row.inputs)} for row in profiled])
    else:
        # Imported here because the import takes long, and JSON output does not need it.
        from emmclab.cli.show_profile import show_compared, show_each, show_fsync

        (show_fsync if fsync else show_compared if compare else show_each)(stdout(), profiles)


def _chosen(traces: list[Path] | None, demo: bool) -> list[Path]:
    """Return the traces of the command line, or with --demo those that are included in emmclab."""
    if traces and demo:
        raise ConfigError(
            "`--demo` selects the included traces", field="--demo", hint="leave out either --demo or the other traces"
        )
    if traces:
        return traces
    if not demo:
        raise ConfigError(
            "no trace is given",
            field="TRACE",
            hint="give a file, as in `emmclab profile trace.txt`; `--demo` profiles the included traces",
        )
    if paths := bundled():
        return paths
    raise EmmclabError(
        "this installation includes no trace", hint="install emmclab again, or run `make demo` in a clone"
    )


def _profiles(
    traces: list[Path], together: bool, jobs: int, reading: Reading, single: bool, **measures: Any
) -> list[_Profiled]:
    """Profile each trace, or all as one if `together`; if `single`, more than one trace is an error."""
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
            hint="give one trace, or use --compare for tables of several traces",
        )
    profiled = [_Profiled(run(source, **measures), inputs_of([source])) for source in sources]
    return profiled + [_in_parts(place, jobs, reading, **measures) for place in in_parts]


def _in_parts(place: Path, jobs: int, reading: Reading, **measures: Any) -> _Profiled:
    """Profile a folder of parts, or one large file in slices."""
    try:
        profile = run_parts(place, jobs, reading, **measures)
    except FormatError as error:
        if not place.is_dir():
            raise
        raise FormatError(
            f"{printable(place)}: a folder is read as one trace in parts: {error}",
            kind=error.kind,
            file=error.file,
            line=error.line,
            field=error.field,
            hint=f"give single files, or use `emmclab fleet` to profile each file; {error.hint}",
        ) from error
    record: InputRecord = {
        "name": profile.name,
        "path": printable(place),
        "sha256": profile["trace_digest"],
        "reading": reading.changed_options(),
    }
    return _Profiled(profile, [record])


def _other(name: str, seed: int, jobs: int, reading: Reading, **measures: Any) -> _Profiled:
    """Profile the trace, folder of parts, workload or model that is given as --against."""
    if Path(name).is_dir():
        return _in_parts(Path(name), jobs, reading, **measures)
    from emmclab.traces.workload import open_input

    source = open_input(name, seed, **reading.changed_options())
    return _Profiled(run(source, **measures), inputs_of([source]))


def _write(profiled: list[_Profiled], html: Path | None, figures: Path | None) -> None:
    if html is not None:
        from emmclab.pages.profiles import write_report

        inputs = [record for row in profiled for record in row.inputs]
        write_report([row.profile for row in profiled], html, provenance_here(inputs))
        print_stderr(f"report: {html}")
    if figures is not None:
        from emmclab.pages.chart_files import write_figures

        count = write_figures([row.profile for row in profiled], figures)
        print_stderr(f"figures: {count} in {figures}")


def _print_differences(profiles: list[Profile], as_json: bool) -> None:
    """Print how the second of two profiles differs from the first; clock jumps are removed from both."""
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
    """Print a note if files have names that Spark and DuckDB give to the parts of one table."""
    folders = collections.Counter(path.parent for path in paths if _PART.match(path.name))
    for folder, count in folders.items():
        if count > 1:
            print_stderr(
                f"note: {count} files of {folder} have names of parts of one trace, but were profiled separately; "
                f"to profile them as one trace: emmclab profile {folder}"
            )


def run(source: Trace, **measures: Any) -> Profile:
    """Profile a trace and show the progress; `measures` are options of `Trace.profile`."""
    with Meter(f"profile {source.name}") as meter:
        return source.profile(meter, **measures)


def is_sliced(path: Path, jobs: int) -> bool:
    """Return whether a file is profiled in slices: if `--jobs` is given and the file has several slices."""
    if not jobs:
        return False
    from emmclab.traces.parallel_profile import slices_of

    if len(slices_of(path)) > 1:
        return True
    print_stderr(f"note: {path}: read in one pass; --jobs is for Parquet of more than 4 million requests, and folders")
    return False


def run_parts(place: Path, jobs: int, reading: Reading, *, fsync: bool = False, **measures: Any) -> Profile:
    """Profile a trace in parts and show the progress."""
    if fsync:
        raise ConfigError(
            f"{printable(place)}: `--fsync` does not support a trace in parts",
            field="--fsync",
            hint="give a trace in one file, without --jobs",
        )
    from emmclab.traces.parallel_profile import profile_parts

    count = jobs or os.cpu_count() or 1
    with Counter(f"profile {place}", "parts") as counter:
        return profile_parts(place, count, counter, reading=reading.changed_options(), **measures)


def distinct(sources: list[Trace]) -> list[Trace]:
    """Number traces whose files have the same name, so that rows can be distinguished."""
    counts: collections.Counter[str] = collections.Counter()
    for source in sources:
        counts[source.name] += 1
        if counts[source.name] > 1:
            source.name = f"{source.name} ({counts[source.name]})"
    return sources
