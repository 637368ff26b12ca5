"""The steps of `emmclab crash`: record workloads, explore the crash states of recordings, minimise findings."""

from __future__ import annotations

import math
import os
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emmclab import _core
from emmclab.cli.console import print_stderr
from emmclab.cli.failures import complete_files
from emmclab.cli.name_completion import device_names
from emmclab.cli.options import filled, group_parameters, option
from emmclab.cli.progress import Counter, Working
from emmclab.cli.simulation_options import DEVICE_OPTION, Settings, configured, layered
from emmclab.cli.study_options import RESULTS, ResultsFolder
from emmclab.crash.explore import STATES_PANEL, Options
from emmclab.crash.recording import RUN_PANEL, RecordingOptions, Workload
from emmclab.errors import ConfigError, EmmclabError, UnsupportedError
from emmclab.runtime.document import parse_duration

if TYPE_CHECKING:
    from emmclab.crash import Exploration
    from emmclab.crash.guest.machine import GuestMounts
    from emmclab.crash.json_types import MinimalState
    from emmclab.crash.promises import Finding
    from emmclab.crash.stored_log import Session, StoredLog
    from emmclab.crash.summary import ExploredRecording

#: Name of the help panel with the options on logs of recorded runs.
LOGS_PANEL = "Logs"
#: What recovered the file system, by recovery method; used in messages.
_RECOVERED = {"process": "emmclab", "e2fsck": "e2fsck", "mount": "the kernel"}


def _recovered(options: Options) -> str:
    """Return what recovers the file system, or the model that makes the states."""
    if options.model is not None:
        return f"states by the model {options.model}"
    return f"recovery by {_RECOVERED[options.recovery] if options.guest is None else 'the kernel of the guest'}"


#: Largest share of a time limit that is used for recordings.
_RECORDING = 0.5


def minimizing_time(text: str | float) -> float:
    """Return the value of `--minimize-for` in seconds."""
    if isinstance(text, float):
        return text
    return 0.0 if text in ("0", "0s") else parse_duration(text, "minimize-for")


@dataclass(frozen=True, kw_only=True)
class CrashOptions:
    """The options of `emmclab crash` that determine a run."""

    device: Annotated[
        str | None,
        option(
            "The device: a preset (`emmclab devices`) or a TOML file.",
            RUN_PANEL,
            *DEVICE_OPTION,
            metavar="DEVICE",
            autocompletion=device_names,
        ),
    ] = None
    settings: Settings = field(default_factory=list)
    capacity: Annotated[
        str | None,
        option(
            "Scale the device to this capacity; a small one is explored faster. Default: 256MB, doubled "
            "until the device and the file system support it.",
            RUN_PANEL,
            metavar="SIZE",
            advanced=True,
        ),
    ] = None
    recording: RecordingOptions
    workload: Workload
    options: Options
    repeat: Annotated[
        int,
        option(
            "Number of recordings of the workload, which are explored together; in all but the first, the workload "
            "pauses at random times until all data is written back, as if it waited for its user.",
            RUN_PANEL,
            min=1,
            max=1000,
            advanced=True,
        ),
    ] = 1
    faults: Annotated[
        str | None,
        option(
            "With --model: record the workload also with faults, one in each recording: eio (a sync or write fails), "
            "enospc, short (a write stores a part); each with an optional maximum, as eio:20; default 8.",
            RUN_PANEL,
            metavar="LIST",
            advanced=True,
        ),
    ] = None
    remade: Annotated[
        list[str] | None,
        option(
            "With --model: pattern of names of files that the program makes anew after a power cut, so that it may "
            "write them through a shared mapping; known are *-shm of SQLite and lock.mdb of LMDB. May be repeated.",
            RUN_PANEL,
            metavar="PATTERN",
            advanced=True,
        ),
    ] = None
    minimize_s: Annotated[
        float,
        option(
            "Time for making findings smaller after they were printed, for example 10min; 0s leaves it out.",
            RUN_PANEL,
            "--minimize-for",
            metavar="TIME",
            parser=minimizing_time,
            show_default="2min",
            advanced=True,
        ),
    ] = 120.0
    jobs: Annotated[int, option("Processes; 0 for one per processor.", STATES_PANEL, min=0, advanced=True)] = 0
    log: Annotated[
        Path | None, option("Explore this log from an earlier run or from dm-log-writes.", LOGS_PANEL, advanced=True)
    ] = None
    base: Annotated[
        Path | None,
        option("Image of the device before the log of dm-log-writes.", LOGS_PANEL, metavar="IMAGE", advanced=True),
    ] = None
    reuse: Annotated[
        bool | None,
        option(
            "Whether to reuse verdicts of an earlier or interrupted run with the same log, options, tools and kernel.",
            LOGS_PANEL,
            "--resume/--fresh",
            show_default="--resume; --fresh if the check is a command, whose files may have changed",
            advanced=True,
        ),
    ] = None
    results: ResultsFolder = RESULTS

    def changed(self, context: typer.Context, words: str) -> CrashOptions:
        """Return a copy of these options, changed by the command-line options in `words`; `--set` values are added."""
        try:
            split = shlex.split(words)
        except ValueError as error:
            raise _against(f"`{words}` cannot be read: {error}") from None
        parsed = context.command.make_context(context.info_name, split, parent=context.parent)
        changes = {
            name: value
            for name, value in parsed.params.items()
            if str(parsed.get_parameter_source(name)).endswith("COMMANDLINE")
        }
        names = [parameter.name for parameter in group_parameters(CrashOptions)]
        foreign = sorted(changes.keys() - {*names, "command"})
        if foreign or not changes:
            raise _against(f"`{foreign[0]}` is not an option of a run" if foreign else "no option differs")
        if "settings" in changes:
            changes["settings"] = [*self.settings, *changes["settings"]]
        options: CrashOptions = filled(CrashOptions, changes, self)
        if "command" in changes:
            options = replace(options, workload=replace(options.workload, command=tuple(changes["command"])))
        return options


