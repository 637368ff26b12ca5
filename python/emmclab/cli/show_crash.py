"""Prints the results of an exploration of power cuts."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from emmclab.crash.against import ALPHA, Difference
from emmclab.crash.explore import Exploration, Options
from emmclab.crash.finding import COMMANDS, Finding
from emmclab.crash.minimal import Minimal
from emmclab.crash.repeated import Kind, Tried, findings_of, kinds, pauses_of
from emmclab.crash.session import Kept
from emmclab.crash.summary import after_syncs, verdict


def show_crash(console: Console, tried: Sequence[Tried], options: Options) -> None:
    """Print the verdict, the coverage, and the findings from the lowest level up."""
    if len(tried) == 1:
        _show_one(console, tried[0], options)
    else:
        _show_several(console, tried, options)


def show_against(console: Console, differs: Difference) -> None:
    """Print which of two runs loses data at more cuts, and whether that is chance."""
    (one, other), (first, second) = differs.losing, differs.cuts
    _put(
        console,
        f"the first run lost data at {one:,} of {first:,} cuts, the second at {other:,} of {second:,}: "
        f"p = {differs.p:.2g} (Fisher's exact test)",
    )
    if differs.p >= ALPHA:
        _put(console, "This difference may be chance." if one or other else "Neither lost data.")
    if differs.enough is not None:
        _put(
            console, f"{differs.enough:,} cuts of each run show a difference of these shares (p < {ALPHA:g})."
        )


def _put(console: Console, line: str, style: str | None = None) -> None:
    console.print(line, markup=False, soft_wrap=True, style=style)


def _show_one(console: Console, tried: Tried, options: Options) -> None:
    kept, found = tried.kept, tried.found
    covered, findings = found.covered, found.findings()
    _put(console, f"{_device(kept)}: {verdict(found, options.check)}", "red" if findings else "green")
    rate = found.states / found.took_s if found.took_s else 0.0
    _put(
        console,
        f"{found.states:,} states were tried ({rate:,.0f} per second), after power cuts at "
        f"{covered['cuts']:,} of {covered['moments']:,} possible times; "
        f"{covered['equal']:,} equal states were skipped{_pruned(found)}. A device that keeps its promises "
        f"may leave up to 10^{covered['legal_log10']:.1f} states at these cuts.",
    )
    _show_after_syncs(console, tried, options)
    _show_reused(console, tried)
    for number, one in enumerate(findings):
        _show_finding(console, Kind(one, kept, tried.minimal.get(number), 1, one.count), options)
    for one in found.findings(documented=True):
        _show_documented(console, one, one.count)
    _show_unchecked(console, found, options)
    if not findings and kept.made.get("workload"):
        _put(
            console,
            "This is one recording, with one timing: --repeat 5 makes five, with other think times of the "
            "workload.",
        )


def _show_unchecked(console: Console, found: Exploration, options: Options) -> None:
    if not found.findings() and options.check is None:
        _put(
            console,
            "Only a check can tell whether acknowledged data is still there: --check sqlite, files, "
            "append-log, or a command.",
            "yellow",
        )


def _pruned(found: Exploration) -> str:
    return f", {found.pruned:,} pruned, {found.states - found.pruned:,} mounted" if found.pruned else ""


def _show_several(console: Console, tried: Sequence[Tried], options: Options) -> None:
    broken = kinds(tried)
    levels = ", ".join(dict.fromkeys(kind.first.level for kind in broken))
    said = f"promises were broken by: {levels}, in {findings_of(tried)} of {len(tried)} recordings"
    answer = said if broken else f"{verdict(tried[0].found, options.check)} in {len(tried)} recordings"
    _put(console, f"{_device(tried[0].kept)}: {answer}", "red" if broken else "green")
    for one in tried:
        covered = one.found.covered
        _put(
            console,
            f"  {one.kept.short}: {one.found.states:,} states tried, after power cuts at "
            f"{covered['cuts']:,} of {covered['moments']:,} possible times; "
            f"the workload paused {pauses_of(one.kept):,} times; "
            f"{len(one.found.findings()):,} findings",
        )
        _show_after_syncs(console, one, options)
        _show_reused(console, one)
    for kind in broken:
        _show_finding(console, kind, options, of=len(tried))
    for kind in kinds(tried, documented=True):
        _show_documented(console, kind.first, kind.count)


def _device(kept: Kept) -> str:
    lies = kept.facts["lies"]
    liar = "" if lies == "none" else f", which breaks a promise on purpose ({lies})"
    layers = kept.facts["layers"]
    below = f" below {', '.join(layers)}" if layers else ""
    return f"{kept.facts['device']}{below}{liar}"


def _show_after_syncs(console: Console, tried: Tried, options: Options) -> None:
    if (cut := after_syncs(tried.found, options)) is not None:
        _put(console, f"{cut}.")


def _show_reused(console: Console, tried: Tried) -> None:
    if tried.found.reused:
        _put(
            console,
            f"{tried.found.reused:,} of these states were judged by an earlier run with the same log, base, "
            f"check, tools and kernel, and are taken from {tried.kept.folder}; --fresh judges all anew",
        )


def _show_finding(console: Console, kind: Kind, options: Options, *, of: int = 1) -> None:
    one = kind.first
    where = f" of {kind.recordings} of {of} recordings" if of > 1 else ""
    _put(console, f"{one.level}: {one.promise}: {one.detail}", "bold")
    if one.way == COMMANDS:
        _put(console, f"  {kind.count:,} commands{where}; the first is at cut {one.cut}")
        return
    again = kind.kept.name_of(options, one.cut, one.state)
    _put(console, f"  {kind.count:,} states{where}; the first: emmclab crash --again {again}")
    if kind.minimal is not None:
        _put(console, f"  {_smallest(kind.minimal)}")
        if kind.minimal.program:
            _put(console, f"  fewest operations that show it: {'; '.join(kind.minimal.program)}")


def _show_documented(console: Console, one: Finding, count: int) -> None:
    _put(console, f"documented, no defect: {one.detail} ({count:,} states): {one.documented}", "yellow")


def _smallest(small: Minimal) -> str:
    """Print the smallest state that shows a finding."""
    place = f"smallest: cut {small.cut}"
    if not small.missing:
        return place
    for word, garbled in (("without", False), ("with garbage for", True)):
        named = [one for one in small.missing if one.garbled == garbled]
        writes = [f"command {one.command} ({one.sectors} sectors from {one.sector} on)" for one in named]
        more = f" and {len(writes) - 3} more" if len(writes) > 3 else ""
        place += f", {word} {', '.join(writes[:3])}{more}" if writes else ""
    return f"{place}; everything else sent by then is there"
