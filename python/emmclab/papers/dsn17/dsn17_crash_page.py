"""The page of the study `dsn17-crash`: the tested claim of the paper, and each run with power cuts."""

from collections.abc import Mapping

from emmclab.papers.pages import Drawing, PageContent
from emmclab.runtime.document import Cells, Column, Section, TextTable, number_cell
from emmclab.studies.results import Results


def content(results: Results, _measured: Mapping[str, str]) -> PageContent:
    """Return the texts and tables of the page."""
    hosts = {item for run in results.cut_runs() for item in run.result.host.items()}
    return PageContent(
        lead=[
            f"{results.about['about']}: {results.about['cells']:,} runs on ext4 on a served device. The "
            "mechanisms are our design; the claim is the paper's."
        ],
        facts=[("Host", ", ".join(" ".join(item) for item in sorted(hosts)))],
        sections=[Section("tables", "Runs", [_runs(results)], "Runs")],
    )


def _runs(results: Results) -> TextTable:
    rows: list[Cells] = []
    for run in results.cut_runs():
        cuts = run.result
        counts = map(number_cell, (cuts.cuts, cuts.states, cuts.lost_states))
        rows.append([run.cell.input, run.cell.device, cuts.layer, *counts, cuts.verdict, cuts.first.detail or "–"])
    rows += [
        [run["input"], run["device"], run["grid"], "–", "–", "–", "not judged", run["message"]]
        for run in results.failures
    ]
    headings = ["Workload", "Device", "Layer", "Cuts", "States", "States that lost"]
    words = [Column("Verdict", is_text=True), Column("First finding", is_text=True)]
    return TextTable("Runs", [*headings, *words], rows, 3, "sortable")


def drawings(_results: Results) -> list[Drawing]:
    """Return no drawings, because the table shows the results."""
    return []
