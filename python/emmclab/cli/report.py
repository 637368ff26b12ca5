"""`emmclab report STUDY`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from emmclab.cli.command import command
from emmclab.cli.console import in_a_folder, print_json, print_stderr
from emmclab.cli.options import AsJson, Figures, Reading, option
from emmclab.cli.study_options import RESULTS, StudyName, incomplete, warn_of_changes
from emmclab.errors import InputError
from emmclab.runtime.files import write_atomically

if TYPE_CHECKING:
    from emmclab.studies import Results, Study


@command("emmclab report my-study.toml --html page.html --figures figures")
def report(
    *,
    study: StudyName,
    html: Annotated[Path | None, option("Output file for the page.", callback=in_a_folder)] = None,
    figures: Figures = None,
    results: Annotated[
        Path, option("Results folder, or the file of `emmclab collect`, which ends in .parquet.", metavar="DIR|FILE")
    ] = RESULTS,
    reading: Reading,
    as_json: AsJson = False,
) -> None:
    """Write the page of a finished study, without running simulations.

    With --json, print the contents of the page: the answer, and claims, verdicts or rankings with figures.
    """
    from emmclab.papers.registry import studies
    from emmclab.studies import Results, Study
    from emmclab.studies.summary import summed

    chosen = Study.named(study).with_reading(reading.changed_options())
    is_of_paper = chosen.name in studies()
    of_run = None if is_of_paper else summed
    if results.suffix == ".parquet":
        from emmclab.studies.run import collected

        stored = collected(results, of_run=of_run)
    else:
        stored = Results.load(results / chosen.name, of_run=of_run)
    if stored.missing:
        print_stderr(incomplete(stored.missing, stored.about["cells"]))
    _refuse_others(chosen, stored, study, has_options=bool(reading.changed_options()))
    warn_of_changes(results if results.suffix == ".parquet" else results / chosen.name, study)
    page = html or Path(f"{chosen.name}.html")
    contents: dict[str, object] = {"digest": stored.digest}
    if is_of_paper:
        from emmclab.papers.pages import write_judged_page

        judged = write_judged_page(stored, page, figures)
        count = judged.figures
        contents |= {"claims": [claim.to_dict() for claim in judged.claims]}
    elif stored.cuts:
        from emmclab.pages.power_cut_study import render
        from emmclab.studies.verdicts import cut_verdicts

        write_atomically(page, render(stored, study))
        contents |= cut_verdicts(stored)
        count = 0
    elif not stored.runs and not stored.failures:
        from emmclab.pages.chart_files import write_figures
        from emmclab.pages.profiles import write_report

        profiles = stored.inputs_once()
        write_report(profiles, page)
        contents |= {"inputs": len(profiles)}
        count = write_figures(profiles, figures) if figures is not None else 0
    else:
        from emmclab.pages import study as pages
        from emmclab.pages.chart_files import write_charts
        from emmclab.studies.summary import overload_note, overloaded, summaries
        from emmclab.studies.verdicts import rankings

        run_summaries = summaries(stored)
        if note := overload_note(run_summaries):
            print_stderr(f"warning: {note}")
        answer = pages.headline(stored, run_summaries)
        contents |= {
            "overloaded": [
                {"input": point.input, "setting": dict(point.setting), "runs": point.overloaded}
                for point in overloaded(run_summaries)
            ],
            "answer": answer,
            "rankings": rankings(stored),
            "failed": len(stored.failures),
        }
        write_atomically(page, pages.render(stored, study))
        drawings = pages.figures(stored) if figures is not None else []
        charts = ((figure.name, figure.draw(rows), rows) for figure, rows in drawings)
        count = write_charts(charts, figures) if figures is not None else 0
    if figures is not None:
        print_stderr(f"figures: {count} in {figures}")
    print_stderr(f"report: {page}")
    if as_json:
        print_json({"report": str(page.resolve()), "missing": stored.missing, **contents})


def _refuse_others(chosen: "Study", results: "Results", study: str, *, has_options: bool) -> None:
    """Reject results from another version of the study, or computed with other options for reading traces."""
    about = results.about
    changed = about.get("definition") != chosen.definition
    if changed or (has_options and about.get("reading", {}) != dict(chosen.reading)):
        description = f"of another version of {study}" if changed else "of inputs that were read with other options"
        raise InputError(
            f"the results of {chosen.name} are {description}",
            file=study,
            hint=f"run the study again with the same options: `emmclab run {study}`",
        )
