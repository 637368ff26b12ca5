"""`emmclab papers list`."""

from dataclasses import asdict

from rich.text import Text

from emmclab.cli.command import command
from emmclab.cli.console import print_json, stdout
from emmclab.cli.options import AsJson
from emmclab.cli.tables import framed


@command("emmclab papers list --json", name="list")
def list_papers(as_json: AsJson = False) -> None:
    """List the papers: their studies, how many claims each has, and whether its system is implemented."""
    from emmclab.papers.claims import rules
    from emmclab.papers.registry import papers

    listed = list(papers().values())
    counts = {paper.name: len(rules(paper)) for paper in listed}
    if as_json:
        rows = [asdict(paper) | {"claims": counts[paper.name]} for paper in listed]
        print_json([{name: value for name, value in row.items() if name != "takes_traces"} for row in rows])
        return
    table = framed("Papers", "Paper", "State", "Claims", "Studies", words=2, text=["Studies"], tall=True)
    for paper in listed:
        table.add_row(
            Text.assemble((paper.name, "bold"), f"\n{paper.authors}: {paper.title} ({paper.venue})"),
            Text(paper.state),
            str(counts[paper.name]),
            Text("\n".join(paper.studies) or "–"),
        )
    console = stdout()
    console.print(table)
    console.print("Next: emmclab reproduce iiswc15", markup=False)
