"""Types of the JSON of `emmclab crash --json`, which Python makes; `core_types` has those of the core."""

from typing import Any, NotRequired, TypedDict


class RecordedWorkload(TypedDict):
    """The workload of a recording: a command, or one that comes with emmclab."""

    name: str
    command: list[str]
    operations: int
    seed: int
    timeout_s: float
    thinks: int


class Made(TypedDict, total=False):
    """How a run was recorded; empty for a log that was given as a file, such as one of dm-log-writes."""

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


class Covered(TypedDict, total=False):
    """What an exploration has tried so far; empty before it starts."""

    moments: int
    cuts: int
    #: Logarithm (base 10) of an upper bound of the states that the contract allows at these cuts.
    legal_log10: float
    chosen: int
    equal: int
    most_unpromised: int
    #: Lines of the workload after which power is cut before any other moment: the last sync of each generated
    #: program, or every line of another workload; and those of them after which it was cut.
    lines: int
    lines_cut: int


class MissingWrite(TypedDict):
    """A write that a state lacks, or that is garbled in it."""

    command: int
    at_ns: int
    sector: int
    sectors: int
    garbled: bool


class MinimalState(TypedDict):
    """The smallest known state that shows a finding."""

    cut: int
    state: int
    detail: str
    #: Writes that were sent and are missing or garbled; empty for the state that the device itself would leave.
    missing: list[MissingWrite]
    #: Number of writes that were missing in the state before it was minimised.
    before: int
    tries: int
    #: For a generated program: the fewest operations that show the finding if they are recorded alone.
    program: list[str]


class FindingFields(TypedDict):
    """A promise that states, or commands, break."""

    promise: str
    level: str
    cut: int
    state: int
    #: The name of the state for `--again`; None if commands break the promise.
    again: str | None
    states: int
    detail: str
    chosen_by: str
    at_ns: int
    acknowledged: int
    documented: NotRequired[str]
    #: Number of recordings that show it, if there are several.
    recordings: NotRequired[int]
    minimal: NotRequired[MinimalState]


class ControlOutcome(TypedDict):
    """The outcome of a control: whether it held, or None if it was not tried; and what was seen."""

    held: bool | None
    detail: str


class ControlFields(TypedDict):
    """Evidence that the check could have failed, like `emmclab.crash.controls.Controls`."""

    #: The result of the controls, as a sentence.
    text: str
    lines: int
    #: Number of lines that the check understands; None if it is a command.
    understood: int | None
    foreign: str
    whole: ControlOutcome
    before: ControlOutcome


class CrashSummary(TypedDict):
    """All findings of one recording."""

    #: `broken`, `kept`, `documented`, `not tested`, or `not checked` without a check.
    verdict: str
    #: Why nothing, or not all, was tested.
    doubts: list[str]
    #: None without a check.
    controls: ControlFields | None
    cuts: int
    states: int
    reused_states: int
    pruned_states: int
    states_per_s: float | None
    findings: list[FindingFields]
    documented: list[FindingFields]
    covered: Covered
    seed: int
    #: `CrashLogFacts`, and the path of the log.
    log: dict[str, Any]
    run: Made
    #: Those of `emmclab.crash.explore.Options`.
    options: dict[str, Any]
    #: Number of recordings of the workload, of which the page shows this one.
    recordings: NotRequired[int]


class AllRecordings(TypedDict):
    """All findings of several recordings of one workload."""

    #: As in `CrashSummary`: the worst of them.
    verdict: str
    cuts: int
    states: int
    findings: list[FindingFields]
    documented: list[FindingFields]
    seed: int
    recordings: list[CrashSummary]
