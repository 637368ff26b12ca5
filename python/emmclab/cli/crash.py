"""`emmclab crash`."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emmclab import _core
from emmclab.cli.console import print_json, say, stdout
from emmclab.cli.failures import kept as left_behind
from emmclab.cli.helping import examples
from emmclab.cli.meter import Counter
from emmclab.cli.names import crash_workload_names, filesystem_names, one_of
from emmclab.cli.options import AsJson, option, with_groups
from emmclab.cli.outputs import in_a_folder
from emmclab.cli.simulation import DEVICE_OPTION, Layers, Settings, configured, device_names, layered
from emmclab.cli.studies import RESULTS, ResultsFolder
from emmclab.errors import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emmclab.crash import Exploration, Options
    from emmclab.crash.minimal import Minimal
    from emmclab.crash.repeated import Tried
    from emmclab.crash.session import Kept, Session

#: Exit status where a promise was broken.
FOUND = 4
#: Who recovers a state, in words.
_RECOVERED = {"process": "emmclab", "e2fsck": "e2fsck", "mount": "the kernel"}
_RUN, _STATES, _LOGS = "The run", "Cuts and states", "Logs"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "emmclab crash --device emmc51-cache --workload sqlite-wal --cuts 10000",
            "emmclab crash --device emmc51-cache --repeat 5 --check $PWD/check.sh -- $PWD/workload.sh",
            "emmclab crash --again c3f2:8812:17:5f0a31",
        )
    )(with_groups(crash))


def crash(
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
            "Scale the device to this capacity; a small one is explored faster. Default: 256MB, or the least "
            "double of it that the device can have.",
            _RUN,
            metavar="SIZE",
        ),
    ] = None,
    layers: Layers = [],  # noqa: B006
    second: Annotated[
        str | None,
        option(
            "Second device, which has no cache, for layers that use one.",
            _RUN,
            "--device2",
            metavar="PRESET|FILE",
            autocompletion=device_names,
        ),
    ] = None,
    fs: Annotated[
        str,
        option(
            "File system: ext4, or with --recovery mount xfs, btrfs, f2fs, vfat.",
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
        str | None, option("Options of the mount, as `mount -o` takes them.", _RUN, metavar="LIST")
    ] = None,
    workload: Annotated[
        str | None,
        option(
            "An included workload: files, append-log, sqlite-MODE[-LEVEL], with -unsynced after its name if "
            "syncs are to return at once; or programs of file-system operations: ace:LENGTH[:PROGRAMS], "
            "random:OPERATIONS, or a file that ends in .prog.",
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
            "pauses at random moments until all data is written back, as if it waited for its user.",
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
            "mounted folder and fails if data is lost; EMMCLAB_ACKNOWLEDGED names a file of the lines.",
            _RUN,
            metavar="NAME|CMD",
            autocompletion=one_of("sqlite", "files", "append-log"),
        ),
    ] = None,
    cuts: Annotated[
        int, option("Maximum number of moments at which power is cut.", _STATES, metavar="N", min=1)
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
            "none: 4 KiB are written as a whole or not at all; sector: 512 bytes; inside: and of a write in "
            "flight that is not reliable, any 512 bytes may hold garbage.",
            _STATES,
            metavar="none|sector|inside",
            autocompletion=one_of("none", "sector", "inside"),
        ),
    ] = "none",
    recovery: Annotated[
        str | None,
        option(
            "How the file system recovers: process (in emmclab, fast), e2fsck, or mount (by the kernel). For "
            "a check by a command, the kernel mounts what any of them leaves.",
            _STATES,
            metavar="process|e2fsck|mount",
            show_default="process; mount if the check is a command",
            autocompletion=one_of("process", "e2fsck", "mount"),
        ),
    ] = None,
    recovery_cuts: Annotated[
        int,
        option("Number of cuts during the recovery of layers, for each state.", _STATES, metavar="N", min=0),
    ] = 2,
    jobs: Annotated[int, option("Processes; 0 for one per processor.", _STATES, metavar="N", min=0)] = 0,
    shard: Annotated[
        str,
        option("Only this part of the states, as 3/16; parts are counted from 1.", _STATES, metavar="I/N"),
    ] = "1/1",
    log: Annotated[
        Path | None,
        option("Explore this log, of an earlier run or of dm-log-writes.", _LOGS, metavar="FILE"),
    ] = None,
    base: Annotated[
        Path | None,
        option("Image of the device from before the log of dm-log-writes.", _LOGS, metavar="IMAGE"),
    ] = None,
    fresh: Annotated[
        bool,
        option("Judge every state again, even if an earlier run has judged it.", _LOGS, "--fresh"),
    ] = False,
    again: Annotated[
        str | None,
        option(
            "Repeat exactly this state of a stored log; a finding prints its name.",
            _LOGS,
            metavar="LOG:CUT:STATE:OPTIONS",
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
    One recording has one timing; --repeat makes several. Exit status 4: a promise was broken.
    """
    from emmclab.crash.explore import Options, no_ext4
    from emmclab.crash.grounds import command_of
    from emmclab.crash.recording import Workload
    from emmclab.crash.repeated import Tried
    from emmclab.crash.scaling import scaled_down
    from emmclab.crash.session import Session

    own, layer_settings = layered(settings, layers)
    session = Session(results / "crash")
    if again is not None:
        kept, options = session.again(again)
        found = _shown_again(kept, options, save_image)
        _end([Tried(kept, found, _minimized(kept, options, found))], options, as_json, html, results)
    judged_by = _check_named(check, workload)
    recovery = recovery or ("process" if command_of(judged_by) is None else "mount")
    options = Options(
        cuts=cuts,
        states=states,
        seed=seed,
        tear=tear,
        recovery=recovery,
        check=judged_by,
        recovery_cuts=recovery_cuts,
        share=_share(shard),
    )
    if log is not None:
        recordings = [_taken(session, options, log, base, repeat)]
    else:
        if device is None:
            raise ConfigError(
                "the device is missing",
                kind="config",
                field="device",
                hint="name one, as --device emmc51-cache",
            )
        chosen = Workload(workload or "", tuple(command or ()), operations, seed, timeout)
        # A workload that is not known is told before the check that would belong to it.
        chosen.require()
        options.require()
        if fs != "ext4" and recovery != "mount":
            raise no_ext4(recovery, f"the file system is to be {fs}")
        whole = configured(device, own, capacity)
        scaled = scaled_down(whole) if capacity is None else whole
        recordings = [
            session.record(
                scaled,
                replace(chosen, thinks=number),
                layers=layers,
                layer_settings=layer_settings,
                second=None if second is None else configured(second, []),
                file_system=fs,
                mkfs_options=mkfs_options,
                mount_options=mount_options,
                said=say,
                ready=lambda disk: _require_in_process(disk, options),
            )
            for number in range(repeat)
        ]
    for path, write in ((save_log, _copy), (save_dm_log, _copy_dm)):
        for number, kept in enumerate(recordings, 1):
            if path is not None:
                write(kept, path if number == 1 else path.with_stem(f"{path.stem}-{number}"))
    tried = []
    for kept in recordings:
        found = _explored(kept, options, jobs or (os.cpu_count() or 1), results, fresh=fresh)
        tried.append(Tried(kept, found, _minimized(kept, options, found)))
    _end(tried, options, as_json, html, results)


