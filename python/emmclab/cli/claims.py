"""`emmclab claims`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from emmclab.cli.console import print_json, stdout
from emmclab.cli.options import AsJson
from emmclab.cli.show import framed
from emmclab.cli.studies import RESULTS, Jobs, ResultsFolder, TraceInputs, recorded_traces, run_with_meter

if TYPE_CHECKING:
    from emmclab.claims import Claim


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: [cyan]emmclab claims --json[/]")(claims)


def claims(
    paper: Annotated[str, typer.Option(metavar="NAME", help="The paper.")] = "iiswc15",
    traces: TraceInputs = [],  # noqa: B006
    jobs: Jobs = 0,
    results: ResultsFolder = RESULTS,
    as_json: AsJson = False,
) -> None:
    """Compare the claims of a paper with the results of its study; runs missing cells."""
    from emmclab.claims import judge, rules, to_json
    from emmclab.study import Study

    rules(paper)
    study = Study.named(paper).with_inputs(recorded_traces(traces))
    judged = judge(run_with_meter(study, results / study.name, jobs, fresh=False), paper)
    if as_json:
        print_json(to_json(judged))
    else:
        show_claims(stdout(), judged)


def show_claims(console: Console, judged: list[Claim]) -> None:
    """Print the ledger, and how many claims hold."""
    from emmclab.claims import CANNOT, DIRECTION, NOT, REPRODUCED

    styles = {REPRODUCED: "green", DIRECTION: "cyan", NOT: "yellow", CANNOT: "dim"}
    table = framed("Claims")
    for heading in ("Claim", "Published", "Measured", "Verdict"):
        table.add_column(heading)
    for claim in judged:
        table.add_row(
            Text.assemble((claim.id, "bold"), f"\n{claim.claim}"),
            Text(claim.published),
            Text(claim.measured),
            Text(claim.verdict, styles[claim.verdict]),
        )
    console.print(table)
    console.print(counted(judged), markup=False, soft_wrap=True)


def counted(judged: list[Claim]) -> str:
    """Count the claims by verdict, in a sentence."""
    from emmclab.claims import counts

    return ", ".join(f"{count} {name}" for name, count in counts(judged).items()) + f", of {len(judged)}"
