"""Stored crash logs, each with its provenance and results, and their exploration by several processes."""

import hashlib
import json
import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from emmclab import _core
from emmclab.core_types import CrashLogFacts
from emmclab.crash.explore import (
    Controls,
    CoreOptions,
    Exploration,
    Options,
    Run,
    explore,
    judge_controls,
    new_explorer,
    open_run,
)
from emmclab.crash.file_states import FileRun
from emmclab.crash.json_types import Made
from emmclab.crash.promises import CutTally, Finding
from emmclab.crash.recording import RECORDING_OPTIONS, Recorded, RecordingOptions, Workload, record_files, record_run
from emmclab.crash.scratch_folders import exit_on_sigterm, remove_stale
from emmclab.crash.system_calls import Injected, RecordedFiles
from emmclab.crash.verdict_inputs import Grounds, command_of, contents_of, digest, grounds
from emmclab.errors import ConfigError, EmmclabError, InputError
from emmclab.runtime.checksummed import from_checked_json, to_checked_json
from emmclab.runtime.executors import Crash, Executor, Pool, Serial, each
from emmclab.runtime.files import folder_aside, refuse_link
from emmclab.runtime.option import complete
from emmclab.runtime.threads import repeated
from emmclab.simulation.device import Device

#: Interval at which the intermediate results of one share of the exploration are stored, seconds.
_KEEP_S = 2.0


@dataclass(frozen=True)
class Share:
    """A share of the crash states of a log, and the path of its results."""

    log: str
    base: str | None
    options: Options
    path: str | None
    #: Time of `time.monotonic` at which the exploration stops, the same for all processes; None for no limit.
    until: float | None


@dataclass(frozen=True)
class ControlsTask:
    """A task for a worker: run the control checks of an exploration; `is_included` is that of `judge_controls`."""

    log: str
    base: str | None
    options: Options
    is_included: bool


#: Fields of an `Exploration` that are copied to its JSON without changes.
_PLAIN = ("states", "last", "took_s", "covered", "finished", "pruned")


def as_json(exploration: Exploration) -> dict[str, Any]:
    """Return an exploration as JSON for `from_json`, with the findings by kind and the verdicts by cut."""
    return {
        **{name: getattr(exploration, name) for name in _PLAIN},
        "kinds": [asdict(finding) for finding in exploration.kinds.values()],
        "verdicts": [(cut, astuple(tally)) for cut, tally in sorted(exploration.verdicts.items())],
    }


def from_json(data: Mapping[str, Any]) -> Exploration:
    """Return the exploration that `as_json` encoded."""
    verdicts = {cut: CutTally(*tally) for cut, tally in data["verdicts"]}
    exploration = Exploration(**{name: data[name] for name in _PLAIN}, verdicts=verdicts)
    for finding in data["kinds"]:
        exploration.add(Finding(**finding))
    return exploration


def _stored_share(path: Path) -> Exploration | None:
    """Return the stored results of a share; `None` if there are none, or if they are damaged."""
    try:
        data = from_checked_json(path.read_bytes())
    except OSError:
        return None
    return None if data is None else from_json(data)


@exit_on_sigterm()
def run_share(share: Share) -> Exploration:
    """Explore a share of the crash states; stored results of an interrupted run of this share are reused."""
    path = None if share.path is None else Path(share.path)
    previous = None
    if path is not None:
        previous = _stored_share(path)
        if previous is not None:
            previous.reused = previous.states
            if previous.finished:
                return previous
    run, _ = open_run(share.log, base=share.base)
    latest = previous or Exploration()
    next_keep = time.monotonic() + _KEEP_S

    def on_results(result: Exploration) -> None:
        nonlocal latest, next_keep
        latest = result
        if time.monotonic() > next_keep:
            next_keep = time.monotonic() + _KEEP_S
            keep(replace(result, finished=False))

    def keep(result: Exploration) -> None:
        if path is not None:
            _core.write_whole(path, to_checked_json(as_json(result)))

    try:
        result = explore(run, share.options, on_results=on_results, before=previous, until=share.until)
    except (KeyboardInterrupt, SystemExit):
        keep(replace(latest, finished=False))
        raise
    keep(result)
    return result


