"""The page of `emmclab crash`: first which promise was broken and by which level, then the evidence."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import floor
from pathlib import Path
from typing import Any

import altair as alt
from markupsafe import Markup

from emmclab.crash import generated_programs
from emmclab.crash.explore import Exploration, open_run
from emmclab.crash.json_types import CrashSummary, FindingFields, MinimalState, MissingWrite
from emmclab.crash.promises import COMMANDS, CutTally
from emmclab.crash.stored_log import (
    DM_ENTRY_NS,
    DM_WRITER,
    LoggedCommand,
    StoredLog,
    acknowledged_at,
    commands_before,
    time_of,
)
from emmclab.crash.summary import NOT_TESTED
from emmclab.pages.assemble import Head, Notice, Provenance, Tile, assemble
from emmclab.pages.plots import Chart, Figure, Rows, bare_chart, chart_of, in_order, tooltip
from emmclab.pages.theme import CRASH_COLOURS
from emmclab.runtime.document import Bullets, Heading, Part, Row, Section, TextTable
from emmclab.runtime.files import write_atomically
from emmclab.runtime.persistence_contract import with_clauses

#: Meaning of each broken promise, by level and promise.
BROKEN_PROMISES = {
    ("device", "completion"): "data of a completed write was lost, although there is no cache",
    ("device", "flush"): "data that was written before a completed flush was lost",
    ("device", "fua"): "data of a completed FUA or reliable write was lost",
    ("device", "order"): "a write was present without an earlier write that a barrier orders before it",
    ("device", "whole"): "a reliable write was only partly present",
    ("device", "erased"): "data came back after a secure erase",
    ("device", "paired"): "data that was durable was damaged: the device does not protect paired pages",
    ("layer", "recovery"): "the layer did not recover",
    ("layer", "contents"): "sectors contained neither the promised data nor data that was written later",
    ("journal", "commit"): "a commit block was written while blocks of its transaction could still be lost",
    ("journal", "data"): "a transaction was committed while data that it makes readable could still be lost",
    ("journal", "home"): "a block was written to its final address before the commit of its transaction was durable",
    ("journal", "tail"): "the tail moved past transactions whose blocks at their final addresses could still be lost",
    ("filesystem", "mountable"): "the file system could not be opened",
    ("filesystem", "consistent"): "structures of the file system contradicted each other",
    ("filesystem", "usable"): "files cannot be made, written and removed",
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
#: Flags of a command that promise durability or order.
PROMISES = ("FORCED", "RELIABLE", "PREFLUSH", "BARRIER")
_RECOVERIES = {
    "process": "emmclab replays the journal in memory and reads the files",
    "e2fsck": "e2fsck replays the journal and checks the file system",
    "mount": "the kernel mounts the disk",
}


def broken(finding: FindingFields) -> str:
    """Return which durability promise a finding breaks; for a device, with the clauses of the contract."""
    level, promise = finding["level"], finding["promise"]
    meaning = BROKEN_PROMISES.get((level, promise), f"the promise `{promise}`")
    return with_clauses(meaning, f"crash:{promise}") if level == "device" else meaning


def who(level: str, summary: CrashSummary) -> str:
    """Return a text that names the level (such as the device or file system) that made the promise."""
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
    """Return the result of the exploration in one sentence."""
    states, findings = summary["states"], summary["findings"]
    if findings:
        finding = findings[0]
        return f"{who(finding['level'], summary)} broke a promise: {broken(finding)}, {states_text(finding, states)}"
    if summary["verdict"] == NOT_TESTED:
        return f"Not tested: {summary['doubts'][0]}"
    layers = summary["log"]["layers"]
    layer_text = f" below {', '.join(layers)}" if layers else ""
    tried = f"{states:,} states of {summary['cuts']:,} cuts{layer_text}"
    if summary["documented"]:
        documented_states = sum(loss["states"] for loss in summary["documented"])
        return f"No promise was broken in {tried}; {documented_states:,} states show a documented loss"
    if summary["options"]["check"] is None:
        return f"Device and file system kept their promises in {tried}; nothing checked the data of the workload"
    return f"No acknowledged data was lost in {tried}"


def states_text(finding: FindingFields, states: int) -> str:
    """Return in how many states a finding occurs, or how many commands break a rule of the journal."""
    if is_of_commands(finding):
        return f"by {finding['states']:,} command{'s' if finding['states'] != 1 else ''}"
    return f"in {finding['states']:,} of {states:,} states"


def is_of_commands(finding: FindingFields) -> bool:
    """Return whether the recorded commands break the promise, so that no crash state is needed to show it."""
    return finding["chosen_by"] == COMMANDS


def cautions(summary: CrashSummary) -> list[str]:
    """Return sentences on reasons to trust the result less."""
    log, (number, shares) = summary["log"], summary["options"]["share"]
    sentences = list(summary["doubts"])
    if log["lies"] != "none":
        sentences.append(f"this device breaks a promise on purpose (cache.lies = {log['lies']})")
    if shares > 1:
        sentences.append(f"part {number + 1} of {shares} of the states was tried; the others may show more findings")
    if (recordings := summary.get("recordings", 1)) > 1:
        sentences.append(f"this page shows one of {recordings} recordings; the command line summarises all of them")
    sentences += summary["run"].get("notes", ())
    return sentences


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
    """Return what was explored, as rows of label and text."""
    options, tried = summary["options"], summary["covered"]
    digits, power = power_of_ten(tried["legal_log10"])
    legal = f"{digits} x 10^{power}" if power else digits
    atomic_unit = {
        "none": "4 KiB",
        "sector": "512 bytes",
        "inside": "512 bytes; sectors in flight of writes that are not reliable may be garbled",
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
        ("Equal to an earlier state", f"{tried['equal']:,}, left out"),
        ("States recovered and checked", f"{summary['states']:,}"),
        ("Writes at a cut that no promise covers, at most", f"{tried['most_unpromised']:,}"),
        ("Unit that is written atomically", atomic_unit),
        *(
            [("Checked by an earlier run under the same conditions", f"{summary['reused_states']:,} of these states")]
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
    """Return texts on what was not explored, with the options that would include it."""
    options, tried, log = summary["options"], summary["covered"], summary["log"]
    missing = []
    if not summary.get("finished", True):
        chosen = min(options["cuts"], tried["moments"])
        missing.append(f"{chosen - tried['cuts']:,} chosen cuts, for which the time was too short (--for)")
    if tried["cuts"] < tried["moments"]:
        missing.append(f"{tried['moments'] - tried['cuts']:,} possible times (--cuts {tried['moments']})")
    if 10.0 ** min(tried["legal_log10"], 18.0) > tried["chosen"]:
        missing.append("other states that the contract allows (larger numbers in --states, other values of --seed)")
    if options["tear"] == "none":
        missing.append("blocks of 4 KiB torn at 512 bytes (--tear sector)")
    if options["tear"] != "inside":
        missing.append("garbage in the sectors of writes in flight (--tear inside)")
    if options["recovery"] == "process":
        missing.append("recovery by e2fsck or by the kernel (--recovery e2fsck, --recovery mount)")
    if options["check"] is None:
        missing.append("the contents of files: there is no check (--check)")
    if not log["acknowledgements"]:
        missing.append("acknowledgements of the application: it printed no line")
    if options["share"][1] > 1:
        missing.append(f"the other {options['share'][1] - 1} shards (--shard)")
    missing.append("cuts while the file system itself recovers")
    missing.append(
        "other runs: this is one recording, with one timing and one order of requests (--repeat 5 records "
        "the workload five times, with other pauses)"
    )
    return missing


#: Number of distinguishable positions on the time line; cuts at the same position are counted together.
_PLACES = 500
#: Maximum numbers of commands that are drawn before a power cut: the last commands, and earlier commands that are
#: missing after the cut.
_MOST_COMMANDS, _MOST_MISSING = 16, 12
#: Maximum number of missing writes in a table; the JSON contains all.
_MOST_LISTED = 20


@dataclass(frozen=True)
class Scene:
    """Data from the crash log that the page shows in addition to the findings.

    Attributes:
        verdicts: counts of the crash states of each power cut, by the number of the cut in the log.
        acknowledged_ns: the time of each acknowledgement.
        before: for each finding, the time in ns of the cut that shows it, and the commands that had arrived before the
            cut.
    """

    verdicts: Mapping[int, CutTally]
    acknowledged_ns: Sequence[int]
    before: Sequence[tuple[int, Sequence[LoggedCommand]]]


@dataclass(frozen=True)
class _Clock:
    """Time axes of the charts: length of their unit in ns of log time (`per`), and the titles of two axes."""

    per: float
    line: str
    commands: str


_DEVICE_CLOCK = _Clock(1e6, "device time, ms", "ms before the cut")
_DM_CLOCK = _Clock(DM_ENTRY_NS, "entry of the log, which has no times", "entries before the cut")


def write_crash_report(
    summary: CrashSummary, stored: StoredLog, exploration: Exploration, path: Path, *, results: Path | None = None
) -> None:
    """Write the page, atomically.

    Args:
        summary: the findings, as `emmclab.crash.summary` returns them.
        stored: the log.
        exploration: the exploration of the log, with a verdict on each cut.
        path: the page.
        results: the results folder, which the shown commands contain; `None` for the default folder.
    """
    run, _ = open_run(str(stored.log), base=stored.base)
    cuts = [finding["minimal"]["cut"] if "minimal" in finding else finding["cut"] for finding in summary["findings"]]
    before = [(time_of(run, cut), commands_before(run, cut)) for cut in cuts]
    scene = Scene(exploration.verdicts, acknowledged_at(run), before)
    write_atomically(path, render(summary, scene, results=results))


def render(summary: CrashSummary, scene: Scene, *, results: Path | None = None) -> str:
    """Return the HTML page; equal findings produce equal bytes."""
    log = summary["log"]
    clock = _DM_CLOCK if log["writer"] == DM_WRITER else _DEVICE_CLOCK
    name = log["identity"][:8]
    pictures = [
        (f"commands-{number}", _command_rows(name, finding, *before, clock))
        for number, (finding, before) in enumerate(zip(summary["findings"], scene.before, strict=True), 1)
    ]
    rows = {"cuts": _line_rows(name, summary, scene, clock), **dict(pictures)}
    figures = [_line_figure(clock), *(_commands_figure(number, clock) for number, _ in enumerate(pictures, 1))]
    return assemble(
        figures,
        rows,
        [name],
        template="crash.html.j2",
        title=f"Power cuts of {log['device']}",
        head=_head(summary),
        provenance=Provenance(f"Log {log['identity']} of {log['device']}", _provenance(summary)),
        findings=[_finding_content(summary, finding, results) for finding in summary["findings"]],
        documented=[_finding_content(summary, finding, results) for finding in summary["documented"]],
        sections=[Section("covered", "Covered", _covered(summary), nav="Covered")],
    )


def _covered(summary: CrashSummary) -> list[Part]:
    headings, rows = ["Measure", "Extent"], covered(summary)
    table = TextTable("Table of what was covered", headings, rows, words=2, style="matrix")
    return [table, Heading("Not covered"), Bullets([(line, "") for line in not_covered(summary)])]


def _head(summary: CrashSummary) -> Head:
    log, file_system = summary["log"], summary["run"].get("file_system")
    layer_text = f" below {', '.join(log['layers'])}" if log["layers"] else ""
    on_file_system = f", {file_system}" if file_system else ""
    controls = summary["controls"]
    return Head(
        answer=headline(summary),
        lead=[
            f"{workload(summary)} on {log['device']}{layer_text}{on_file_system}: power was cut {summary['cuts']:,} "
            "times, and the chosen states that a cut may leave were recovered and checked.",
            *([] if controls is None else [f"{controls['text'][:1].upper()}{controls['text'][1:]}."]),
        ],
        tiles=_tiles(summary),
        notices=[Notice("caution", text) for text in cautions(summary)],
        picture="cuts",
    )


def _tiles(summary: CrashSummary) -> list[Tile]:
    covered, documented = summary["covered"], len(summary["documented"])
    losses = f"{documented} documented, no defect" if documented else ""
    return [
        Tile("Findings", str(len(summary["findings"])), note=losses),
        Tile("States tried", f"{summary['states']:,}"),
        Tile("Cuts", f"{summary['cuts']:,}", note=f"of {covered['moments']:,} possible times"),
        Tile("Lines acknowledged", f"{summary['log']['acknowledgements']:,}", note=_understood(summary)),
        Tile("Legal states, at most", _power(*power_of_ten(covered["legal_log10"])), note="at these cuts"),
        Tile("Seed", str(summary["seed"])),
    ]


def _understood(summary: CrashSummary) -> str:
    controls = summary["controls"]
    if controls is None or controls["understood"] is None:
        return ""
    return f"{controls['understood']:,} understood by the check"


def _power(factor: str, power: str) -> Markup | str:
    return Markup("{} &times; 10<sup>{}</sup>").format(factor, power) if power else factor


class _ShownFinding(FindingFields):
    """A finding in the form that the page shows.

    `meaning` and `shown_in` are texts, and `command` reproduces the crash state. `smallest` is the smallest crash state
    that shows the finding. `listed` and `listed_table` contain its first missing writes. `unlisted` is the number of
    its other missing writes. `differs_table` contains the paths that are not as expected.
    """

    meaning: str
    shown_in: str
    command: str | None
    smallest: MinimalState | None
    listed: list[MissingWrite]
    listed_table: TextTable
    unlisted: int
    differs_table: TextTable | None


def _finding_content(summary: CrashSummary, finding: FindingFields, results: Path | None) -> _ShownFinding:
    command = ["emmclab", "crash", "--again", finding["again"] or ""]
    if results is not None:
        command += ["--results", str(results)]
    minimal = finding.get("minimal")
    missing = [] if minimal is None else minimal["missing"]
    return {
        **finding,
        "meaning": broken(finding),
        "shown_in": states_text(finding, summary["states"]),
        # A finding about commands has no crash state that a command could reproduce.
        "command": None if is_of_commands(finding) else shlex.join(command),
        "smallest": minimal,
        "listed": missing[:_MOST_LISTED],
        "listed_table": TextTable(
            "Missing writes",
            ["Missing command", "Arrival, ms", "First sector", "Sectors", "Contains", "Meaning"],
            [
                [
                    str(write["command"]),
                    f"{write['at_ns'] / 1e6:,.3f}",
                    f"{write['sector']:,}",
                    f"{write['sectors']:,}",
                    "garbage" if write["garbled"] else "the previous data",
                    write.get("meaning", "unknown"),
                ]
                for write in missing[:_MOST_LISTED]
            ],
        ),
        "unlisted": len(missing[_MOST_LISTED:]),
        "differs_table": TextTable(
            "Expected and found",
            ["Path", "Expected in the nearest state that a cut may leave", "Found"],
            [[row["path"], row["expected"], row["found"]] for row in finding["differs"]],
        )
        if "differs" in finding
        else None,
    }


def _line_figure(clock: _Clock) -> Figure:
    return Figure(
        "cuts",
        "Cuts by verdict",
        "A mark for each cut, in the row of its worst state; below, a mark for each acknowledgement of the "
        "workload. Numbers are those of the findings. A cut whose states all equal earlier states has no mark.",
        partial(_time_line_chart, axis=clock.line),
        wide=True,
    )


def _commands_figure(number: int, clock: _Clock) -> Figure:
    draw: Callable[[Rows], Chart] = partial(_commands_chart, axis=clock.commands)
    return Figure(
        f"commands-{number}",
        f"Commands before the cut of finding {number}",
        "A bar for each command from arrival to completion, without reads; the cut is the dashed line at 0. "
        "Missing writes had arrived, but are not in the smallest state.",
        draw,
        wide=True,
    )


def _line_rows(name: str, summary: CrashSummary, scene: Scene, clock: _Clock) -> Rows:
    """Return the data of the time line: cuts, acknowledgements and findings; marks at one position are merged."""
    times = [tally.at_ns for tally in scene.verdicts.values()] + list(scene.acknowledged_ns)
    times += [at_ns for at_ns, _ in scene.before]
    first, last = min(times, default=0), max(times, default=0)
    step = max(1, (last - first) // _PLACES)
    marks: dict[tuple[str, int], Row] = {}

    def mark(row: str, at_ns: int, number: str, counts: tuple[int, int, int]) -> None:
        position = (at_ns - first) // step
        # The key contains the number of a finding, so that findings at the same position are not merged.
        merged = marks.setdefault(
            (f"{row}{number}", position),
            {
                "trace": name,
                "row": row,
                "time": at_ns / clock.per,
                "number": number,
                "marks": 0,
                "states": 0,
                "broken": 0,
                "documented": 0,
            },
        )
        merged["marks"] += 1
        for field, count in zip(("states", "broken", "documented"), counts, strict=True):
            merged[field] += count

    for number, (finding, (at_ns, _)) in enumerate(zip(summary["findings"], scene.before, strict=True), 1):
        mark(FINDINGS, at_ns, str(number), (finding["states"], finding["states"], 0))
    lanes = ("promise broken", "documented loss", "all states kept")
    for lane in lanes:
        for _, tally in sorted(scene.verdicts.items()):
            worst = lanes[0 if tally.broken else 1 if tally.documented else 2]
            if worst == lane:
                mark(lane, tally.at_ns, "", (tally.states, tally.broken, tally.documented))
    for at_ns in scene.acknowledged_ns:
        mark("acknowledged", at_ns, "", (0, 0, 0))
    return list(marks.values())


def _command_rows(
    name: str, finding: FindingFields, cut_ns: int, before: Sequence[LoggedCommand], clock: _Clock
) -> Rows:
    """Return the commands to draw: the last ones before the power cut, and earlier ones with missing writes."""
    missing = {write["command"] for write in finding["minimal"]["missing"]} if "minimal" in finding else set()
    # Reads are left out, because they do not affect the crash state.
    before = [command for command in before if command.op != "read"]
    earlier = [command for command in before[:-_MOST_COMMANDS] if command.number in missing]
    return [
        {
            "trace": name,
            "command": _with_missing(command, command.number in missing),
            "operation": command.op,
            "sector": command.sector,
            "sectors": command.sectors,
            "flags": ", ".join(command.flags).lower(),
            "begin": (command.arrival_ns - cut_ns) / clock.per,
            "end": ((command.complete_ns or cut_ns) - cut_ns) / clock.per,
            "state": _state(command, command.number in missing),
        }
        for command in (*earlier[-_MOST_MISSING:], *before[-_MOST_COMMANDS:])
    ]


def _with_missing(command: LoggedCommand, missing: bool) -> str:
    flags = [flag.lower() for flag in command.flags if flag in PROMISES]
    where = f" {command.sectors} at {command.sector}" if command.sectors else ""
    return " ".join([f"{command.number}", *flags, f"{command.op}{where}", *(["missing"] if missing else [])])


def _state(command: LoggedCommand, missing: bool) -> str:
    if missing:
        return "missing"
    if command.complete_ns is None:
        return "not complete"
    promises = command.op == "flush" or any(flag in PROMISES for flag in command.flags)
    return "flush, FUA or barrier" if promises else "complete"


def _provenance(summary: CrashSummary) -> list[tuple[str, str]]:
    log, run, options = summary["log"], summary["run"], summary["options"]
    about = run.get("workload")
    rows = [
        ("Log", f"{log['identity']}, {log['path']}"),
        ("Written by", log["writer"]),
        ("Device", log["device"] + (f", lies: {log['lies']}" if log["lies"] != "none" else "")),
        ("Layers", ", ".join(log["layers"]) or "none"),
        ("File system", run.get("file_system", "of the log")),
        ("Options of mkfs", " ".join(run.get("mkfs_options", ())) or "no others"),
        ("Options of mount", run.get("mount_options") or "none"),
        ("Workload", workload(summary)),
    ]
    if about is not None and about["name"]:
        rows.append(("Operations and seed of the workload", f"{about['operations']:,}, {about['seed']}"))
    rows.append(("Contents of the log", f"{log['commands']:,} commands, {log['moments']:,} events"))
    keys = ("cuts", "states", "seed", "tear", "recovery", "check", "recovery_cuts")
    values = dict(options)
    rows.append(("Options", ", ".join(f"{key} = {values[key]}" for key in keys)))
    return rows


#: Name of the row of the time line that marks findings by number.
FINDINGS = "findings"
_ROW_PX = 30
#: Width of the row labels, pixels.
_LABEL_PX = 260
#: Ratio above which the axis is logarithmic: time from the earliest command to the power cut, divided by that of a
#: typical command.
_FAR_APART = 60


def _time_line_chart(rows: Rows, axis: str) -> Chart:
    """Draw a time line with a row of power cuts for each verdict, a row of acknowledgements, and finding numbers."""
    lanes = in_order(rows, "row")
    base = chart_of(rows, _ROW_PX * len(lanes)).encode(
        x=alt.X("time:Q", title=axis, scale=alt.Scale(zero=False)),
        y=alt.Y("row:N", title=None, sort=lanes, axis=alt.Axis(grid=True)),
        color=_colours([lane for lane in lanes if lane != FINDINGS], "row", legend=False),
    )
    ticks = base.transform_filter(f"datum.row != '{FINDINGS}'").mark_tick(thickness=1.5, size=18)
    numbers = base.transform_filter(f"datum.row == '{FINDINGS}'")
    marks = numbers.mark_point(shape="triangle-down", size=60, filled=True, yOffset=6).encode(
        color=alt.value(CRASH_COLOURS["promise broken"])
    )
    labels = numbers.mark_text(fontWeight="bold", yOffset=-7, fontSize=12).encode(
        text="number:N", color=alt.value(CRASH_COLOURS["promise broken"])
    )
    return alt.layer(ticks, marks, labels) if FINDINGS in lanes else ticks


def _commands_chart(rows: Rows, axis: str) -> Chart:
    """Draw each command from its arrival to its completion; time 0 is the power cut."""
    names = in_order(rows, "command")
    states = [name for name in CRASH_COLOURS if any(row["state"] == name for row in rows)]
    begins = sorted(row["begin"] for row in rows)
    typical = min(begins[len(begins) * 3 // 4], -1e-3)
    # If a missing write arrived long before the other commands, a logarithmic axis keeps all of them visible.
    is_logarithmic = begins[0] < _FAR_APART * typical
    scale = alt.Scale(type="symlog", constant=-typical) if is_logarithmic else alt.Scale(zero=True)
    base = bare_chart(rows, 18 * len(names))
    bars = base.mark_bar(height=9, strokeWidth=2).encode(
        x=alt.X("begin:Q", title=axis, scale=scale, axis=alt.Axis(labelExpr="format(0 - datum.value, '~r')")),
        x2="end:Q",
        y=alt.Y("command:N", title=None, sort=names, axis=alt.Axis(labelLimit=_LABEL_PX)),
        color=_colours(states, "state"),
        stroke=_colours(states, "state"),
        tooltip=tooltip(rows),
    )
    cut = base.transform_aggregate(count="count()").mark_rule(strokeWidth=2, strokeDash=[4, 3])
    return bars + cut.encode(x=alt.datum(0), color=alt.value(CRASH_COLOURS["missing"]))


def _colours(names: list[str], field: str, *, legend: bool = True) -> Any:
    shades = [CRASH_COLOURS[name] for name in names]
    legend_options = alt.Legend(columns=3, title=None) if legend else None
    return alt.Color(f"{field}:N", scale=alt.Scale(domain=names, range=shades), legend=legend_options)