def _against(problem: str) -> ConfigError:
    return ConfigError(
        problem, field="against", hint="write the other device as --against '--device ufs31 --set cache.lies=flush'"
    )


class TimeLimit:
    """The time limit of a command; without one, there is always time left."""

    def __init__(self, seconds: float | None) -> None:
        """Begin now; `seconds` is the limit, or None."""
        self._seconds, self._begin = seconds, time.monotonic()

    def left_s(self, share: float = 1.0) -> float:
        """Return the seconds that are left of a share of the time; infinite without a limit."""
        if self._seconds is None:
            return math.inf
        return self._seconds * share - (time.monotonic() - self._begin)


def checked_options(run: CrashOptions) -> Options:
    """Return the options of the exploration with their defaults; reject impossible options before anything runs."""
    from emmclab.crash.explore import no_ext4
    from emmclab.crash.verdict_inputs import command_of

    options = run.options
    check = _check_named(options.check, run.workload.name or None)
    in_process = options.model is not None or (command_of(check) is None and options.guest is None)
    options = replace(
        options,
        recovery=options.recovery or ("process" if in_process else "mount"),
        check=check,
        guest=None if options.guest is None else str(Path(options.guest).absolute()),
    )
    if run.log is not None:
        return options
    if run.device is None and options.model is None:
        hint = "give a device, for example --device emmc51-cache, or a model of a file system: --model ext4"
        raise ConfigError("no device is given", field="device", hint=hint)
    # Check the name of the workload first. Otherwise, an unknown workload would cause an error about a missing check.
    run.workload.require()
    options.require()
    if options.model is not None:
        return options
    if options.guest is not None:
        _require_guest(options.guest, run)
    file_system = run.recording["file_system"]
    if file_system != "ext4" and options.recovery != "mount":
        raise no_ext4(options.recovery, f"the requested file system is {file_system}")
    return options


def recorded(run: CrashOptions, limit: TimeLimit) -> tuple[Options, list[StoredLog]]:
    """Record the workload, or load an existing log; return the options of the exploration, and the recordings."""
    from emmclab.crash.stored_log import Session

    session, options = Session(run.results / "crash"), checked_options(run)
    workload = replace(run.workload, seed=options.seed)
    if run.log is not None:
        return options, [_load_log(session, options, run.log, run.base, run.repeat)]
    if options.model is not None:
        return options, _record_files(run, session, workload)
    recordings: list[StoredLog] = []
    for number in range(run.repeat):
        left = limit.left_s(_RECORDING)
        if recordings and left <= 0:
            print_stderr(f"the time allowed {len(recordings)} of {run.repeat} recordings")
            break
        limited = replace(workload, thinks=number, timeout_s=min(workload.timeout_s, max(left, 1.0)))
        recordings.append(record_workload(run, session, limited, lambda disk: _require_in_process(disk, options)))
    return options, recordings


