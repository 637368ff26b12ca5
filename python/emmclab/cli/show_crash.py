"""Prints the results of an exploration of power cuts."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from emmclab.cli.tables import print_line
from emmclab.crash.explore import Exploration, Options
from emmclab.crash.json_types import MinimalState
from emmclab.crash.promises import COMMANDS
from emmclab.crash.stored_log import StoredLog
from emmclab.crash.summary import (
    ALPHA,
    BROKEN,
    KEPT,
    Difference,
    ExploredRecording,
    Kind,
    Verdict,
    after_syncs,
    kinds,
    pauses_of,
    verdict,
    worst,
)
from emmclab.crash.verdict_inputs import command_of

#: Colours of verdicts; the others are yellow.
_STYLES = {BROKEN: "red", KEPT: "green"}


#: Maximum number of kinds of findings that are listed.
_MOST_LISTED = 20


def show_crash(
    console: Console, tried: Sequence[ExploredRecording], options: Options, results: Path | None = None
) -> None:
    """Print verdict and controls, the coverage, and the findings from the lowest level up.

    `results` is the folder of the results, for the shown commands; `None` for the default one.
    """
    broken = kinds(tried)
    if len(tried) == 1:
        _show_tried_finding(console, tried[0], options)
    else:
        _show_several(console, tried, options)
    for kind in broken[:_MOST_LISTED]:
        _show_finding(console, kind, options, results, of=len(tried))
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


def show_against(console: Console, differs: Difference) -> None:
    """Print which of two runs loses data at more cuts, and whether that is chance."""
    (one, other), (first, second) = differs.losing, differs.cuts
    print_line(
        console,
        f"the first run lost data at {one:,} of {first:,} cuts, the second at {other:,} of {second:,}: "
        f"p = {differs.p:.2g} (Fisher's exact test)",
    )
    if differs.p >= ALPHA:
        print_line(console, "This difference may be chance." if one or other else "Neither lost data.")
    if differs.enough is not None:
        print_line(console, f"{differs.enough:,} cuts of each run show a difference of these shares (p < {ALPHA:g}).")


def _show_tried_finding(console: Console, tried: ExploredRecording, options: Options) -> None:
    kept, found = tried.log, tried.exploration
    covered, outcome = found.covered, verdict(kept, options, found)
    print_line(console, f"{_device(kept)}: {outcome.text}", _STYLES.get(outcome.word, "yellow"))
    _show_controls(console, found, outcome)
    rate = found.states / found.took_s if found.took_s else 0.0
    print_line(
        console,
        f"{found.states:,} states were tried ({rate:,.0f} per second), after power cuts at {covered['cuts']:,} of "
        f"{covered['moments']:,} possible times; {covered['equal']:,} equal states were skipped{_pruned(found)}. A "
        f"device that keeps its promises may leave up to 10^{covered['legal_log10']:.1f} states at these cuts.",
    )
    _show_after_syncs(console, tried, options)
    _show_reused(console, tried, options)


def _show_controls(console: Console, found: Exploration, outcome: Verdict) -> None:
    if found.controls is not None:
        print_line(console, found.controls.sentence())
    for doubt in outcome.doubts if found.findings() else ():
        print_line(console, f"caution: {doubt}", "yellow")


def _show_limits(console: Console, kept: StoredLog, options: Options) -> None:
    if options.check is None:
        print_line(
            console,
            "Only a check can tell whether acknowledged data is still there: --check sqlite, files, "
            "append-log, or a command.",
            "yellow",
        )
    if kept.made.get("workload"):
        print_line(
            console,
            "This is one recording, with one timing: --repeat 5 makes five, with other think times of the workload.",
        )


def _pruned(found: Exploration) -> str:
    return f", {found.pruned:,} pruned, {found.states - found.pruned:,} mounted" if found.pruned else ""


def _show_several(console: Console, tried: Sequence[ExploredRecording], options: Options) -> None:
    broken = kinds(tried)
    levels = ", ".join(dict.fromkeys(kind.first.level for kind in broken))
    outcome, count = worst(tried, options)
    text = f"promises were broken by: {levels}," if broken else outcome.text
    of = f" of {len(tried)}" if count < len(tried) or broken else ""
    said = f"{_device(tried[0].log)}: {text} in {count}{of} recordings"
    print_line(console, said, _STYLES.get(outcome.word, "yellow"))
    for one in tried:
        covered = one.exploration.covered
        print_line(
            console,
            f"  {one.log.short}: {one.exploration.states:,} states tried, after power cuts at {covered['cuts']:,} of "
            f"{covered['moments']:,} possible times; the workload paused {pauses_of(one.log):,} times; "
            f"{len(one.exploration.findings()):,} findings",
        )
        _show_after_syncs(console, one, options)
        _show_controls(console, one.exploration, verdict(one.log, options, one.exploration))
        _show_reused(console, one, options)


def _device(kept: StoredLog) -> str:
    lies = kept.facts["lies"]
    liar = "" if lies == "none" else f", which breaks a promise on purpose ({lies})"
    layers = kept.facts["layers"]
    below = f" below {', '.join(layers)}" if layers else ""
    return f"{kept.facts['device']}{below}{liar}"


def _show_after_syncs(console: Console, tried: ExploredRecording, options: Options) -> None:
    if (cut := after_syncs(tried.exploration, options)) is not None:
        print_line(console, f"{cut}.")


def _show_reused(console: Console, tried: ExploredRecording, options: Options) -> None:
    if tried.exploration.reused:
        said = (
            f"{tried.exploration.reused:,} of these states were judged by an earlier run with the same log, "
            f"base, check, tools and kernel, and are taken from {tried.log.folder}; --fresh judges all anew"
        )
        is_command = command_of(options.check) is not None
        warning = ". Whether the files of the check have changed since is not known" if is_command else ""
        print_line(console, f"{said}{warning}", "yellow" if is_command else "")


def _show_finding(console: Console, kind: Kind, options: Options, results: Path | None, *, of: int = 1) -> None:
    one = kind.first
    where = f" of {kind.recordings} of {of} recordings" if of > 1 else ""
    print_line(console, f"{one.level}: {one.promise}: {one.detail}", "bold")
    if one.way == COMMANDS:
        print_line(console, f"  {kind.count:,} commands{where}; the first is at cut {one.cut}")
        return
    again = kind.kept.name_of(options, one.cut, one.state)
    place = "" if results is None else f" --results {shlex.quote(str(results))}"
    print_line(console, f"  {kind.count:,} states{where}; the first: emmclab crash --again {again}{place}")
    if kind.minimal is not None:
        print_line(console, f"  {_smallest(kind.minimal)}")
        if kind.minimal["program"]:
            print_line(console, f"  fewest operations that show it: {'; '.join(kind.minimal['program'])}")


def _smallest(small: MinimalState) -> str:
    """Print the smallest state that shows a finding."""
    place = f"smallest: cut {small['cut']}"
    if not small["missing"]:
        return place
    for word, garbled in (("without", False), ("with garbage for", True)):
        named = [one for one in small["missing"] if one["garbled"] == garbled]
        writes = [f"command {one['command']} ({one['sectors']} sectors from {one['sector']} on)" for one in named]
        more = f" and {len(writes) - 3} more" if len(writes) > 3 else ""
        place += f", {word} {', '.join(writes[:3])}{more}" if writes else ""
    return f"{place}; everything else sent by then is there"