def executor_for(options: Options, jobs: int) -> Executor:
    """Return an executor that checks crash states in several processes, or in one.

    States are mounted only in worker processes, which unmount them when their parent is killed.
    """
    is_mounted = options.recovery == "mount" or command_of(options.check) is not None
    is_worker = multiprocessing.parent_process() is not None
    return Serial() if jobs == 1 and (is_worker or not is_mounted) else Pool(jobs)


@exit_on_sigterm()
def run_controls(task: ControlsTask) -> Controls | None:
    """Run the control checks of an exploration; if a signal ends the process, its mounts are removed."""
    run, _ = open_run(task.log, base=task.base)
    return judge_controls(run, task.options, is_included=task.is_included)


def _crashed(work: str, crash: Crash) -> EmmclabError:
    return EmmclabError(
        f"a process that {work} crashed: {crash.reason}",
        kind="failed",
        hint="run the same command again, which continues from the stored results",
    )


def explore_in_parallel(
    log: str,
    options: Options,
    *,
    base: str | None = None,
    jobs: int = 1,
    folder: Path | None = None,
    grounds: str = "",
    fresh: bool = False,
    on_results: Callable[[Exploration], None] = lambda _result: None,
) -> Exploration:
    """Explore a crash log with several processes; the findings do not depend on the number of processes.

    Args:
        log: the crash log.
        options: options of the exploration. If they select a share of the states, the processes divide this share.
        base: content of the device before a log of dm-log-writes started.
        jobs: number of processes.
        folder: folder for the results of each process, so that an interrupted exploration can continue.
        grounds: digest of everything that a verdict depends on besides log and options, from
            `emmclab.crash.verdict_inputs`; results with another digest are not reused.
        fresh: do not reuse stored results.
        on_results: called with the results at the end, and with a folder also at the start and every two seconds.
    """
    # The files of killed explorations are removed even if no exploration is needed.
    remove_stale()
    share, shares = options.share
    until = None if options.time_s is None else time.monotonic() + options.time_s
    tasks = []
    for number in range(jobs):
        part = replace(options, share=(share + shares * number, shares * jobs))
        results_path = None
        if folder is not None:
            # An exploration that was stopped by a time limit continues with any other one.
            deciding = {**asdict(part), "time_s": part.time_s is not None}
            grounds_text = json.dumps([grounds, deciding], sort_keys=True)
            key = hashlib.sha256(grounds_text.encode()).hexdigest()[:16]
            path = folder / f"share-{key}.json"
            if fresh:
                path.unlink(missing_ok=True)
            results_path = str(path)
        tasks.append(Share(log, base, part, results_path, until))
    executor = executor_for(options, jobs)
    total = Exploration(finished=True)
    _report(tasks, on_results)
    with repeated(_KEEP_S, lambda: _report(tasks, on_results)):
        for _, result in executor.run(run_share, each(tasks)):
            if isinstance(result, Crash):
                raise _crashed("explored the log", result)
            total.merge(result)
    on_results(total)
    return total


def _report(tasks: Sequence[Share], on_results: Callable[[Exploration], None]) -> None:
    """Call `on_results` with the results that the parallel tasks of the exploration have stored so far."""
    paths = [task.path for task in tasks if task.path]
    if not paths:
        return
    so_far = Exploration()
    for path in paths:
        if (stored := _stored_share(Path(path))) is not None:
            so_far.merge(stored)
    on_results(so_far)


#: The `writer` of logs from dm-log-writes; such logs have no times, so each entry counts as this many nanoseconds.
DM_WRITER, DM_ENTRY_NS = "dm-log-writes", 2_000


@dataclass(frozen=True)
class LoggedCommand:
    """A command in a crash log that arrived before a power cut."""

    number: int
    op: str
    sector: int
    sectors: int
    flags: tuple[str, ...]
    arrival_ns: int
    #: Completion time in nanoseconds; None if the command was not complete at the power cut.
    complete_ns: int | None


def acknowledged_at(run: Run) -> list[int]:
    """Return the time of each line that the workload printed, in nanoseconds."""
    if isinstance(run, FileRun):
        return [event.at_ns for event in run.events if event.kind == "line"]
    times: list[int] = []
    if not run.acknowledgements():
        return times
    explorer = new_explorer(run, _options(1 << 62, None))
    # The explorer tries a power cut after every output line of the workload. It skips a logged event only if neither
    # the disk nor the lines have changed.
    while (state := explorer.next_state()) is not None:
        times += [state["at_ns"]] * (state["acknowledged"] - len(times))
    return times


