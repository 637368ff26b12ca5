"""`emmclab profile TRACE...`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from emmclab.cli.console import print_json, say, stdout
from emmclab.cli.meter import Meter
from emmclab.cli.options import AsJson, Reading, TraceFiles, with_groups
from emmclab.profile import Profile
from emmclab.trace import Trace, combine


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples: [cyan]emmclab profile trace.txt --html report.html[/]   "
        "[cyan]emmclab profile a.csv.gz b.csv.gz --compare[/]"
    )(with_groups(profile))


def profile(
    *,
    traces: TraceFiles,
    as_json: AsJson = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the report page: one file that needs no network."),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write each figure as SVG, and its data as CSV.")
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Print the comparison only.")] = False,
    together: Annotated[
        bool, typer.Option("--combine", help="Interleave the traces on one clock and profile them as one.")
    ] = False,
    reading: Reading,
) -> None:
    """Characterise traces: Tables III and IV, distributions, findings."""
    sources = distinct([reading.open(path) for path in traces])
    if together:
        sources = [combine(sources)]
    profiles = [run(source) for source in sources]
    for found in profiles:
        reading.note_changed(found.name, found["ledger"])
    if as_json:
        print_json([found.to_dict() for found in profiles])
    else:
        # Tables take long to import, which programs that want JSON do not wait for.
        from emmclab.cli.show import show_compared, show_each

        (show_compared if compare else show_each)(stdout(), profiles)
    if html is not None:
        from emmclab.report import write_report

        write_report(profiles, html)
        say(f"report: {html}")
    if figures is not None:
        from emmclab.plots import write_figures

        count = write_figures(profiles, figures)
        say(f"figures: {count} in {figures}")


def run(source: Trace) -> Profile:
    """Profile a trace under a progress meter."""
    with Meter(f"profile {source.name}") as meter:
        return source.profile(meter)


def distinct(sources: list[Trace]) -> list[Trace]:
    """Number the traces whose files have the same name, so that every row can be told apart."""
    seen: Counter[str] = Counter()
    for source in sources:
        seen[source.name] += 1
        if seen[source.name] > 1:
            source.name = f"{source.name} ({seen[source.name]})"
    return sources
