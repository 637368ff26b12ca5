"""Texts of the page of power cuts: who broke which promise, and what was covered."""

from math import floor

from emmclab.crash import generated_programs
from emmclab.crash.json_types import CrashSummary, FindingFields
from emmclab.crash.promises import COMMANDS
from emmclab.crash.summary import NOT_TESTED

#: Meaning of each broken promise, by level and promise.
_BROKEN = {
    ("device", "completion"): "data of a completed write was lost, although there is no cache",
    ("device", "flush"): "data that was written before a completed flush was lost",
    ("device", "fua"): "data of a completed FUA or reliable write was lost",
    ("device", "order"): "a write was present without an earlier one that a barrier orders before it",
    ("device", "whole"): "a reliable write was only partly present",
    ("device", "erased"): "data came back after a secure erase",
    ("layer", "recovery"): "the layer did not recover",
    ("layer", "contents"): "sectors contained neither the promised data nor data that was written later",
    ("journal", "commit"): "a commit block was written while blocks of its transaction could still be lost",
    ("journal", "data"): "a transaction was committed while data that it makes readable could still be lost",
    ("journal", "home"): "a block was written to its home before the commit of its transaction was durable",
    ("journal", "tail"): "the tail moved past transactions whose home blocks could still be lost",
    ("filesystem", "mountable"): "the file system could not be opened",
    ("filesystem", "consistent"): "structures of the file system contradicted each other",
    ("filesystem", "superblock"): "the superblock of the file system was damaged",
    ("filesystem", "journal superblock"): "the superblock of the journal was damaged",
    ("filesystem", "group descriptor"): "the descriptor of a block group was damaged",
    ("filesystem", "journal inode"): "the inode of the journal was damaged",
    ("filesystem", "commit block"): "a commit block was damaged",
    ("filesystem", "fsync"): "a file, or a name, is not as a successful fsync made it durable",
    ("filesystem", "fdatasync"): "records were lost after a successful fdatasync",
    ("application", "commit"): "a committed transaction was lost",
    ("application", "integrity"): "the database was damaged",
    ("application", "check"): "the check failed",
}
#: Flags of a command that imply promises.
PROMISES = ("FORCED", "RELIABLE", "PREFLUSH", "BARRIER")
_RECOVERIES = {
    "process": "emmclab replays the journal in memory and reads the files",
    "e2fsck": "e2fsck replays the journal and checks the file system",
    "mount": "the kernel mounts the disk",
}


def broken(finding: FindingFields) -> str:
    """Return the meaning of a broken promise."""
    return _BROKEN.get((finding["level"], finding["promise"]), f"the promise `{finding['promise']}`")


def who(level: str, summary: CrashSummary) -> str:
    """Return who made the promise."""
    run, log = summary["run"], summary["log"]
    system = run.get("file_system", "ext4")
    mounted = f" (mounted with {run['mount_options']})" if run.get("mount_options") else ""
    return {
        "device": f"The device {log['device']}",
        "layer": f"The layer {', '.join(log['layers'])}",
        "journal": f"The journal of {system}{mounted}",
        "filesystem": f"The file system {system}{mounted}",
        "application": f"The application ({workload(summary)})",
    }[level]


def workload(summary: CrashSummary) -> str:
    """Return the name of the workload."""
    about = summary["run"].get("workload")
    if about is None:
        return "of the log"
    return " ".join(about["command"]) or about["name"]


def headline(summary: CrashSummary) -> str:
    """Return the result in one sentence."""
    states, findings = summary["states"], summary["findings"]
    if findings:
        one = findings[0]
        return f"{who(one['level'], summary)} broke a promise: {broken(one)}, {states_text(one, states)}"
    if summary["verdict"] == NOT_TESTED:
        return f"Not tested: {summary['doubts'][0]}"
    layers = summary["log"]["layers"]
    below = f" below {', '.join(layers)}" if layers else ""
    tried = f"{states:,} states of {summary['cuts']:,} cuts{below}"
    if summary["documented"]:
        shown = sum(one["states"] for one in summary["documented"])
        return f"No promise was broken in {tried}; {shown:,} states show a documented loss"
    if summary["options"]["check"] is None:
        return f"Device and file system kept their promises in {tried}; nothing checked the data of the workload"
    return f"No acknowledged data was lost in {tried}"


def states_text(finding: FindingFields, states: int) -> str:
    """Return in how many states a finding occurs; a rule of the journal is broken by commands."""
    if is_of_commands(finding):
        return f"by {finding['states']:,} command{'s' if finding['states'] != 1 else ''}"
    return f"in {finding['states']:,} of {states:,} states"


