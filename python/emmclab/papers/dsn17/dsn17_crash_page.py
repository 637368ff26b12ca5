"""The page of `dsn17-crash`: the claim, and each run whose power was cut."""

from __future__ import annotations

from collections.abc import Sequence

from emmclab.claims import Claim
from emmclab.papers.drawing import Drawing
from emmclab.papers.pages import assemble_page
from emmclab.study.results import Results


def render(results: Results, judged: Sequence[Claim], drawn: Sequence[Drawing]) -> str:
    """Give the page; the same results give the same bytes."""
    hosts = {item for run in results.cuts for item in run["host"].items()}
    return assemble_page(
        results,
        judged,
        drawn,
        claims=judged,
        beside={},
        runs=results.cuts,
        failures=results.failures,
        tools=sorted(hosts),
        command=f"emmclab reproduce {results.about['name']}",
    )


def drawings(_results: Results) -> list[Drawing]:
    """Draw nothing: the table says it."""
    return []
