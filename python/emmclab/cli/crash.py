"""`emmclab crash`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from emmclab import _core
from emmclab.cli.console import print_json, print_stderr, stdout
from emmclab.cli.crash_run import CrashOptions, explored, minimized, recorded, results_folder
from emmclab.cli.declared_options import option
from emmclab.cli.help_format import examples
from emmclab.cli.name_completion import complete_words, crash_workload_names, device_names, filesystem_names
from emmclab.cli.options import AsJson
from emmclab.cli.output_files import in_a_folder
from emmclab.cli.simulation_options import DEVICE_OPTION, Layers, Settings
from emmclab.cli.study_options import RESULTS, ResultsFolder
from emmclab.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emmclab.crash import Exploration, Options
    from emmclab.crash.repeated_recordings import ExploredRecording
    from emmclab.crash.stored_log import StoredLog

#: Exit statuses if a promise was broken, and if the check or the workload proves nothing.
FOUND, UNTESTED = 4, 5
_RUN, _STATES, _LOGS = "The run", "Cuts and states", "Logs"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "emmclab crash --device emmc51-cache --workload sqlite-wal --cuts 10000",
            "emmclab crash --device emmc51-cache --repeat 5 --check $PWD/check.sh -- $PWD/workload.sh",
            "emmclab crash --device emmc51-cache --workload files --against '--set cache.lies=flush'",
            "emmclab crash --device emmc51-cache --fs f2fs --guest /boot/vmlinuz --workload ace:1",
            "emmclab crash --again c3f2:8812:17:5f0a31",
        )
    )(crash)


def crash(
    context: typer.Context,
    *,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- CMD...",
            help="Workload to run in the mounted folder; each line that it prints declares data to be safe.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str | None,
        option(
            "The device: a preset (`emmclab devices`) or a TOML file.",
            _RUN,
            *DEVICE_OPTION,
            metavar="DEVICE",
            autocompletion=device_names,
        ),
    ] = None,
    settings: Settings = [],  # noqa: B006
    capacity: Annotated[
        str | None,
        option(
            "Scale the device to this capacity; a small one is explored faster. Default: 256MB, doubled "
            "until the device and the file system support it.",
            _RUN,
            metavar="SIZE",
        ),
    ] = None,
    layers: Layers = [],  # noqa: B006
    second: Annotated[
        str | None,
        option(
            "Second device, for layers that use one; it must have no volatile cache.",
            _RUN,
            "--device2",
            metavar="PRESET|FILE",
            autocompletion=device_names,
        ),
    ] = None,
    fs: Annotated[
        str,
        option(
            "File system: ext4, or with --recovery mount or --guest xfs, btrfs, f2fs, vfat.",
            _RUN,
            metavar="NAME",
            autocompletion=filesystem_names,
        ),
    ] = "ext4",
    mkfs_options: Annotated[
        list[str],
        option("Option for mkfs; may be repeated.", _RUN, "--mkfs-option", metavar="OPTION"),
    ] = [],  # noqa: B006
    mount_options: Annotated[
        str | None, option("Mount options, in the form of `mount -o`.", _RUN, metavar="LIST")
    ] = None,
    guest: Annotated[
        str | None,
        option(
            "Record and recover on this kernel, in a virtual machine: its file vmlinuz, with its modules in "
            "the folders of its package. Needs QEMU.",
            _RUN,
            metavar="KERNEL",
        ),
    ] = None,
    workload: Annotated[
        str | None,
        option(
            "An included workload: files, append-log, sqlite-MODE[-LEVEL], with -unsynced after its name if "
            "syncs are to return at once; or programs of file-system operations: ace:LENGTH[:PROGRAMS], "
            "random:OPERATIONS, known[:BUG] (published bugs of file systems), or a file that ends in .prog.",
            _RUN,
            metavar="NAME",
            autocompletion=crash_workload_names,
        ),
    ] = None,
    operations: Annotated[
        int, option("Number of operations of an included workload.", _RUN, metavar="N", min=1)
    ] = 200,
    timeout: Annotated[
        float, option("Seconds after which the workload is ended.", _RUN, metavar="S", min=0.1)
    ] = 300.0,
    repeat: Annotated[
        int,
        option(
            "Number of recordings of the workload, which are explored together; in all but the first it "
            "pauses at random times until all data is written back, as if it waited for its user.",
            _RUN,
            metavar="N",
            min=1,
            max=1000,
        ),
    ] = 1,
    check: Annotated[
        str | None,
        option(
            "Check of the recovered files: sqlite, files, append-log, or a shell command that runs in the "
            "mounted folder and fails if data is lost; EMMCLAB_ACKNOWLEDGED names a file with all "
            "acknowledged lines.",
            _RUN,
            metavar="NAME|CMD",
            autocompletion=complete_words("sqlite", "files", "append-log"),
        ),
    ] = None,
    cuts: Annotated[
        int, option("Maximum number of times at which power is cut.", _STATES, metavar="N", min=1)
    ] = 1000,
    states: Annotated[
        str,
        option(
            "Methods that select the states of a cut, each with an optional maximum, as omit1:64: device, "
            "boundary, omit1, only1, pairs, random.",
            _STATES,
            metavar="LIST",
            show_default="all methods",
        ),
    ] = "device,boundary,omit1,only1,pairs,random",
    seed: Annotated[int, option("Seed of the cuts and states to try.", _STATES, metavar="N", min=0)] = 1,
    tear: Annotated[
        str,
        option(
            "none: 4 KiB are written as a whole or not at all; sector: 512 bytes; inside: as sector, and "
            "any 512 bytes of a write in flight that is not reliable may hold garbage.",
            _STATES,
            metavar="none|sector|inside",
            autocompletion=complete_words("none", "sector", "inside"),
        ),
    ] = "none",
    recovery: Annotated[
        str | None,
        option(
            "How the file system recovers: process (in emmclab, fast), e2fsck, or mount (by the kernel). For "
            "a check by a command, the kernel mounts what any of them leaves.",
            _STATES,
            metavar="process|e2fsck|mount",
            show_default="process; mount with --guest, or if the check is a command",
            autocompletion=complete_words("process", "e2fsck", "mount"),
        ),
    ] = None,
    recovery_cuts: Annotated[
        int,
        option("Number of cuts during the recovery of layers, for each state.", _STATES, metavar="N", min=0),
    ] = 2,
    no_prune: Annotated[
        bool,
        option(
            "With --recovery mount: mount every state, even if its outcome follows from that of an earlier "
            "one.",
            _STATES,
            "--no-prune",
        ),
    ] = False,
    jobs: Annotated[int, option("Processes; 0 for one per processor.", _STATES, metavar="N", min=0)] = 0,
    shard: Annotated[
        str,
        option(
            "Only this part of the states, for example 3/16; parts are counted from 1.",
            _STATES,
            metavar="I/N",
        ),
    ] = "1/1",
    log: Annotated[
        Path | None,
        option("Explore this log, of an earlier run or of dm-log-writes.", _LOGS, metavar="FILE"),
    ] = None,
    base: Annotated[
        Path | None,
        option("Image of the device from before the log of dm-log-writes.", _LOGS, metavar="IMAGE"),
    ] = None,
    reuse: Annotated[
        bool | None,
        option(
            "Whether to take verdicts of an earlier or interrupted run with the same log, options, tools "
            "and kernel.",
            _LOGS,
            "--resume/--fresh",
            show_default="--resume; --fresh if the check is a command, whose files may have changed",
        ),
    ] = None,
    again: Annotated[
        str | None,
        option(
            "Repeat exactly this state of a stored log; a finding prints its name.",
            _LOGS,
            metavar="LOG:CUT:STATE:OPTIONS",
        ),
    ] = None,
    against: Annotated[
        str | None,
        option(
            "Options in which a second run differs, for example '--set cache.lies=flush' or '--mount-options "
            "nobarrier': which of both loses data at more cuts, and whether that is chance.",
            _RUN,
            metavar="OPTIONS",
        ),
    ] = None,
    save_log: Annotated[Path | None, option("Also write the log here.", _LOGS, metavar="FILE")] = None,
    save_dm_log: Annotated[
        Path | None,
        option("Also write the commands as a log of dm-log-writes.", _LOGS, metavar="FILE"),
    ] = None,
    save_image: Annotated[
        Path | None, option("With --again: write the disk image of this state.", _LOGS, metavar="FILE")
    ] = None,
    results: ResultsFolder = RESULTS,
    html: Annotated[
        Path | None,
        option("Also write the page of the findings.", _LOGS, metavar="FILE", callback=in_a_folder),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Cut the power of a device under real software, and name the level that loses acknowledged data.

    Runs a workload on a file system on a simulated device, then tries the states that a cut may leave.
    One recording has one timing; --repeat makes several. Exit status 4: a promise was broken; 5: nothing was
    tested, because the check did not fail without any data, or the workload failed, was ended by --timeout,
    or acknowledged nothing.
    """
    from emmclab.crash.repeated_recordings import ExploredRecording
    from emmclab.crash.stored_log import Session

    if again is not None:
        kept, options = Session(results / "crash").find_state(again)
        found = _repeat_state(kept, options, save_image)
        _end(
            [ExploredRecording(kept, found, minimized(kept, options, found))], options, as_json, html, results
        )
    asked = CrashOptions(
        command=command,
        device=device,
        settings=settings,
        capacity=capacity,
        layers=layers,
        second=second,
        fs=fs,
        mkfs_options=mkfs_options,
        mount_options=mount_options,
        guest=guest,
        workload=workload,
        operations=operations,
        timeout=timeout,
        repeat=repeat,
        check=check,
        cuts=cuts,
        states=states,
        seed=seed,
        tear=tear,
        recovery=recovery,
        recovery_cuts=recovery_cuts,
        prune=not no_prune,
        jobs=jobs,
        shard=shard,
        log=log,
        base=base,
        reuse=reuse,
        results=results,
    )
    if against is not None:
        _compare(asked, asked.changed(context, against), as_json)
    options, recordings = recorded(asked)
    for path, write in ((save_log, _copy), (save_dm_log, _copy_dm)):
        for number, kept in enumerate(recordings, 1):
            if path is not None:
                write(kept, path if number == 1 else path.with_stem(f"{path.stem}-{number}"))
    tried = explored(asked, options, recordings)
    _end(tried, options, as_json, html, results)


