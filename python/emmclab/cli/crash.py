"""`emmclab crash`."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from emmclab.cli.command import command
from emmclab.cli.console import in_a_folder, print_json, print_stderr, stdout
from emmclab.cli.crash_batches import WHOLE, explored_in_batches
from emmclab.cli.crash_run import (
    LOGS_PANEL,
    CrashOptions,
    TimeLimit,
    checked_options,
    explored,
    minimized,
    recorded,
    results_folder,
)
from emmclab.cli.options import AsJson, argument, option
from emmclab.crash.recording import RUN_PANEL
from emmclab.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emmclab.crash import Exploration, Options
    from emmclab.crash.stored_log import StoredLog
    from emmclab.crash.summary import ExploredRecording

#: Exit statuses: a durability promise was broken (4); the check or the workload tested nothing (5).
FOUND, UNTESTED = 4, 5


@command(
    "emmclab crash --device emmc51-cache --workload sqlite-wal --cuts 10000",
    "emmclab crash --device emmc51-cache --repeat 5 --check $PWD/check.sh -- $PWD/workload.sh",
    "emmclab crash --device emmc51-cache --workload files --against '--set cache.lies=flush'",
    "emmclab crash --device emmc51-cache --fs f2fs --guest /boot/vmlinuz --workload ace:1",
    "emmclab crash --again c3f2:8812:17:5f0a31",
)
def crash(
    context: typer.Context,
    *,
    command: Annotated[
        list[str] | None,
        argument(
            "-- CMD...",
            "Workload to run in the mounted folder; each line that it prints declares that data is durable.",
            show_default=False,
        ),
    ] = None,
    run: CrashOptions,
    again: Annotated[
        str | None,
        option(
            "Repeat exactly this state of a stored log; findings contain this argument.",
            LOGS_PANEL,
            metavar="LOG:CUT:STATE:OPTIONS",
        ),
    ] = None,
    against: Annotated[
        str | None,
        option(
            "Compare with a second run with these changed options, for example '--set cache.lies=flush' or "
            "'--mount-options nobarrier': which run loses data at more cuts, and whether by chance.",
            RUN_PANEL,
            metavar="OPTIONS",
            advanced=True,
        ),
    ] = None,
    save_log: Annotated[Path | None, option("Also write the log here.", LOGS_PANEL, advanced=True)] = None,
    save_dm_log: Annotated[
        Path | None, option("Also write the commands as a log of dm-log-writes.", LOGS_PANEL, advanced=True)
    ] = None,
    save_image: Annotated[
        Path | None,
        option(
            "With --again: write the disk image of this state; with --model, a folder of its files.",
            LOGS_PANEL,
            advanced=True,
        ),
    ] = None,
    html: Annotated[
        Path | None, option("Also write the page of the findings.", LOGS_PANEL, callback=in_a_folder)
    ] = None,
    junit: Annotated[
        Path | None,
        option(
            "Also write the results as JUnit XML, for continuous integration.",
            LOGS_PANEL,
            callback=in_a_folder,
            advanced=True,
        ),
    ] = None,
    sarif: Annotated[
        Path | None,
        option("Also write the findings as SARIF, for code scanning.", LOGS_PANEL, callback=in_a_folder, advanced=True),
    ] = None,
    bundle: Annotated[
        Path | None,
        option(
            "Write each finding to this folder, to send it: smallest program, disk image, script, and a text.",
            LOGS_PANEL,
            metavar="FOLDER",
            advanced=True,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Cut the power of a device under real software, and report the level that loses acknowledged data.

    Runs a workload on a file system on a simulated device, then checks the disk contents that a power cut may leave. A
    level is the device, a layer, the journal, the file system or the application. With --repeat, the workload is
    recorded several times, each with another timing. Exit status 4: a promise was broken; 5: nothing was tested,
    because the check did not fail without any data, or the workload failed, was ended by --timeout, or acknowledged
    nothing.
    """
    from emmclab.crash.stored_log import Session
    from emmclab.crash.summary import ExploredRecording

    reports = _Reports(html, junit, sarif, bundle, as_json)
    if again is not None:
        stored, options = Session(run.results / "crash").find_state(again)
        result = _repeat_state(stored, options, save_image)
        _end(run, options, [ExploredRecording(stored, result)], TimeLimit(None), reports)
    run = replace(run, workload=replace(run.workload, command=tuple(command or ())))
    if against is not None:
        _compare(run, run.changed(context, against), as_json)
    limit = TimeLimit(run.options.time_s)
    if run.workload.name == WHOLE and run.device is not None and run.log is None and run.repeat == 1:
        _explore_batches(run, limit, reports)
    options, recordings = recorded(run, limit)
    for path, write in ((save_log, _copy), (save_dm_log, _copy_dm)):
        for number, stored in enumerate(recordings, 1):
            if path is not None:
                write(stored, path if number == 1 else path.with_stem(f"{path.stem}-{number}"))
    _end(run, options, explored(run, options, recordings, limit), limit, reports)


