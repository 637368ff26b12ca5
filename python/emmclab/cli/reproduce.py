"""`emmclab reproduce PAPER`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.text import Text

from emmclab.cli.claims import show_claims, show_headline, show_settled
from emmclab.cli.command import command
from emmclab.cli.console import in_a_folder, print_json, print_stderr, stdout
from emmclab.cli.name_completion import DEVICES, paper_study_names
from emmclab.cli.options import AsJson, Figures, Reading, argument, option
from emmclab.cli.progress import Counter
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
from emmclab.cli.tables import show_table
from emmclab.errors import ConfigError
from emmclab.papers.findings import NAME as FINDINGS


@command(
    "emmclab reproduce iiswc15 --jobs 2 --html iiswc15.html",
    "emmclab reproduce devices # how far is each device from a real one?",
)
def reproduce(
    *,
    paper: Annotated[
        str,
        argument(
            "PAPER",
            "A study of a paper (`emmclab papers`): `iiswc15`, `implications` (experiments on its five implications), "
            "`advil12`, `advil-live` (with programs on ext4; needs root), `dsn17`, `dsn17-crash` (with power cuts; "
            "needs root), `fast12`, `systor24` (on the traces of --traces), `wear19`, or `devices` (benchmarks of real "
            "devices). `findings` contains results that none of these papers has.",
            autocompletion=paper_study_names,
        ),
    ] = "iiswc15",
    jobs: Jobs = 0,
    fresh: Fresh = False,
    html: Annotated[Path | None, option("Output file for the page.", callback=in_a_folder)] = None,
    figures: Figures = None,
    traces: PaperTraces = None,
    trace: TraceInputs = [],  # noqa: B006
    results: ResultsFolder = RESULTS,
    reading: Reading,
    as_json: AsJson = False,
) -> None:
    """Run a study of a paper and write a page that compares each table, figure and claim with the result.

    `emmclab run`, `emmclab report` and `emmclab claims` do the same in steps. The workloads of `iiswc15` and
    `implications` are generated from published figures; with --traces the original traces replace them. `systor24`
    needs --traces. Options for reading apply only to recorded traces. `devices` stores no results.
    """
    from emmclab.papers.pages import write_judged_page
    from emmclab.papers.registry import studies
    from emmclab.studies import Study

    if paper == DEVICES:
        reading.refuse(DEVICES)
        unused = {"--traces": traces, "--trace": trace, "--results": results != RESULTS, "--fresh": fresh}
        for name in (name for name, value in unused.items() if value):
            raise ConfigError(f"{name} has no effect on {DEVICES}", field=name, hint="leave it out")
        _devices(html or Path(f"{DEVICES}.html"), figures, jobs, as_json=as_json)
        return
    if paper == FINDINGS:
        recordings_of(traces, [], reading)
        _findings(html, figures, results, jobs, recorded_traces(trace), reading, fresh=fresh, as_json=as_json)
        return
    study_of = studies()[_check_study(paper)]
    recorded = recorded_traces(trace)
    study = Study.named(paper)
    if traces is not None and study.traces is not None:
        study, traces = study.with_traces(str(traces)), None
        for file, lacking in study.traces.left_out().items() if study.traces is not None else ():
            print_stderr(f"left out: {file}, because the folder lacks {', '.join(lacking)}")
    recordings = recordings_of(traces, [study_of], reading)
    if study.traces is None:
        note_reading(reading, recorded, recordings)
    study = study.with_inputs(recorded).with_reading(reading.changed_options())
    if recordings is not None:
        study = study.with_recordings(recordings)
    stored = run_with_meter(study, results / study.name, jobs, fresh)
    html = html or Path(f"{paper}.html")
    contents: dict[str, object] = {"digest": stored.digest, "reading": stored.about["reading"]}
    if recordings is not None:
        contents["recordings"] = stored.about["recordings"]
    judged, count = write_judged_page(stored, html, figures)
    if as_json:
        claims = [claim.to_dict() for claim in judged]
        print_json({"report": str(html.resolve()), **contents, "claims": claims})
        return
    console = stdout()
    if judged:
        show_claims(console, judged)
        show_settled(console, judged)
    if figures is not None:
        print_stderr(f"figures: {count} in {figures}")
    console.print(Text(f"Results: {stored.digest} in {results / study.name}"), soft_wrap=True)
    console.print(Text(f"Report: {html.resolve()}"), soft_wrap=True)
    show_headline(console, judged)
    _print_remaining_claims(console, paper, len(judged))


def _devices(html: Path, figures: Path | None, jobs: int, *, as_json: bool) -> None:
    """Compare the presets of measured devices with the measured figures, and write the page."""
    from emmclab.calibration import measured_figures_text as texts
    from emmclab.calibration.measured_figures import FigureSummary, compare_figures, measured_devices
    from emmclab.pages import measured_devices as page
    from emmclab.simulation.device import Device, Provenance

    measured = measured_devices()
    with Counter("measuring devices", "jobs") as meter:
        comparisons = compare_figures(
            measured, progress=lambda done, total: meter(done, total, 0), threads_at_once=jobs
        )
    names = dict.fromkeys(figure.preset for figure in measured if figure.preset)
    page.write_page(comparisons, html, Provenance([Device.preset(name) for name in names]).to_dict())
    count = page.write_figures(comparisons, figures) if figures is not None else 0
    summary = FigureSummary.of(comparisons)
    if as_json:
        rows = [row.to_dict() for row in comparisons]
        print_json({"report": str(html.resolve()), "summary": asdict(summary), "figures": rows})
        return
    console = stdout()
    console.print(Text(str(summary), "bold"), soft_wrap=True)
    for table in [
        *(texts.summary_table(comparisons, name) for name in texts.GROUPINGS),
        texts.worst_table(comparisons),
    ]:
        show_table(console, table)
    if left_out := texts.not_compared_table(comparisons):
        show_table(console, left_out)
    if figures is not None:
        print_stderr(f"figures: {count} in {figures}")
    console.print(Text(f"Report: {html.resolve()}"), soft_wrap=True)


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
    """Run the studies on which a paper's findings are based, profile recorded traces, and write the findings page."""
    from emmclab.cli.profile import run
    from emmclab.papers.findings import findings_page
    from emmclab.papers.findings.findings import declared, studies
    from emmclab.papers.pages import write_drawings
    from emmclab.studies import Study
    from emmclab.traces.reading import read

    stored = {name: run_with_meter(Study.named(name), results / name, jobs, fresh) for name in studies()}
    profiles = [run(read(path, **reading.changed_options())) for path in traces]
    answers = [(finding, finding.answer(stored, profiles)) for finding in declared()]
    html = html or Path(f"{FINDINGS}.html")
    findings_page.write_findings(answers, stored, html)
    count = 0 if figures is None else write_drawings(findings_page.drawings(answers), figures)
    if as_json:
        print_json({"report": str(html.resolve()), "findings": findings_page.to_dict(answers)})
        return
    console = stdout()
    for finding, answer in answers:
        console.print(Text(finding.question, "bold"), soft_wrap=True)
        text = answer.answer if answer else "– needs recorded traces: --trace FILE"
        console.print(Text(text), soft_wrap=True)
        console.print(Text(f"{finding.id}; {finding.command}\n", "dim"), soft_wrap=True)
    if figures is not None:
        print_stderr(f"figures: {count} in {figures}")
    console.print(Text(f"Report: {html.resolve()}"), soft_wrap=True)


def _print_remaining_claims(console: Console, study: str, judged: int) -> None:
    """Print how many claims of the paper this study does not check, and the command that lists them."""
    from emmclab.papers.claims import rules
    from emmclab.papers.registry import studies

    paper = studies()[study]
    if others := len(rules(paper)) - judged:
        text = f"{others} more claims of the paper belong to other studies: emmclab claims --paper {paper.name}"
        console.print(text, markup=False, soft_wrap=True)


def _check_study(study: str) -> str:
    """Reject a name that is not a study of a paper."""
    from emmclab.papers.registry import papers, studies

    if study in studies():
        return study
    problem = "has no study yet: its system is not implemented" if study in papers() else "is not a study of a paper"
    raise ConfigError(f"`{study}` {problem}", field="PAPER", hint=f"choose one of: {', '.join(studies())}")