def _end(
    tried: Sequence[ExploredRecording], options: Options, as_json: bool, html: Path | None, results: Path
) -> None:
    """Print the results, and exit with a status that depends on the verdict."""
    from emmclab.cli.show_crash import show_crash
    from emmclab.crash.repeated_recordings import as_json_of

    if html is not None:
        from emmclab.crash.summary import VERDICTS, summary, verdict
        from emmclab.pages.crash import write_crash_report

        # The page shows one recording: the first with the worst verdict.
        one = min(tried, key=lambda one: VERDICTS.index(verdict(one.log, options, one.exploration).word))
        said = summary(one.log, options, one.exploration, one.minimal)
        said["recordings"] = len(tried)
        write_crash_report(said, one.log, one.exploration, html, results=results_folder(results))
        print_stderr(f"report: {html}")
    if as_json:
        print_json(as_json_of(tried, options))
    else:
        show_crash(stdout(), tried, options, results_folder(results))
    raise typer.Exit(_status(tried, options))


def _status(tried: Sequence[ExploredRecording], options: Options) -> int:
    """Return the exit status for recordings."""
    from emmclab.crash.repeated_recordings import worst
    from emmclab.crash.summary import BROKEN, NOT_TESTED

    return {BROKEN: FOUND, NOT_TESTED: UNTESTED}.get(worst(tried, options)[0].word, 0)