@dataclass(frozen=True)
class _Reports:
    """Files of results, and whether JSON is printed."""

    html: Path | None
    junit: Path | None
    sarif: Path | None
    bundle: Path | None
    as_json: bool


def _write_reports(tried: Sequence[ExploredRecording], options: Options, wanted: _Reports, results: Path) -> None:
    from emmclab.crash import ci_reports
    from emmclab.runtime.files import write_atomically

    reports: list[tuple[Path, str]] = []
    if wanted.junit is not None:
        reports.append((wanted.junit, ci_reports.junit(tried, options)))
    if wanted.sarif is not None:
        report = ci_reports.sarif(tried, options, _status(tried, options))
        reports.append((wanted.sarif, json.dumps(report, indent=2) + "\n"))
    for path, text in reports:
        write_atomically(path, text.encode())
        print_stderr(f"report: {path}")
    if wanted.html is not None:
        from emmclab.crash.summary import VERDICTS, summary, verdict
        from emmclab.pages.crash import write_crash_report

        # The HTML page can show only one recording of the workload: the first one with the worst verdict.
        worst = min(tried, key=lambda run: VERDICTS.index(verdict(run.log, options, run.exploration).word))
        fields = summary(worst.log, options, worst.exploration, worst.minimal)
        fields["recordings"] = len(tried)
        write_crash_report(fields, worst.log, worst.exploration, wanted.html, results=results_folder(results))
        print_stderr(f"report: {wanted.html}")
    if wanted.bundle is not None:
        from emmclab.crash.finding_bundles import write_bundles

        for folder in write_bundles(tried, options, wanted.bundle):
            print_stderr(f"finding: {folder}")


def _end(
    run: CrashOptions, options: Options, tried: Sequence[ExploredRecording], limit: TimeLimit, wanted: _Reports
) -> NoReturn:
    """Print the results, then minimise findings, write reports, and exit with a status that depends on the verdict."""
    tried = _shown(run, options, tried, limit, as_json=wanted.as_json)
    _write_reports(tried, options, wanted, run.results)
    if wanted.as_json:
        from emmclab.crash.summary import as_json_of

        print_json(as_json_of(tried, options))
    raise typer.Exit(_status(tried, options))


def _explore_batches(run: CrashOptions, limit: TimeLimit, wanted: _Reports) -> NoReturn:
    """Explore all programs of a workload in batches, and print what was covered, and the findings."""
    from emmclab.cli.show_crash import show_batches
    from emmclab.crash.summary import finding_fields, kinds

    options = checked_options(run)
    summary, tried = explored_in_batches(run, options, limit)
    if not wanted.as_json:
        show_batches(stdout(), summary)
    smaller = _shown(run, options, tried, limit, as_json=wanted.as_json) if tried else []
    if tried:
        _write_reports(smaller, options, wanted, run.results)
    if wanted.as_json:
        found = [finding_fields(kind.kept, options, kind.first, kind.minimal) for kind in kinds(smaller)]
        print_json({**summary, "findings": found})
    raise typer.Exit(_status(smaller, options) if tried else UNTESTED if summary["doubts"] else 0)