def _record_files(run: CrashOptions, session: Session, workload: Workload) -> list[StoredLog]:
    """Record the file operations of a workload without a device; again for each fault."""
    from emmclab.crash.system_calls import faults_of, sites

    kinds = [] if run.faults is None else faults_of(run.faults)
    print_stderr(f"running {' '.join(workload.command) or workload.name}")
    whole, about = session.record_files(workload, remade=run.remade or (), on_message=print_stderr)
    recordings = [whole]
    for fault in [site for kind, most in kinds for site in sites(about, kind, most)]:
        stored, seen = session.record_files(
            workload, fault=fault, whole=whole, remade=run.remade or (), on_message=print_stderr
        )
        if seen.failures.get(fault.call):
            recordings.append(stored)
        else:
            print_stderr(f"note: {fault} did not happen, so that its recording is left out")
    return recordings


def _require_guest(guest: str, run: CrashOptions) -> None:
    from emmclab.crash.guest import machine

    if run.workload.command:
        raise ConfigError(
            "a command of this machine cannot run in the guest",
            field="guest",
            hint="use a workload that emmclab includes (--workload), or leave out --guest",
        )
    machine.require(guest, run.recording["file_system"])


def record_workload(
    run: CrashOptions,
    session: Session,
    workload: Workload,
    ready: Callable[[str], None] = lambda _disk: None,
    on_message: Callable[[str], None] = print_stderr,
) -> StoredLog:
    """Record a workload on the device, with the requested layers and file system."""
    from emmclab.crash.recording import scaled_down

    recording = run.recording
    device_settings, layer_settings = layered(run.settings, recording["layers"])
    device = configured(str(run.device), device_settings, run.capacity)
    second, guest = recording["second"], run.options.guest
    options: RecordingOptions = {
        **recording,
        "layer_settings": layer_settings,
        "second": configured(second, []) if isinstance(second, str) else second,
        "guest": None if guest is None else str(Path(guest).absolute()),
    }
    return session.record(
        scaled_down(device, recording["file_system"]) if run.capacity is None else device,
        workload,
        on_message=on_message,
        ready=ready,
        **options,
    )


def explored(
    run: CrashOptions, options: Options, recordings: Sequence[StoredLog], limit: TimeLimit
) -> list[ExploredRecording]:
    """Explore the crash states of recordings."""
    from emmclab.crash.summary import ExploredRecording

    tried = []
    for number, stored in enumerate(recordings):
        limited = options
        if options.time_s is not None:
            limited = replace(options, time_s=max(limit.left_s(), 0.0) / (len(recordings) - number))
        result = _explored(stored, limited, run.jobs or (os.cpu_count() or 1), run.results, reuse=run.reuse)
        tried.append(ExploredRecording(stored, result))
    return tried


def minimized(
    run: CrashOptions, options: Options, tried: Sequence[ExploredRecording], limit: TimeLimit
) -> list[ExploredRecording]:
    """Minimise the findings of explored recordings, and the programs that led to them, while there is time."""
    smaller = []
    time_left = TimeLimit(min(run.minimize_s, limit.left_s()))
    for one in tried:
        minimal: dict[int, MinimalState] = {}
        findings = one.exploration.findings()
        if findings and time_left.left_s() > 0:
            minimal = _smallest_states(one.log, options, findings, time_left)
            _add_programs(run, options, one.log, findings, minimal, time_left)
        if findings and time_left.left_s() <= 0:
            print_stderr("the time has ended: `emmclab crash --again` with the name of a state minimises its finding")
        smaller.append(replace(one, minimal=minimal))
    return smaller


def _add_programs(
    run: CrashOptions,
    options: Options,
    stored: StoredLog,
    findings: Sequence[Finding],
    minimal: dict[int, MinimalState],
    limit: TimeLimit,
) -> None:
    """Add the fewest operations of generated programs that show findings.

    They are left out if no new recording shows the finding.
    """
    from emmclab.crash.minimize import minimize_programs, programs_until
    from emmclab.crash.scratch_folders import scratch
    from emmclab.crash.stored_log import Session

    if run.device is None or run.log is not None:
        return
    with scratch() as folder, _guest(stored, options) as guest:
        session = Session(folder / "crash")
        for number, finding in enumerate(findings):
            programs = programs_until(stored, finding) if number in minimal and limit.left_s() > 0 else []
            if not programs:
                continue
            print_stderr(f"making a program of {len(programs[-1].operations)} operations smaller: {finding.promise}")
            smallest = minimize_programs(
                programs,
                finding,
                options,
                lambda workload: record_workload(run, session, workload, on_message=_quiet),
                folder,
                guest,
                lambda: limit.left_s() > 0,
            )
            if smallest:
                *earlier, last = [[str(step) for step in program.operations] for program in smallest]
                minimal[number] = {**minimal[number], "program": last, "earlier": earlier}
            else:
                print_stderr("no new recording shows this: it depends on timing, or the time was too short")


