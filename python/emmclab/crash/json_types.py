"""Types of the JSON output of `emmclab crash`. The types from the Rust core are in `core_types`."""

from typing import Any, NotRequired, TypedDict


class RecordedWorkload(TypedDict):
    """The workload of a recording: a command, or a workload that comes with emmclab."""

    name: str
    command: list[str]
    operations: int
    seed: int
    timeout_s: float
    thinks: int


class Made(TypedDict, total=False):
    """How a recording was made; empty if its log was given as a file, such as one of dm-log-writes."""

    device: str
    layers: list[str]
    second: str | None
    file_system: str
    mkfs_options: list[str]
    mount_options: str | None
    guest: str | None
    workload: RecordedWorkload
    status: int | None
    pauses: int
    notes: list[str]
    #: For a recording of file operations: the injected fault, reasons why the operations are not complete, and the
    #: log without the fault, on which the check is tested.
    fault: str
    doubts: list[str]
    controls: str


class Covered(TypedDict, total=False):
    """The power cuts and crash states that an exploration has tried so far; empty before it starts."""

    moments: int
    cuts: int
    #: Base-10 logarithm of an upper bound of the number of crash states that the storage contract allows at these cuts.
    legal_log10: float
    chosen: int
    equal: int
    most_unpromised: int
    #: Output lines of the workload after which power is cut first (`lines`), and the number of these lines after which
    #: it was cut (`lines_cut`). The lines are the last sync of each generated program, or all lines of another
    #: workload.
    lines: int
    lines_cut: int


class MissingWrite(TypedDict):
    """A write that is missing or garbled in a crash state."""

    command: int
    at_ns: int
    sector: int
    sectors: int
    garbled: bool
    #: For a recording of file operations, the operation in words.
    what: NotRequired[str]
    #: What the write contains, if ext4 is on the device: inode table, commit block of a transaction, ...
    meaning: NotRequired[str]


class MinimalState(TypedDict):
    """The smallest known crash state that shows a finding."""

    cut: int
    state: int
    detail: str
    #: Writes that the host sent but that are missing or garbled in this state. Empty for the state that the simulated
    #: device itself would leave.
    missing: list[MissingWrite]
    #: Number of missing writes in the crash state before it was minimised.
    before: int
    tries: int
    #: For a generated program: the fewest operations that show the finding if they are recorded alone.
    program: list[str]
    #: Earlier programs that have to run before; None if no new recording shows the finding, or if it was not tried.
    earlier: list[list[str]] | None


class PathDifference(TypedDict):
    """A path that differs from the nearest state that a cut may leave."""

    path: str
    expected: str
    found: str


class FindingFields(TypedDict):
    """A durability promise that is broken by crash states, or by the recorded commands themselves."""

    promise: str
    level: str
    cut: int
    state: int
    #: Name of the crash state, for `--again`. None if the recorded commands themselves break the promise.
    again: str | None
    states: int
    detail: str
    chosen_by: str
    at_ns: int
    acknowledged: int
    documented: NotRequired[str]
    #: Number of recordings that show the finding; only present if there are several recordings.
    recordings: NotRequired[int]
    minimal: NotRequired[MinimalState]
    #: For a generated program: the paths of its folder that are not as they may be.
    differs: NotRequired[list[PathDifference]]


class ControlOutcome(TypedDict):
    """The outcome of a control (a check with a known right result), and what was observed.

    `held` is None if the control could not be tried.
    """

    held: bool | None
    detail: str


class ControlFields(TypedDict):
    """Evidence that the check could have failed; the JSON form of `emmclab.crash.explore.Controls`."""

    #: Result of the controls (evidence that the check can fail), as a sentence.
    text: str
    lines: int
    #: Number of output lines of the workload that have a form the check understands; None if the check is a shell
    #: command.
    understood: int | None
    foreign: str
    whole: ControlOutcome
    before: ControlOutcome


class CrashSummary(TypedDict):
    """All findings of one recording, with the verdict and the evidence for it."""

    #: Verdict on the recording: `broken`, `kept`, `documented`, `not tested`, or `not checked` without a check.
    verdict: str
    #: Reasons why nothing, or not everything, was tested.
    doubts: list[str]
    #: Results of the controls (evidence that the check can fail); None without a check.
    controls: ControlFields | None
    cuts: int
    states: int
    #: Whether all chosen states were tried; false if the time limit of the exploration ended it.
    finished: bool
    reused_states: int
    pruned_states: int
    states_per_s: float | None
    findings: list[FindingFields]
    documented: list[FindingFields]
    covered: Covered
    seed: int
    #: Path of the log, and facts about it, with the fields of `CrashLogFacts`.
    log: dict[str, Any]
    run: Made
    #: Options of the exploration, as in `emmclab.crash.explore.Options`.
    options: dict[str, Any]
    #: Number of recordings of the workload. The page shows only one of them.
    recordings: NotRequired[int]


class BatchesSummary(TypedDict):
    """What was covered of a workload that is explored in batches."""

    workload: str
    #: Number of explored batches, and of all.
    batches: int
    batches_in_all: int
    #: Number of programs with a sync, and of those that were cut after their last one.
    programs: int
    cut_after_last_sync: int
    cuts: int
    states: int
    #: Reasons why not everything was tested in some batches.
    doubts: list[str]
    #: All findings; those of no batch are left out.
    findings: NotRequired[list[FindingFields]]


class AllRecordings(TypedDict):
    """All findings of several recordings of one workload."""

    #: The worst verdict of all recordings, as in `CrashSummary`.
    verdict: str
    cuts: int
    states: int
    findings: list[FindingFields]
    documented: list[FindingFields]
    seed: int
    recordings: list[CrashSummary]