def time_of(run: Run, cut: int) -> int:
    """Return the time of a power cut in nanoseconds; 0 if the log has no crash state for it."""
    if isinstance(run, FileRun):
        return run.events[cut - 1].at_ns if cut else 0
    state = new_explorer(run, _options(1, (cut, 0))).next_state()
    return 0 if state is None else int(state["at_ns"])


def commands_before(run: Run, cut: int) -> list[LoggedCommand]:
    """Return the commands that arrived before a power cut, in order of arrival."""
    return [
        LoggedCommand(number, op, sector, sectors, tuple(flags), arrival, complete)
        for number, op, sector, sectors, flags, arrival, complete in run.commands(0, cut + 1)
    ]


def _options(cuts: int, only: tuple[int, int] | None) -> CoreOptions:
    return {**Options(cuts=cuts, states="device", only=only).core(), "from_mark": None}


#: Number of digits to which the identity of a log is shortened, for folder names and `emmclab crash --again`.
_SHORT = 8


#: File names in the folder of a log: the log, the description of its run, and the prefix of option files.
_LOG, _RUN = "run.log", "run.json"
_OPTIONS = "options-"


def _deciding(options: Options) -> dict[str, object]:
    """Return the options that determine the crash states of a cut and how they are checked."""
    return {
        name: value
        for name, value in asdict(options).items()
        if name not in ("cuts", "share", "only", "prune", "time_s")
        and (value or name not in ("guest", "documented", "model", "flips"))
    }


def digest_of(options: Options) -> str:
    """Return a short digest of the options that determine crash states and how they are checked."""
    return hashlib.sha256(json.dumps(_deciding(options), sort_keys=True).encode()).hexdigest()[:6]


@dataclass(frozen=True)
class StoredLog:
    """A stored crash log, and the folder that contains it."""

    folder: Path
    log: Path
    base: str | None
    identity: str
    facts: CrashLogFacts
    #: Device, workload and outcome of the recorded run; empty if the log was not recorded into this folder.
    made: Made

    @property
    def short(self) -> str:
        """The short name of the crash log, as used in the names of its states."""
        return self.identity[:_SHORT]

    def keep(self, options: Options) -> None:
        """Store the options of an exploration, which determine the numbers of its states; keep other stored options."""
        about = {"made": self.made, "base": self.base, "log": str(self.log)}
        _core.write_whole(refuse_link(self.folder / _RUN), to_checked_json(about))
        named = self.folder / f"{_OPTIONS}{digest_of(options)}.json"
        _core.write_whole(refuse_link(named), to_checked_json(_deciding(options)))

    def name_of(self, options: Options, cut: int, state: int) -> str:
        """Return the name of a crash state for `--again`: log, cut, state number, and digest of the options."""
        return f"{self.short}:{cut}:{state}:{digest_of(options)}"

    def explore(
        self, options: Options, jobs: int, on_results: Callable[[Exploration], None], *, reuse: bool | None = None
    ) -> Exploration:
        """Explore the crash log, or continue an interrupted exploration whose verdicts are still valid.

        Args:
            options: options of the exploration.
            jobs: number of processes.
            on_results: called with the results so far.
            reuse: whether to reuse stored results; by default they are reused unless the check is a command, whose
                files may have changed.

        Raises:
            ConfigError: as in `controls`, or the check cannot run.
            EmmclabError: a tool changed during the exploration.
        """
        self.keep(options)
        reuse = command_of(options.check) is None if reuse is None else reuse
        controls = self.controls(options)

        def current_grounds() -> Grounds:
            return grounds(options.check, options.recovery, identity=self.identity, guest=options.guest)

        before = current_grounds()
        result = explore_in_parallel(
            str(self.log),
            options,
            base=self.base,
            jobs=jobs,
            folder=self.folder,
            grounds=digest(before),
            fresh=not reuse,
            on_results=on_results,
        )
        result.controls = controls
        if self.made.get("doubts"):
            # States without the writes that were not recorded show losses that are none.
            result.kinds.clear()
        after = current_grounds()
        changed = ", ".join(name for name, value in before.items() if value != after.get(name))
        if changed:
            raise EmmclabError(
                f"the exploration is invalid, because these changed while it ran: {changed}",
                kind="failed",
                hint="run the same command again with --fresh, which discards the stored results",
            )
        return result

    def controls(self, options: Options) -> Controls | None:
        """Test the check of an exploration on states whose result is known; `None` if the options contain no check.

        Raises:
            ConfigError: the disk is damaged before the workload, or the check does not fit the workload.
        """
        remove_stale()
        is_included = not self.made.get("workload", {}).get("command")
        task = ControlsTask(self.made.get("controls", str(self.log)), self.base, options, is_included)
        ((_, controls),) = executor_for(options, 1).run(run_controls, each([task]))
        if isinstance(controls, Crash):
            raise _crashed("judged the controls", controls)
        return controls