def _guest(stored: StoredLog, options: Options) -> AbstractContextManager[GuestMounts | None]:
    """Return a context with the virtual machine that mounts crash states; None if this machine mounts them."""
    from emmclab.crash.explore import new_explorer, open_run
    from emmclab.crash.guest.machine import guest_of

    if options.guest is None:
        return nullcontext()
    run, _ = open_run(str(stored.log), base=stored.base)
    return guest_of(options.guest, new_explorer(run, options.core()).host_bytes())


def _quiet(_line: str) -> None:
    """Discard a message of a recording; otherwise it would be printed for each step of minimising."""


def _load_log(session: Session, options: Options, log: Path, base: Path | None, repeat: int) -> StoredLog:
    from emmclab.crash.explore import require_recoverable
    from emmclab.crash.stored_log import open_log

    if repeat > 1:
        raise ConfigError(
            "--repeat cannot be used with --log: the log contains a single run",
            field="repeat",
            hint="leave out --repeat, or record a new log with --device",
        )
    options.require()
    stored = session.take(log, base)
    require_recoverable(open_log(stored.log, stored.base)[0], options)
    return stored


def _require_in_process(disk: str, options: Options) -> None:
    """Reject, before the workload runs, a file system that emmclab itself cannot recover."""
    from emmclab.crash.explore import not_in_process

    if options.recovery != "process":
        return
    try:
        _core.read_ext4(disk, [])
    except UnsupportedError as error:
        raise not_in_process(error) from error


def results_folder(results: Path) -> Path | None:
    """Return the results folder, or None if it is the default."""
    return None if results == RESULTS else results


def _check_named(check: str | None, workload: str | None) -> str | None:
    """Return the check to use: the one given by the option, or the default check of the included workload."""
    from emmclab.crash import generated_programs, workloads

    if check is None and workload is not None and generated_programs.is_programs(workload):
        return generated_programs.CHECK
    if check == "sqlite":
        own = workload if workload is not None and workloads.sqlite_setting(workload) else None
        return own or "sqlite"
    return check or workload


def _explored(stored: StoredLog, options: Options, jobs: int, results: Path, *, reuse: bool | None) -> Exploration:
    from emmclab.crash.verdict_inputs import command_of

    lines = stored.facts.acknowledgements
    print_stderr(
        f"{stored.facts.commands:,} commands, {stored.facts.moments:,} events, {lines:,} lines "
        f"acknowledged; exploring {options.cuts:,} cuts, {_recovered(options)}"
    )

    before = None

    def report(progress: Exploration) -> None:
        nonlocal before
        cuts = progress.covered.get("cuts", 0)
        # The first report contains only the cuts of an earlier, interrupted exploration; their number is stored.
        before = cuts if before is None else before
        total = min(options.cuts, progress.covered.get("moments", options.cuts))
        meter(cuts, total, before, f"{progress.states:,} states, {len(progress.findings())} findings")

    try:
        with Counter("crash", "cuts") as meter:
            return stored.explore(options, jobs, report, reuse=reuse)
    except KeyboardInterrupt:
        # The hint repeats the stored log as an option, because a new recording of the workload cannot use these
        # results.
        values = {"log": stored.log, "base": stored.base, "check": options.check, "results": results_folder(results)}
        words = " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in values.items() if value)
        words += "" if command_of(options.check) is None else " --resume"
        complete_files.append(f"the results so far are stored: continue with {words} and the other options")
        raise


def _smallest_states(
    stored: StoredLog, options: Options, findings: Sequence[Finding], limit: TimeLimit
) -> dict[int, MinimalState]:
    """Return the smallest crash state for each finding, by its index."""
    from emmclab.crash.explore import open_run
    from emmclab.crash.minimize import minimize

    print_stderr(f"minimising {len(findings)} findings")
    run, _ = open_run(str(stored.log), base=stored.base)
    # Only one finding is minimised for each broken promise. Further findings of the same promise mostly have the same
    # cause.
    promises: set[tuple[str, str]] = set()
    minimal = {}
    with Working("minimising findings"), _guest(stored, options) as guest:
        for number, finding in enumerate(findings):
            if (finding.level, finding.promise) in promises or limit.left_s() <= 0:
                continue
            promises.add((finding.level, finding.promise))
            try:
                smallest = minimize(run, options, finding, guest, lambda: limit.left_s() > 0)
            except EmmclabError as error:
                print_stderr(f"{finding.promise} could not be minimised: {error}")
                continue
            if smallest is not None:
                minimal[number] = smallest
    return minimal
