"""`emmclab report STUDY`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emmclab.cli.console import say
from emmclab.cli.studies import RESULTS, ResultsFolder, StudyName


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: [cyan]emmclab report iiswc15 --html page.html[/]")(report)


def report(
    study: StudyName,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Output file: the page.")] = None,
    figures: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write each figure as SVG and PDF, and its data as CSV."),
    ] = None,
    results: ResultsFolder = RESULTS,
) -> None:
    """Write the page of a finished study, without running anything."""
    from emmclab.papers import studies
    from emmclab.study import Results, Study

    name = Study.named(study).name
    found = Results.load(results / name)
    page = html or Path(f"{name}.html")
    if name in studies():
        from emmclab.claims import judge_study
        from emmclab.papers.pages import write_page

        count = write_page(found, judge_study(found), page, figures)
    else:
        from emmclab.plots import write_figures
        from emmclab.report import write_report

        profiles = list(found.profiles.values())
        write_report(profiles, page)
        count = write_figures(profiles, figures) if figures is not None else 0
    if figures is not None:
        say(f"figures: {count} in {figures}")
    say(f"report: {page}")