def _shown(
    run: CrashOptions, options: Options, tried: Sequence[ExploredRecording], limit: TimeLimit, *, as_json: bool
) -> list[ExploredRecording]:
    """Print results unless they are printed as JSON, then return them with minimised findings, and print these."""
    from emmclab.cli.show_crash import show_crash, show_smallest

    if not as_json:
        show_crash(stdout(), tried, options, results_folder(run.results))
    smaller = minimized(run, options, tried, limit)
    if not as_json:
        show_smallest(stdout(), smaller)
    return smaller


def _status(tried: Sequence[ExploredRecording], options: Options) -> int:
    from emmclab.crash.summary import BROKEN, NOT_TESTED, worst

    return {BROKEN: FOUND, NOT_TESTED: UNTESTED}.get(worst(tried, options)[0].word, 0)


def _compare(first: CrashOptions, second: CrashOptions, as_json: bool) -> NoReturn:
    """Explore the crash states of two runs; compare in how many power cuts each run loses data."""
    from emmclab.cli.show_crash import show_against
    from emmclab.crash.summary import as_json_of, difference

    runs = []
    for run in (first, second):
        options, recordings = recorded(run, TimeLimit(None))
        tried = explored(run, options, recordings, TimeLimit(None))
        runs.append((options, _shown(run, options, tried, TimeLimit(None), as_json=as_json)))
    explorations = [[recording.exploration for recording in tried] for _, tried in runs]
    differs = difference(explorations[0], explorations[1])
    if as_json:
        print_json({"runs": [as_json_of(tried, options) for options, tried in runs], "against": differs.as_json()})
    else:
        show_against(stdout(), differs)
    statuses = {_status(tried, options) for options, tried in runs}
    raise typer.Exit(next((status for status in (FOUND, UNTESTED) if status in statuses), 0))


def _copy(stored: StoredLog, path: Path) -> None:
    from emmclab.runtime.files import write_atomically

    write_atomically(path, stored.log.read_bytes())
    print_stderr(f"log: {path}")


def _copy_dm(stored: StoredLog, path: Path) -> None:
    from emmclab.crash.explore import open_run

    open_run(str(stored.log), base=stored.base)[0].write_dm(str(path))
    empty = f"truncate -s {stored.facts.bytes} IMAGE"
    print_stderr(f"log of dm-log-writes: {path}; --log reads it with --base IMAGE, the empty device: `{empty}`")


def _repeat_state(stored: StoredLog, options: Options, save_image: Path | None) -> Exploration:
    """Explore only the crash state that --again selects."""
    from emmclab.crash.stored_log import explore_in_parallel

    controls = stored.controls(options)
    result = explore_in_parallel(str(stored.log), options, base=stored.base)
    result.controls = controls
    if save_image is not None and result.states:
        _save_image(stored, options, save_image)
    if result.states == 0:
        raise ConfigError(
            "the power cut has no such crash state", field="again", hint="copy the name of a state from a finding"
        )
    return result


def _save_image(stored: StoredLog, options: Options, path: Path) -> None:
    """Write the disk image of the crash state that `options` selects; directly to a device or link, else atomically."""
    from emmclab.crash.explore import new_explorer, open_run
    from emmclab.crash.file_states import FileExplorer
    from emmclab.runtime.files import made_aside

    run, _ = open_run(str(stored.log), base=stored.base)
    explorer = new_explorer(run, options.core())
    explorer.next_state()
    if isinstance(explorer, FileExplorer):
        path.mkdir()
        explorer.write_folder(path)
        print_stderr(f"files: {path}")
        return
    if path.is_symlink() or (path.exists() and not path.is_file()):
        explorer.write_image(str(path))
    else:
        with made_aside(path) as temporary:
            explorer.write_image(str(temporary))
    print_stderr(f"image: {path}")
