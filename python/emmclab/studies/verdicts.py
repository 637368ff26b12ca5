"""The verdicts of a study as JSON: what its page and the terminal say, for programs."""

from __future__ import annotations

from typing import Any

from emmclab.studies import cuts_table
from emmclab.studies.results import Results
from emmclab.studies.summary import Ranked, summaries


def rankings(results: Results) -> list[dict[str, Any]]:
    """Return the best and the worst setting of each grid by each metric, and whether they are told apart."""
    return [
        {"grid": summary.grid, **_ranking(one)} for summary in summaries(results) for one in summary.ranked
    ]


def _ranking(ranked: Ranked) -> dict[str, Any]:
    return {
        "metric": ranked.metric.name,
        "unit": ranked.metric.unit,
        "best": dict(ranked.best),
        "best_value": ranked.best_value.mean,
        "worst": dict(ranked.worst),
        "worst_value": ranked.worst_value.mean,
        "change_pct": ranked.change_pct,
        "is_equal": ranked.is_equal,
        "is_told_apart": ranked.is_told_apart,
        "alike": [dict(setting) for setting in ranked.alike],
        "interval": None if ranked.interval is None else list(ranked.interval),
        "inputs": list(ranked.inputs),
        "seeds": ranked.seeds,
    }


def cut_verdicts(results: Results) -> dict[str, Any]:
    """Return the verdict of each run of a study of power cuts, with the count of each verdict."""
    runs = [
        {
            "workload": name,
            "file_system": column.file_system,
            "device": column.device,
            "layer": column.layer,
            "verdict": cell.word,
            "level": cell.level,
            "cuts": cell.cuts,
            "states": cell.states,
            "lost_states": cell.lost_states,
            "documented_states": cell.documented_states,
        }
        for table in cuts_table.tables(results)
        for (name, column), cell in table.cells.items()
    ]
    return {"answer": cuts_table.headline(results), "verdicts": cuts_table.counts(results), "runs": runs}
