"""Prints the results of simulated power cuts."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from emmclab.cli.tables import print_line
from emmclab.crash.explore import Exploration, Options
from emmclab.crash.json_types import BatchesSummary, MinimalState
from emmclab.crash.promises import COMMANDS
from emmclab.crash.stored_log import StoredLog
from emmclab.crash.summary import (
    ALPHA,
    BROKEN,
    KEPT,
    POWER,
    ExploredRecording,
    Kind,
    LossDifference,
    Verdict,
    after_syncs,
    kinds,
    pauses_of,
    recordings_that_may_differ,
    stopped,
    verdict,
    worst,
)
from emmclab.crash.verdict_inputs import command_of

#: Colours of power-cut verdicts on the terminal; all other verdicts are yellow.
_STYLES = {BROKEN: "red", KEPT: "green"}


#: Maximum number of kinds of findings that are listed.
_MOST_LISTED = 20
#: Maximum number of paths that are listed with a finding.
_MOST_PATHS = 6


def show_crash(
    console: Console, tried: Sequence[ExploredRecording], options: Options, results: Path | None = None
) -> None:
    """Print the verdict, the controls, the coverage, and the findings, starting with the device level.

    `results` is the results folder, which the printed commands contain; `None` means the default folder.
    """
    broken = kinds(tried)
    if len(tried) == 1:
        _show_single(console, tried[0], options)
    else:
        _show_several(console, tried, options)
    for kind in broken[:_MOST_LISTED]:
        _show_finding(console, kind, options, results, recordings=len(tried))
    if (more := len(broken) - _MOST_LISTED) > 0:
        print_line(console, f"{more:,} more kinds of findings are in the output of --json")
    for kind in kinds(tried, documented=True):
        print_line(
            console,
            f"documented, no defect: {kind.first.detail} ({kind.count:,} states): {kind.first.documented}",
            "yellow",
        )
    if not broken and len(tried) == 1:
        _show_limits(console, tried[0].log, options)


def show_against(console: Console, differs: LossDifference) -> None:
    """Print which of two runs loses data at more power cuts, and whether the difference may be chance."""
    losing, cuts = differs.losing, differs.cuts
    if differs.unit == "cuts":
        test = "Fisher's exact test over these cuts"
    else:
        test = f"test of Mann and Whitney over {differs.recordings[0]:,} and {differs.recordings[1]:,} recordings"
    print_line(
        console,
        f"the first run lost data at {losing[0]:,} of {cuts[0]:,} cuts, the second at {losing[1]:,} of {cuts[1]:,}: "
        f"p = {differs.p:.2g} ({test})",
    )
    if differs.p >= ALPHA:
        print_line(console, "This difference may be chance." if any(losing) else "Neither lost data.")
    if differs.enough is not None:
        shown = f"{differs.enough:,} {differs.unit} of each run show a difference of this size"
        print_line(console, f"{shown} with a probability of at least {100 * POWER:g} % (p < {ALPHA:g}).")
    if differs.unit == "cuts" and any(losing):
        repeat = f"--repeat {recordings_that_may_differ()}"
        print_line(
            console, f"Cuts of one recording are not independent: use {repeat} to compare recordings of other timings."
        )


def _show_single(console: Console, tried: ExploredRecording, options: Options) -> None:
    stored, tested = tried.log, tried.exploration
    covered, outcome = tested.covered, verdict(stored, options, tested)
    print_line(console, f"{_device(stored, options)}: {outcome.text}", _STYLES.get(outcome.word, "yellow"))
    _show_controls(console, tested, outcome)
    rate = tested.states / tested.took_s if tested.took_s else 0.0
    pruned = f", {tested.pruned:,} pruned, {tested.states - tested.pruned:,} mounted" if tested.pruned else ""
    may = "A device that keeps its promises may leave" if options.model is None else "The model permits"
    print_line(
        console,
        f"{tested.states:,} states were tried ({rate:,.0f} per second), after power cuts at {covered['cuts']:,} of "
        f"{covered['moments']:,} possible times; {covered['equal']:,} equal states were skipped{pruned}. "
        f"{may} up to 10^{covered['legal_log10']:.1f} states at these cuts.",
    )
    _show_coverage(console, tried, options)
    _show_reused(console, tried, options)


def _show_controls(console: Console, exploration: Exploration, outcome: Verdict) -> None:
    if exploration.controls is not None:
        print_line(console, exploration.controls.sentence())
    for doubt in outcome.doubts if exploration.findings() else ():
        print_line(console, f"caution: {doubt}", "yellow")


def _show_limits(console: Console, stored: StoredLog, options: Options) -> None:
    if options.check is None:
        print_line(
            console,
            "Without a check, loss of acknowledged data is not detected: use --check sqlite, files, append-log, or "
            "a command.",
            "yellow",
        )
    if stored.made.get("workload") and options.model is None:
        print_line(
            console,
            "This is one recording, with one timing: --repeat 5 records the workload five times, with other pauses.",
        )


def _show_several(console: Console, tried: Sequence[ExploredRecording], options: Options) -> None:
    broken = kinds(tried)
    levels = ", ".join(dict.fromkeys(kind.first.level for kind in broken))
    outcome, count = worst(tried, options)
    text = f"promises were broken by: {levels}," if broken else outcome.text
    among = f" of {len(tried)}" if count < len(tried) or broken else ""
    line = f"{_device(tried[0].log, options)}: {text} in {count}{among} recordings"
    print_line(console, line, _STYLES.get(outcome.word, "yellow"))
    for row in tried:
        covered = row.exploration.covered
        print_line(
            console,
            f"  {row.log.short}: {row.exploration.states:,} states tried, after power cuts at {covered['cuts']:,} of "
            f"{covered['moments']:,} possible times; {_variation(row.log)}; "
            f"{len(row.exploration.findings()):,} findings",
        )
        _show_coverage(console, row, options)
        if "fault" not in row.log.made:
            _show_controls(console, row.exploration, verdict(row.log, options, row.exploration))
        _show_reused(console, row, options)


def _variation(log: StoredLog) -> str:
    """Return in what a recording differs from others of the same workload."""
    if "device" not in log.made:
        return log.made.get("fault", "no fault")
    return f"the workload paused {pauses_of(log):,} times"


def _device(stored: StoredLog, options: Options) -> str:
    if options.model is not None:
        return f"files, by the model {options.model}"
    lies = stored.facts.lies
    liar = "" if lies == "none" else f", which breaks a promise on purpose ({lies})"
    layers = stored.facts.layers
    layer_text = f" below {', '.join(layers)}" if layers else ""
    return f"{stored.facts.device}{layer_text}{liar}"


def _show_coverage(console: Console, tried: ExploredRecording, options: Options) -> None:
    for text in (stopped(tried.log, options, tried.exploration), after_syncs(tried.log, options, tried.exploration)):
        if text is not None:
            print_line(console, f"{text}.")


def _show_reused(console: Console, tried: ExploredRecording, options: Options) -> None:
    if tried.exploration.reused:
        line = (
            f"{tried.exploration.reused:,} of these states were checked by an earlier run with the same log, "
            f"base, check, tools and kernel, and are read from {tried.log.folder}; --fresh checks all again"
        )
        is_command = command_of(options.check) is not None
        warning = ". The files of the check may have changed since then" if is_command else ""
        print_line(console, f"{line}{warning}", "yellow" if is_command else "")


def _show_finding(console: Console, kind: Kind, options: Options, results: Path | None, *, recordings: int) -> None:
    finding = kind.first
    where = f" in {kind.recordings} of {recordings} recordings" if recordings > 1 else ""
    where += f" ({kind.kept.made['fault']})" if "fault" in kind.kept.made else ""
    print_line(console, f"{finding.level}: {finding.promise}: {finding.detail}", "bold")
    if finding.way == COMMANDS:
        print_line(console, f"  {kind.count:,} commands{where}; the first is at cut {finding.cut}")
        return
    argument = kind.kept.name_of(options, finding.cut, finding.state)
    results_option = "" if results is None else f" --results {shlex.quote(str(results))}"
    print_line(console, f"  {kind.count:,} states{where}; the first: emmclab crash --again {argument}{results_option}")
    for path, expected, found in finding.differs[:_MOST_PATHS]:
        print_line(console, f"  {path}: expected {expected}; found {found}")
    if (more := len(finding.differs) - _MOST_PATHS) > 0:
        print_line(console, f"  {more:,} more paths differ")


def show_batches(console: Console, covered: BatchesSummary) -> None:
    """Print what was covered of a workload that is explored in batches."""
    done, total = covered["batches"], covered["batches_in_all"]
    print_line(
        console,
        f"{covered['workload']}: {done:,} of {total:,} batches were explored: {covered['programs']:,} programs with a "
        f"sync, {covered['cut_after_last_sync']:,} of them cut after their last one, {covered['cuts']:,} cuts, "
        f"{covered['states']:,} states" + ("" if done == total else "; the same command continues"),
    )
    for doubt in covered["doubts"]:
        print_line(console, f"caution: {doubt}", "yellow")


def show_smallest(console: Console, tried: Sequence[ExploredRecording]) -> None:
    """Print the smallest crash state and the fewest operations that show each minimised finding."""
    for kind in kinds(tried):
        if kind.minimal is None:
            continue
        print_line(console, f"{kind.first.level}: {kind.first.promise}: {_smallest(kind.minimal)}")
        for number, program in enumerate(kind.minimal["earlier"] or (), 1):
            print_line(console, f"  needs this earlier program {number}: {'; '.join(program)}")
        if kind.minimal["program"]:
            print_line(console, f"  fewest operations that show it: {'; '.join(kind.minimal['program'])}")


def _smallest(state: MinimalState) -> str:
    """Return a text that describes the smallest crash state that shows a finding."""
    text = f"smallest: cut {state['cut']}"
    if not state["missing"]:
        return text
    for word, garbled in (("without", False), ("with garbage for", True)):
        missing = [command for command in state["missing"] if command["garbled"] == garbled]
        writes = [
            command.get("what")
            or f"command {command['command']} ({command['sectors']} sectors from {command['sector']} on"
            f"{': ' * ('meaning' in command)}{command.get('meaning', '')})"
            for command in missing
        ]
        more = f" and {len(writes) - 3} more" if len(writes) > 3 else ""
        text += f", {word} {', '.join(writes[:3])}{more}" if writes else ""
    rest = (
        "operations before the cut are on the disk"
        if "what" in state["missing"][0]
        else "commands sent before the cut are complete"
    )
    return f"{text}; all other {rest}"