def _taken(session: Session, options: Options, log: Path, base: Path | None, repeat: int) -> Kept:
    """Load a log of an earlier recording."""
    from emmclab.crash.explore import require_recoverable
    from emmclab.crash.session import open_whole

    if repeat > 1:
        raise ConfigError(
            "a log is one recording, which cannot be repeated",
            kind="config",
            field="repeat",
            hint="omit --repeat, or record again with --device",
        )
    options.require()
    kept = session.take(log, base)
    require_recoverable(open_whole(kept.log, kept.base)[0], options)
    return kept


def _require_in_process(disk: str, options: Options) -> None:
    """Reject, before the workload runs, a file system that recovery in process does not support.

    Raises:
        UnsupportedError: it has unsupported features.
    """
    from emmclab.crash.explore import not_in_process

    if options.recovery != "process":
        return
    try:
        _core.read_ext4(disk, [])
    except UnsupportedError as error:
        raise not_in_process(error) from error


def _named(results: Path) -> Path | None:
    """Return the results folder, or None if it is the default."""
    return None if results == RESULTS else results


def _end(tried: Sequence[Tried], options: Options, as_json: bool, html: Path | None, results: Path) -> None:
    """Print the results, and exit with a status that depends on the findings."""
    if html is not None:
        from emmclab.crash.summary import summary
        from emmclab.pages.crash import write_crash_report

        # The page is of one recording: the first that shows a finding, else the first.
        one = next((one for one in tried if one.found.findings()), tried[0])
        said = summary(one.kept, options, one.found, one.minimal) | {"recordings": len(tried)}
        write_crash_report(said, one.kept, one.found, html, results=_named(results))
        say(f"report: {html}")
    _show(tried, options, as_json)
    raise typer.Exit(FOUND if any(one.found.findings() for one in tried) else 0)


