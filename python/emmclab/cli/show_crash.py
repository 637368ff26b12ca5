"""Shows what came of an exploration of power cuts."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console

from emmclab.crash.explore import Exploration, Options
from emmclab.crash.finding import COMMANDS
from emmclab.crash.minimal import Minimal
from emmclab.crash.session import Kept
from emmclab.crash.summary import verdict


def show_crash(
    console: Console, kept: Kept, options: Options, found: Exploration, minimal: Mapping[int, Minimal]
) -> None:
    """Print the verdict, what was tried, and the findings from below."""

    def put(line: str, style: str | None = None) -> None:
        console.print(line, markup=False, soft_wrap=True, style=style)

    covered, findings, lies = found.covered, found.findings(), kept.facts["lies"]
    liar = "" if lies == "none" else f", which breaks a promise on purpose ({lies})"
    put(f"{kept.facts['device']}{liar}: {verdict(found)}", "red" if findings else "green")
    rate = found.states / found.took_s if found.took_s else 0.0
    put(
        f"{found.states:,} states of {covered['cuts']:,} cuts tried ({rate:,.0f} a second); "
        f"{covered['moments']:,} moments, {covered['equal']:,} equal states left out; "
        f"the contract allows up to 10^{covered['legal_log10']:.1f} states at these cuts"
    )
    for number, one in enumerate(findings):
        put(f"{one.level}: {one.promise}: {one.detail}", "bold")
        if one.way == COMMANDS:
            put(f"  {one.count:,} commands; the first comes at moment {one.cut}")
            continue
        again = kept.name_of(options, one.cut, one.state)
        put(f"  {one.count:,} states; the first: emmclab crash --again {again}")
        if (small := minimal.get(number)) is not None:
            put(f"  {_smallest(small)}")
    for one in found.findings(documented=True):
        put(f"documented, no defect: {one.detail} ({one.count:,} states): {one.documented}", "yellow")


def _smallest(small: Minimal) -> str:
    """Say which state is the smallest that shows a finding."""
    place = f"smallest: cut {small.cut}"
    if not small.missing:
        return place
    for word, garbled in (("without", False), ("with garbage for", True)):
        named = [one for one in small.missing if one.garbled == garbled]
        writes = [f"command {one.command} ({one.sectors} sectors from {one.sector} on)" for one in named]
        more = f" and {len(writes) - 3} more" if len(writes) > 3 else ""
        place += f", {word} {', '.join(writes[:3])}{more}" if writes else ""
    return f"{place}; everything else sent by then is there"