def open_log(log: Path, base: str | None) -> tuple[Run, CrashLogFacts]:
    """Open a crash log with its base image, if it has one; the returned identity then covers both files."""
    run, facts = open_run(str(log), base=base)
    if base is None:
        return run, facts
    if facts.writer != DM_WRITER:
        raise ConfigError(
            "a crash log of emmclab contains all writes since the device was new, so it needs no base image",
            field="base",
            hint="leave out --base",
        )
    try:
        identities = f"{facts.identity} {contents_of(Path(base))}"
    except OSError as error:
        raise InputError.of(error, base) from error
    return run, CrashLogFacts({**facts, "identity": hashlib.sha256(identities.encode()).hexdigest()[:16]})


class Session:
    """A folder of stored crash logs."""

    def __init__(self, folder: Path) -> None:
        """Set the folder in which logs are stored; it is created on first use."""
        self._folder = folder

    def record(
        self,
        device: Device | str,
        workload: Workload,
        *,
        on_message: Callable[[str], None],
        ready: Callable[[str], None] = lambda _path: None,
        **options: Unpack[RecordingOptions],
    ) -> StoredLog:
        """Run a workload and store its crash log; the arguments and errors are those of `record_run`.

        Raises:
            ConfigError: as in `record_run`.
        """
        values = complete(RECORDING_OPTIONS, options, "a recording")
        second = values["second"]
        description: Made = {
            "device": device if isinstance(device, str) else device.name,
            "layers": values["layers"],
            "second": second.name if isinstance(second, Device) else second,
            "file_system": values["file_system"],
            "mkfs_options": values["mkfs_options"],
            "mount_options": values["mount_options"],
            "guest": values["guest"],
        }

        def record(log: Path) -> Recorded:
            return record_run(device, workload, log, on_message=on_message, ready=ready, **options)

        return self._keep(record, workload, description, on_message)

    def record_files(
        self,
        workload: Workload,
        *,
        fault: Injected | None = None,
        whole: StoredLog | None = None,
        remade: Sequence[str] = (),
        on_message: Callable[[str], None],
    ) -> tuple[StoredLog, RecordedFiles]:
        """Run a workload without a device and store its file operations, as `record_files`.

        With a `fault`, `whole` is the recording without it, on which the check is tested.
        """
        description: Made = {} if fault is None else {"fault": str(fault)}
        if whole is not None:
            description["controls"] = str(whole.log)
        about: list[RecordedFiles] = []

        def record(log: Path) -> Recorded:
            recorded, files = record_files(workload, log, fault=fault, remade=remade)
            about.append(files)
            return recorded

        return self._keep(record, workload, description, on_message), about[0]

    def _keep(
        self,
        record: Callable[[Path], Recorded],
        workload: Workload,
        description: Made,
        on_message: Callable[[str], None],
    ) -> StoredLog:
        """Let `record` write a log, and store it with its description."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with folder_aside(self._folder) as temporary:
            log = temporary / _LOG
            recorded = record(log)
            for note in recorded.notes:
                on_message(f"note: {note}")
            description["workload"] = workload.as_json()
            description["status"] = recorded.status
            description["pauses"] = recorded.pauses
            description["notes"] = list(recorded.notes)
            run, facts = open_run(str(log))
            if isinstance(run, FileRun) and run.doubts:
                description["doubts"] = list(run.doubts)
            folder = refuse_link(self._folder / facts.identity[:_SHORT])
            folder.mkdir(exist_ok=True)
            log.replace(folder / _LOG)
        return StoredLog(folder, folder / _LOG, None, facts.identity, facts, description)

    def take(self, log: Path, base: Path | None) -> StoredLog:
        """Add a crash log that was recorded elsewhere, or find it among the stored ones; its file is not moved.

        Raises:
            EmmclabError: the log cannot be read.
        """
        base_path = None if base is None else str(base.absolute())
        run, facts = open_log(log, base_path)
        folder = refuse_link(self._folder / facts.identity[:_SHORT])
        folder.mkdir(parents=True, exist_ok=True)
        description: Made = {}
        if isinstance(run, FileRun):
            description["doubts"] = list(run.doubts)
        if (folder / _RUN).exists() and (folder / _LOG).exists():
            # If the folder has no readable description of the run, the log is treated like a log from another place.
            description = (_read_description(folder / _RUN) or {"made": description})["made"]
        return StoredLog(folder, log.absolute(), base_path, facts.identity, facts, description)

    def find_state(self, state: str) -> tuple[StoredLog, Options]:
        """Find the log and the options of a crash state by its name, such as `c3f2:8812:17:5f0a31`."""
        parts = state.split(":")
        if len(parts) not in (3, 4) or not all(parts) or not all(part.isdecimal() for part in parts[1:3]):
            raise _no_state(f"`{state}` is not the name of a state", "copy it from a finding: c3f2:8812:17:5f0a31")
        matches = sorted(self._folder.glob(f"{parts[0]}*/{_RUN}"))
        if len(matches) != 1:
            count = len(matches)
            raise _no_state(
                f"{count} logs in {self._folder} have a name that begins with {parts[0]}; one is needed",
                "give the folder with --results, or more characters of the name",
            )
        description = _read_description(matches[0])
        if description is None:
            raise InputError(
                "this file is damaged, or of an earlier version",
                hint=f"explore the log again: `emmclab crash --log {matches[0].with_name(_LOG)}`",
            ).in_file(str(matches[0]))
        options = replace(
            _options_of(matches[0].parent, parts[:3], "".join(parts[3:])), only=(int(parts[1]), int(parts[2]))
        )
        _, facts = open_log(Path(description["log"]), description["base"])
        if not facts.identity.startswith(parts[0]):
            base_text = "" if description["base"] is None else f", or its base image {description['base']},"
            raise EmmclabError(
                f"the log{base_text} is not the crash log that was explored",
                kind="value",
                hint="explore it again, with --log" + ("" if description["base"] is None else " and --base"),
            ).in_file(description["log"])
        log = Path(description["log"])
        base, made = description["base"], description["made"]
        return StoredLog(matches[0].parent, log, base, facts.identity, facts, made), options


def _read_description(path: Path) -> dict[str, Any] | None:
    """Read the stored description of a crash log; None if it is damaged or of an earlier version."""
    try:
        return from_checked_json(path.read_bytes())
    except OSError as error:
        raise InputError.of(error, path) from error


def _options_of(folder: Path, state: Sequence[str], prefix: str) -> Options:
    """Return the stored exploration options whose digest begins with a prefix; more than one match is an error."""
    files = sorted(folder.glob(f"{_OPTIONS}*.json"))
    read = {path.stem.removeprefix(_OPTIONS): _read_description(path) for path in files}
    stored = {name: options for name, options in read.items() if options is not None}
    fitting = [digest for digest in stored if digest.startswith(prefix)]
    if len(fitting) == 1:
        return Options(**stored[fitting[0]])
    ways = ", or ".join(
        f"{':'.join([*state, digest])} ({', '.join(f'{key} {value}' for key, value in options.items())})"
        for digest, options in stored.items()
    )
    if not fitting:
        raise _no_state(f"the log was not explored with the options {prefix}", ways or "explore it with --log")
    raise _no_state(
        f"the log was explored with {len(fitting)} sets of options, each with another state of this name", ways
    )


def _no_state(problem: str, hint: str) -> ConfigError:
    return ConfigError(problem, field="again", hint=hint)
