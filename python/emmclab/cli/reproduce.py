"""`emmclab reproduce PAPER`."""

from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.text import Text

from emmclab.cli.claims import show_claims, show_headline, show_settled
from emmclab.cli.command import command
from emmclab.cli.console import print_json, print_stderr, stdout
from emmclab.cli.declared_options import argument, option
from emmclab.cli.name_completion import paper_study_names
from emmclab.cli.options import AsJson, Figures, Reading
from emmclab.cli.output_files import in_a_folder
from emmclab.cli.study_options import (
    RESULTS,
    Fresh,
    Jobs,
    PaperTraces,
    ResultsFolder,
    TraceInputs,
    note_reading,
    recorded_traces,
    recordings_of,
    run_with_meter,
)
from emmclab.errors import ConfigError
from emmclab.papers.findings import NAME as FINDINGS


@command("emmclab reproduce iiswc15 --jobs 2 --html iiswc15.html")
def reproduce(
    *,
    paper: Annotated[
        str,
        argument(
            "PAPER",
            "A study of a paper (`emmclab papers`): `iiswc15`, `implications` (of the same, as "
            "experiments), `advil12`, `advil-live` (of the same, with programs on ext4; as root), "
            "`dsn17`, `dsn17-crash` (of the same, with power cut; as root), `fast12`, or `systor24` (on the "
            "traces of --traces). Or `findings`: results that no paper of the list has.",
            autocompletion=paper_study_names,
        ),
    ] = "iiswc15",
    jobs: Jobs = 0,
    fresh: Fresh = False,
    html: Annotated[Path | None, option("Output file: the page.", callback=in_a_folder)] = None,
    figures: Figures = None,
    traces: PaperTraces = None,
    trace: TraceInputs = [],  # noqa: B006
    results: ResultsFolder = RESULTS,
    reading: Reading,
    as_json: AsJson = False,
) -> None:
    """Run the whole study of a paper and write one page: each table, figure and claim beside the result.

    `emmclab run`, `emmclab report` and `emmclab claims` do the same in steps. The workloads of `iiswc15` and
    `implications` are made from published figures; with --traces the original traces take their place. `systor24` needs
    --traces. Options for reading only apply to recorded traces.
    """
    from emmclab.papers.pages import write_judged_page
    from emmclab.papers.registry import studies
    from emmclab.studies import Study

    if paper == FINDINGS:
        recordings_of(traces, [], reading)
        _findings(html, figures, results, jobs, recorded_traces(trace), reading, fresh=fresh, as_json=as_json)
        return
    study_of = studies()[_check_study(paper)]
    recorded = recorded_traces(trace)
    study = Study.named(paper)
    if traces is not None and study.traces is not None:
        study, traces = study.with_traces(str(traces)), None
    recordings = recordings_of(traces, [study_of], reading)
    if study.traces is None:
        note_reading(reading, recorded, recordings)
    study = study.with_inputs(recorded).with_reading(reading.changed_options())
    if recordings is not None:
        study = study.with_recordings(recordings)
    found = run_with_meter(study, results / study.name, jobs, fresh)
    html = html or Path(f"{paper}.html")
    told: dict[str, object] = {"digest": found.digest, "reading": found.about["reading"]}
    if recordings is not None:
        told["recordings"] = found.about["recordings"]
    judged, count = write_judged_page(found, html, figures)
    if as_json:
        claims = [claim.to_dict() for claim in judged]
        print_json({"report": str(html.resolve()), **told, "claims": claims})
        return
    console = stdout()
    if judged:
        show_claims(console, judged)
        show_settled(console, judged)
    if figures is not None:
        print_stderr(f"figures: {count} in {figures}")
    console.print(Text(f"Results: {found.digest} in {results / study.name}"), soft_wrap=True)
    console.print(Text(f"Report: {html.resolve()}"), soft_wrap=True)
    show_headline(console, judged)
    _name_the_rest(console, paper, len(judged))


def _findings(
    html: Path | None,
    figures: Path | None,
    results: Path,
    jobs: int,
    traces: list[str],
    reading: Reading,
    *,
    fresh: bool,
    as_json: bool,
) -> None:
    """Run the studies that the findings need, profile recorded traces, and write the page of the findings."""
    from emmclab.cli.profile import run
    from emmclab.papers.findings import findings_page
    from emmclab.papers.findings.findings import declared, studies
    from emmclab.papers.pages import write_drawings
    from emmclab.studies import Study
    from emmclab.traces.reading import read

    found = {name: run_with_meter(Study.named(name), results / name, jobs, fresh) for name in studies()}
    profiles = [run(read(path, **reading.changed_options())) for path in traces]
    answered = [(one, one.answer(found, profiles)) for one in declared()]
    html = html or Path(f"{FINDINGS}.html")
    findings_page.write_findings(answered, found, html)
    count = 0 if figures is None else write_drawings(findings_page.drawings(answered), figures)
    if as_json:
        print_json({"report": str(html.resolve()), "findings": findings_page.to_dict(answered)})
        return
    console = stdout()
    for one, answer in answered:
        console.print(Text(one.question, "bold"), soft_wrap=True)
        said = answer.answer if answer else "– needs recorded traces: --trace FILE"
        console.print(Text(said), soft_wrap=True)
        console.print(Text(f"{one.id}; {one.command}\n", "dim"), soft_wrap=True)
    if figures is not None:
        print_stderr(f"figures: {count} in {figures}")
    console.print(Text(f"Report: {html.resolve()}"), soft_wrap=True)


def _name_the_rest(console: Console, study: str, judged: int) -> None:
    """Print how many claims of the paper this study does not judge, and the command that lists them."""
    from emmclab.papers.claims import rules
    from emmclab.papers.registry import studies

    paper = studies()[study]
    if others := len(rules(paper)) - judged:
        text = f"{others} more claims of the paper are not of this study: emmclab claims --paper {paper.name}"
        console.print(text, markup=False, soft_wrap=True)


def _check_study(study: str) -> str:
    """Reject a name that is not a study of a paper."""
    from emmclab.papers.registry import papers, studies

    if study in studies():
        return study
    said = "has no study yet: its system is not implemented" if study in papers() else "is not a study of a paper"
    raise ConfigError(f"`{study}` {said}", field="PAPER", hint=f"choose one of: {', '.join(studies())}")