def _compare(one: CrashOptions, other: CrashOptions, as_json: bool) -> NoReturn:
    """Explore two runs; print at how many cuts each loses data, and whether the difference may be chance."""
    from emmclab.cli.show_crash import show_against, show_crash
    from emmclab.crash.paired_comparison import difference
    from emmclab.crash.repeated_recordings import as_json_of

    runs = []
    for asked in (one, other):
        options, recordings = recorded(asked)
        runs.append((options, explored(asked, options, recordings)))
    found = [[one.exploration for one in both] for _, both in runs]
    differs = difference(found[0], found[1])
    if as_json:
        both_runs = [as_json_of(both, options) for options, both in runs]
        print_json({"runs": both_runs, "against": differs.as_json()})
    else:
        for options, both in runs:
            show_crash(stdout(), both, options, results_folder(one.results))
        show_against(stdout(), differs)
    statuses = {_status(both, options) for options, both in runs}
    raise typer.Exit(next((status for status in (FOUND, UNTESTED) if status in statuses), 0))


def _copy(kept: StoredLog, path: Path) -> None:
    from emmclab.runtime.files import write_atomically

    write_atomically(path, kept.log.read_bytes())
    print_stderr(f"log: {path}")


def _copy_dm(kept: StoredLog, path: Path) -> None:
    from emmclab.crash.explore import open_run

    open_run(str(kept.log), base=kept.base)[0].write_dm(str(path))
    empty = f"truncate -s {kept.facts['bytes']} IMAGE"
    print_stderr(
        f"log of dm-log-writes: {path}; --log reads it with --base IMAGE, the empty device: `{empty}`"
    )


def _repeat_state(kept: StoredLog, options: Options, save_image: Path | None) -> Exploration:
    """Repeat exactly one state, that of --again."""
    from emmclab.crash.shards import explore_in_parallel

    controls = kept.controls(options)
    found = explore_in_parallel(str(kept.log), options, base=kept.base)
    found.controls = controls
    if save_image is not None and found.states:
        _save_image(kept, options, save_image)
    if found.states == 0:
        raise ConfigError(
            "there is no such state at this cut",
            kind="config",
            field="again",
            hint="copy the name from a finding of this log",
        )
    return found


def _save_image(kept: StoredLog, options: Options, path: Path) -> None:
    """Write the disk image of the only state of `options`; a device or a link is written directly."""
    from emmclab.crash.explore import open_run
    from emmclab.runtime.files import made_aside

    run, _ = open_run(str(kept.log), base=kept.base)
    explorer = _core.Explorer(run, options.core())
    explorer.next_state()
    if path.is_symlink() or (path.exists() and not path.is_file()):
        explorer.write_image(str(path))
    else:
        with made_aside(path) as made:
            explorer.write_image(str(made))
    print_stderr(f"image: {path}")