def is_of_commands(finding: FindingFields) -> bool:
    """Return whether commands break the promise, independent of states."""
    return finding["chosen_by"] == COMMANDS


def cautions(summary: CrashSummary) -> list[str]:
    """Return what limits the trust in the result."""
    log, (number, shares) = summary["log"], summary["options"]["share"]
    said = list(summary["doubts"])
    if log["lies"] != "none":
        said.append(f"this device breaks a promise on purpose (cache.lies = {log['lies']})")
    if shares > 1:
        said.append(f"part {number + 1} of {shares} of the states was tried: the others may contain more findings")
    if (recordings := summary.get("recordings", 1)) > 1:
        said.append(f"this page shows one of {recordings} recordings; the command line sums up all of them")
    said += summary["run"].get("notes", ())
    return said


def power_of_ten(logarithm: float) -> tuple[str, str]:
    """Format a number given by its base-10 logarithm: digits, and the power of ten (may be empty).

    >>> power_of_ten(4.77932), power_of_ten(148.0899)
    (('60,162', ''), ('1.2', '148'))
    """
    if logarithm < 9:
        return f"{10.0**logarithm:,.0f}", ""
    power = floor(logarithm)
    return f"{10.0 ** (logarithm - power):.1f}", str(power)


def covered(summary: CrashSummary) -> list[tuple[str, str]]:
    """Return the list of what was tried."""
    options, tried = summary["options"], summary["covered"]
    digits, power = power_of_ten(tried["legal_log10"])
    legal = f"{digits} x 10^{power}" if power else digits
    whole = {
        "none": "4 KiB",
        "sector": "512 bytes",
        "inside": "512 bytes; in flight, and not reliable, they may be garbled",
    }.get(options["tear"], options["tear"])
    rows = [
        ("Cuts", f"{tried['cuts']:,} of {tried['moments']:,} possible times"),
        *(
            [
                (
                    "Programs cut after their last sync"
                    if options["check"] == generated_programs.CHECK
                    else "Lines of the workload right after which power was cut",
                    f"{tried['lines_cut']:,} of {tried['lines']:,}",
                )
            ]
            if tried.get("lines")
            else []
        ),
        ("States the contract allows at these cuts, at most", legal),
        ("States chosen", f"{tried['chosen']:,}, by {options['states'].replace(',', ', ')}"),
        ("Equal to an earlier one", f"{tried['equal']:,}, left out"),
        ("States recovered and judged", f"{summary['states']:,}"),
        ("Writes at a cut that no promise covers, at most", f"{tried['most_unpromised']:,}"),
        ("Written as a whole or not at all", whole),
        *(
            [("Judged by an earlier run under the same conditions", f"{summary['reused_states']:,} of these states")]
            if summary.get("reused_states")
            else []
        ),
        ("Recovery", _RECOVERIES.get(options["recovery"], options["recovery"])),
        ("Check of the files", options["check"] or "none"),
    ]
    if summary["log"]["layers"]:
        rows.append(("Cuts during the layers' recovery, of each state", f"{options['recovery_cuts']:,}"))
    return rows


def not_covered(summary: CrashSummary) -> list[str]:
    """Return the list of what was not tried, with the option that tries it."""
    options, tried, log = summary["options"], summary["covered"], summary["log"]
    left = []
    if tried["cuts"] < tried["moments"]:
        left.append(f"{tried['moments'] - tried['cuts']:,} possible times (--cuts {tried['moments']})")
    if 10.0 ** min(tried["legal_log10"], 18.0) > tried["chosen"]:
        left.append("other states that the contract allows (larger numbers in --states, other values of --seed)")
    if options["tear"] == "none":
        left.append("blocks of 4 KiB torn at 512 bytes (--tear sector)")
    if options["tear"] != "inside":
        left.append("garbage in the sectors of writes in flight (--tear inside)")
    if options["recovery"] == "process":
        left.append("recovery by e2fsck or by the kernel (--recovery e2fsck, --recovery mount)")
    if options["check"] is None:
        left.append("the contents of files: there is no check (--check)")
    if not log["acknowledgements"]:
        left.append("acknowledgements of the application: it printed no line")
    if options["share"][1] > 1:
        left.append(f"the other {options['share'][1] - 1} shards (--shard)")
    left.append("cuts while the file system itself recovers")
    left.append(
        "other runs: this is one recording, with one timing and one order of requests (--repeat 5 makes "
        "five, with other think times of the workload)"
    )
    return left
