"""The page of `dsn17-crash`: the claim, and each run with power cuts."""

from collections.abc import Sequence

from emmclab.papers.claims import Claim
from emmclab.papers.page_charts import Drawing
from emmclab.papers.pages import assemble_page
from emmclab.studies.results import Results


def render(results: Results, judged: Sequence[Claim], drawn: Sequence[Drawing]) -> str:
    """Return the page; the same results give the same bytes."""
    hosts = {item for run in results.cut_runs() for item in run.result.host.items()}
    return assemble_page(
        results,
        judged,
        drawn,
        lead=[
            f"{results.about['about']}: {results.about['cells']:,} runs on ext4 on a served device. The "
            "mechanisms are our design, the claim is the paper's."
        ],
        facts=[("Host", ", ".join(" ".join(item) for item in sorted(hosts)))],
        runs=results.cuts,
        failures=results.failures,
    )


def drawings(_results: Results) -> list[Drawing]:
    """Return no drawings, because the table shows the results."""
    return []
