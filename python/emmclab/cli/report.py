"""`emmclab report STUDY`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from emmclab.cli.command import command
from emmclab.cli.console import print_json, print_stderr
from emmclab.cli.declared_options import option
from emmclab.cli.options import AsJson, Figures, Reading
from emmclab.cli.output_files import in_a_folder
from emmclab.cli.study_options import RESULTS, StudyName, incomplete, warn_of_changes
from emmclab.errors import InputError
from emmclab.runtime.files import write_atomically

if TYPE_CHECKING:
    from emmclab.studies import Results, Study


@command("emmclab report my-study.toml --html page.html --figures figures")
def report(
    *,
    study: StudyName,
    html: Annotated[Path | None, option("Output file: the page.", callback=in_a_folder)] = None,
    figures: Figures = None,
    results: Annotated[
        Path, option("Results folder, or the file of `emmclab collect`, which ends in .parquet.", metavar="DIR|FILE")
    ] = RESULTS,
    reading: Reading,
    as_json: AsJson = False,
) -> None:
    """Write the page of a finished study, without running anything.

    With --json, print the contents of the page: the answer, and claims, verdicts or rankings with figures.
    """
    from emmclab.papers.registry import studies
    from emmclab.studies import Results, Study
    from emmclab.studies.summary import summed

    chosen = Study.named(study).with_reading(reading.changed_options())
    is_ours = chosen.name in studies()
    of_run = None if is_ours else summed
    if results.suffix == ".parquet":
        from emmclab.studies.run import collected

        found = collected(results, of_run=of_run)
    else:
        found = Results.load(results / chosen.name, of_run=of_run)
    if found.missing:
        print_stderr(incomplete(found.missing, found.about["cells"]))
    _refuse_others(chosen, found, study, given=bool(reading.changed_options()))
    warn_of_changes(results if results.suffix == ".parquet" else results / chosen.name, study)
    page = html or Path(f"{chosen.name}.html")
    told: dict[str, object] = {"digest": found.digest}
    if is_ours:
        from emmclab.papers.pages import write_judged_page

        judged = write_judged_page(found, page, figures)
        count = judged.figures
        told |= {"claims": [claim.to_dict() for claim in judged.claims]}
    elif found.cuts:
        from emmclab.pages.power_cut_study import render
        from emmclab.studies.verdicts import cut_verdicts

        write_atomically(page, render(found, study))
        told |= cut_verdicts(found)
        count = 0
    elif not found.runs and not found.failures:
        from emmclab.pages.chart_files import write_figures
        from emmclab.pages.profiles import write_report

        profiles = found.inputs_once()
        write_report(profiles, page)
        told |= {"inputs": len(profiles)}
        count = write_figures(profiles, figures) if figures is not None else 0
    else:
        from emmclab.pages import study as pages
        from emmclab.pages.chart_files import write_charts
        from emmclab.studies.summary import overload_note, overloaded, summaries
        from emmclab.studies.verdicts import rankings

        summed_up = summaries(found)
        if note := overload_note(summed_up):
            print_stderr(f"warning: {note}")
        answer = pages.headline(found, summed_up)
        told |= {
            "overloaded": [
                {"input": point.input, "setting": dict(point.setting), "runs": point.overloaded}
                for point in overloaded(summed_up)
            ],
            "answer": answer,
            "rankings": rankings(found),
            "failed": len(found.failures),
        }
        write_atomically(page, pages.render(found, study))
        drawn = pages.figures(found) if figures is not None else []
        charts = ((figure.name, figure.draw(rows), rows) for figure, rows in drawn)
        count = write_charts(charts, figures) if figures is not None else 0
    if figures is not None:
        print_stderr(f"figures: {count} in {figures}")
    print_stderr(f"report: {page}")
    if as_json:
        print_json({"report": str(page.resolve()), "missing": found.missing, **told})


def _refuse_others(chosen: "Study", found: "Results", study: str, *, given: bool) -> None:
    """Reject results of another version of the study, or of inputs that were read with other options."""
    about = found.about
    changed = about.get("definition") != chosen.definition
    if changed or (given and about.get("reading", {}) != dict(chosen.reading)):
        what = f"of another version of {study}" if changed else "of inputs that were read with other options"
        raise InputError(
            f"the results of {chosen.name} are {what}",
            file=study,
            hint=f"run it again with the same options: `emmclab run {study}`",
        )