def _check_named(check: str | None, workload: str | None) -> str | None:
    """Return the check; an included workload has its own."""
    from emmclab.crash import generated, workloads

    if check is None and workload is not None and generated.is_programs(workload):
        return generated.CHECK
    if check == "sqlite":
        own = workload if workload is not None and workloads.sqlite_setting(workload) else None
        return own or "sqlite"
    return check or workload


def _share(shard: str) -> tuple[int, int]:
    number, _, of = shard.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise ConfigError(
            f"`{shard}` is not a part", kind="config", field="shard", hint="write it as --shard 3/16"
        )
    return int(number) - 1, int(of)


def _copy(kept: Kept, path: Path) -> None:
    from emmclab.runtime.files import write_whole

    write_whole(path, kept.log.read_bytes())
    say(f"log: {path}")


def _copy_dm(kept: Kept, path: Path) -> None:
    from emmclab.crash.explore import open_run

    open_run(str(kept.log), base=kept.base)[0].write_dm(str(path))
    say(f"log of dm-log-writes: {path}")


def _explored(kept: Kept, options: Options, jobs: int, results: Path, *, fresh: bool) -> Exploration:
    lines = kept.facts["acknowledgements"]
    say(
        f"{kept.facts['commands']:,} commands, {kept.facts['moments']:,} moments, {lines:,} lines "
        f"acknowledged; exploring {options.cuts:,} cuts, recovery by {_RECOVERED[options.recovery]}"
    )

    meter = Counter("crash", "cuts")
    before = None

    def told(found: Exploration) -> None:
        nonlocal before
        cuts = found.covered.get("cuts", 0)
        # The first report is of what an interrupted exploration kept.
        before = cuts if before is None else before
        total = min(options.cuts, found.covered.get("moments", options.cuts))
        meter(cuts, total, before, f", {found.states:,} states, {len(found.findings())} findings")

    try:
        return kept.explore(options, jobs, told, fresh=fresh)
    except KeyboardInterrupt:
        # A workload that runs again makes another log, of which nothing is explored.
        named = {"log": kept.log, "base": kept.base, "check": options.check, "results": _named(results)}
        words = " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in named.items() if value)
        left_behind.append(f"the results so far are stored: continue with {words} and the other options")
        raise


def _minimized(kept: Kept, options: Options, found: Exploration) -> dict[int, Minimal]:
    """Make each finding smaller, by its number among the findings."""
    from emmclab.crash.explore import open_run
    from emmclab.crash.minimal import minimize

    findings = found.findings()
    if not findings:
        return {}
    say(f"minimising {len(findings)} findings")
    run, _ = open_run(str(kept.log), base=kept.base)
    small = {number: minimize(run, options, one) for number, one in enumerate(findings)}
    return {number: one for number, one in small.items() if one is not None}


def _show(tried: Sequence[Tried], options: Options, as_json: bool) -> None:
    from emmclab.cli.show_crash import show_crash
    from emmclab.crash.repeated import together
    from emmclab.crash.summary import summary

    if not as_json:
        show_crash(stdout(), tried, options)
    elif len(tried) == 1:
        print_json(summary(tried[0].kept, options, tried[0].found, tried[0].minimal))
    else:
        print_json(together(tried, options))


def _shown_again(kept: Kept, options: Options, save_image: Path | None) -> Exploration:
    """Try exactly one state."""
    from emmclab.crash.explore import explore, open_run

    run, _ = open_run(str(kept.log), base=kept.base)
    found = explore(run, options)
    if save_image is not None:
        explorer = _core.Explorer(run, options.core())
        if explorer.next_state() is not None:
            explorer.write_image(str(save_image))
            say(f"image: {save_image}")
    if found.states == 0:
        raise ConfigError(
            "this cut does not have the state",
            kind="config",
            field="again",
            hint="copy the name from a finding of this log",
        )
    return found
