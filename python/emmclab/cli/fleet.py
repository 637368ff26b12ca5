"""`emmclab fleet FOLDER`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from emmclab.cli.command import command
from emmclab.cli.console import in_a_folder, output_option, print_json, print_stderr, stdout, write_page
from emmclab.cli.failures import complete_files
from emmclab.cli.options import AsJson, Reading, argument, option
from emmclab.cli.progress import Counter
from emmclab.cli.study_options import Jobs, executor
from emmclab.errors import ConfigError, EmmclabError, InputError
from emmclab.runtime.files import refuse_other_endings
from emmclab.runtime.lists import between_commas, once

if TYPE_CHECKING:
    from emmclab.fleet import Counts, Table

#: Maximum number of outliers and of refused files on the terminal; the JSON contains all.
_SHOWN = 10
#: Suffix of the default file name of a fleet table.
_ENDING = ".fleet.parquet"


@command(
    "emmclab fleet recordings/ --by model,build --html fleet.html", "emmclab fleet before/ --against s3://phones/after"
)
def fleet(
    *,
    folder: Annotated[
        str, argument("FOLDER", "A folder of recordings, their s3://BUCKET/PREFIX, or a table that this command wrote.")
    ],
    by: Annotated[
        str,
        option(
            "Group recordings by keys of folders named `key=value`, by format or by trace_device.",
            metavar="KEY,KEY,...",
        ),
    ] = "",
    output: Annotated[
        str | None,
        output_option(
            "The table, a Parquet file or s3://BUCKET/NAME; default: the name of the folder with .fleet.parquet.",
            callback=None,
        ),
    ] = None,
    against: Annotated[
        str | None,
        option("Compare FOLDER with this folder, bucket or table: test which figures differ.", metavar="FOLDER"),
    ] = None,
    html: Annotated[
        Path | None, option("Also write a page: one file that needs no network.", callback=in_a_folder)
    ] = None,
    files: Annotated[str, option("Pattern of the file names of recordings, with * and ?.", metavar="PATTERN")] = "*",
    jobs: Jobs = 0,
    reading: Reading,
    as_json: AsJson = False,
) -> None:
    """Profile all recordings of a folder into one table, and summarise it.

    Only new and changed recordings are profiled. Exit status 1: a file could not be read; the table contains the
    reason, and all other recordings.
    """
    from emmclab.fleet import compare, summarise

    if output is not None:
        refuse_other_endings(output, (".parquet",), "--output")
    keys = once(between_commas(by, "--by"))
    targets = _table_paths(folder, output, against)
    tables = [
        _table(place, target, files, jobs, reading.changed_options())
        for place, target in zip((folder, against), targets, strict=True)
        if place is not None
    ]
    if against is None:
        report: Any = summarise(tables[0][0], keys)
    else:
        report = compare(tables[0][0], tables[1][0], (folder, against))
    if html is not None:
        from emmclab.pages import fleet as page

        write_page(html, page.render([table for table, _ in tables], report))
    if as_json:
        about = [{"table": table.name, "run": run and asdict(run)} for table, run in tables]
        print_json({"tables": about, **report.to_dict()})
    else:
        from emmclab.cli.show_fleet import show_comparison, show_summary

        if against is None:
            show_summary(stdout(), report, _SHOWN)
        else:
            show_comparison(stdout(), report, _SHOWN)
    runs = [(table, run) for table, run in tables if run is not None]
    for table, run in runs:
        print_stderr(f"table: {table.name} ({run.recordings:,} files, {run.profiled:,} of them profiled now)")
    _fail(runs)


def _table_paths(folder: str, output: str | None, against: str | None) -> list[str | None]:
    """Return the path of the table of each fleet; None for a fleet that is given as a table."""
    is_table = _is_table(folder)
    if is_table and output is not None:
        raise ConfigError(
            f"{folder} is already a table of recordings, so --output has nothing to write",
            field="--output",
            hint="leave out -o, or give the folder of recordings in place of the table",
        )
    first = None if is_table else output or _default_path(folder)
    second = None if against is None or _is_table(against) else _default_path(against)
    if second is not None and first is not None and Path(first).absolute() == Path(second).absolute():
        raise ConfigError(
            f"{first}: the tables of both fleets would have this path",
            field="--output",
            hint="choose another path for the table of the first fleet with -o",
        )
    return [first, second]


def _is_table(place: str) -> bool:
    """Return whether a fleet is given as a table, rather than as a folder or a bucket."""
    from emmclab.fleet.table_state import Copy

    _, scheme, object_name = place.rstrip("/").partition("://")
    return (not scheme or "/" in object_name) and Copy(place).exists()


def _default_path(place: str) -> str:
    """Return the default path of the table of a folder or bucket: its name, in the current folder."""
    if "://" not in place:
        return f"{Path(place).resolve().name}{_ENDING}"
    return f"{place.rstrip('/').rpartition('/')[2]}{_ENDING}"


def _table(
    place: str, target: str | None, files: str, jobs: int, options: dict[str, Any]
) -> "tuple[Table, Counts | None]":
    from emmclab.fleet import Table, profile_fleet

    if target is None:
        from emmclab.fleet.table_state import Copy

        copy = Copy(place)
        return Table(copy.fetch(), copy.name), None
    done = 0

    def note(count: int, total: int, before: int) -> None:
        nonlocal done
        done = count
        meter(count, total, before)

    try:
        with Counter(f"fleet {place}", "recordings") as meter:
            table, run = profile_fleet(place, target, executor(jobs), files=files, options=options, progress=note)
    except KeyboardInterrupt:
        complete_files.append(f"{done:,} recordings of {place} are stored; the same command continues")
        raise
    if run.was_damaged:
        print_stderr(
            f"{table.name}: this table was damaged, or of an earlier version: all recordings are profiled again"
        )
    return table, run


def _fail(runs: "list[tuple[Table, Counts]]") -> None:
    refused, files = sum(run.refused for _, run in runs), sum(run.recordings for _, run in runs)
    if not refused:
        return
    path, reason = next(file for table, _ in runs for file in table.refused())
    message = f"{refused:,} of {files:,} files could not be read; the first, {path}: {reason}"
    hint = "leave them out with --files PATTERN, or see the column `refused` of the table"
    if refused == files:
        raise InputError(message, hint=hint)
    raise EmmclabError(message, kind="failed", hint=hint)
