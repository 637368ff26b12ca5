"""Stored crash logs: each has a folder with the log, its provenance and the results of its explorations."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from emmclab import _core
from emmclab.core_types import CrashLogFacts
from emmclab.crash.explore import Controls, CoreOptions, Exploration, Options, open_run
from emmclab.crash.json_types import Made
from emmclab.crash.recording import RECORDING_OPTIONS, RecordingOptions, Workload, record_run
from emmclab.crash.shards import controls_of, explore_in_parallel
from emmclab.crash.verdict_inputs import Grounds, command_of, contents_of, digest, grounds
from emmclab.errors import ConfigError, EmmclabError, InputError
from emmclab.runtime.checksummed import from_checked_json, to_checked_json
from emmclab.runtime.files import folder_aside, refuse_link
from emmclab.runtime.option import complete
from emmclab.simulation.device import Device

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


def acknowledged_at(run: _core.CrashRun) -> list[int]:
    """Return the time of each line that the workload printed, in nanoseconds."""
    times: list[int] = []
    if not run.acknowledgements():
        return times
    explorer = _core.Explorer(run, _options(1 << 62, None))
    # The explorer tries a power cut after every output line of the workload. It skips a logged event only if neither
    # the disk nor the lines have changed.
    while (state := explorer.next_state()) is not None:
        times += [state["at_ns"]] * (state["acknowledged"] - len(times))
    return times


def time_of(run: _core.CrashRun, cut: int) -> int:
    """Return the time of a power cut in nanoseconds; 0 if the log has no crash state for it."""
    state = _core.Explorer(run, _options(1, (cut, 0))).next_state()
    return 0 if state is None else int(state["at_ns"])


def commands_before(run: _core.CrashRun, cut: int) -> list[LoggedCommand]:
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
        if name not in ("cuts", "share", "only", "prune") and (name, value) != ("guest", None)
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
        is_included = not self.made.get("workload", {}).get("command")
        return controls_of(str(self.log), options, base=self.base, is_included=is_included)


def open_log(log: Path, base: str | None) -> tuple[_core.CrashRun, CrashLogFacts]:
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
        self._folder.mkdir(parents=True, exist_ok=True)
        with folder_aside(self._folder) as temporary:
            log = temporary / _LOG
            recorded = record_run(device, workload, log, on_message=on_message, ready=ready, **options)
            for note in recorded.notes:
                on_message(f"note: {note}")
            description: Made = {
                "device": device if isinstance(device, str) else device.name,
                "layers": values["layers"],
                "second": second.name if isinstance(second, Device) else second,
                "file_system": values["file_system"],
                "mkfs_options": values["mkfs_options"],
                "mount_options": values["mount_options"],
                "guest": values["guest"],
                "workload": workload.as_json(),
                "status": recorded.status,
                "pauses": recorded.pauses,
                "notes": list(recorded.notes),
            }
            _, facts = open_run(str(log))
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
        _, facts = open_log(log, base_path)
        folder = refuse_link(self._folder / facts.identity[:_SHORT])
        folder.mkdir(parents=True, exist_ok=True)
        description: Made = {}
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
