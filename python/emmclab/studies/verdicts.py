"""The verdicts of a study as JSON, for programs; pages and the terminal show the same."""

from typing import TypedDict

from emmclab.simulation.layers import Setting
from emmclab.studies import power_cut_table
from emmclab.studies.effects import Effect
from emmclab.studies.results import Results
from emmclab.studies.summary import Ranked, summaries


class _RankedBy(TypedDict):
    """The best and the worst setting by one metric."""

    metric: str
    unit: str
    best: dict[str, Setting]
    best_value: float
    worst: dict[str, Setting]
    worst_value: float
    change_pct: float | None
    is_equal: bool
    is_told_apart: bool
    alike: list[dict[str, Setting]]
    interval: list[float] | None
    inputs: list[str]
    seeds: int


class EffectOf(TypedDict):
    """The effect of a swept key: its best and worst value, with everything else equal."""

    key: str
    best: Setting
    best_value: float
    worst: Setting
    worst_value: float
    change: float
    pairs: int
    agreeing: int
    interval: list[float] | None
    is_told_apart: bool


class Ranking(_RankedBy):
    """The same for a grid, with the effect of each key and the ranking at the best value of the strongest."""

    grid: str
    effects: list[EffectOf]
    within: _RankedBy | None


class CutVerdict(TypedDict):
    """Verdict on a workload on a file system, device and layer after power cuts."""

    workload: str
    file_system: str
    device: str
    layer: str
    verdict: str
    level: str
    cuts: int
    states: int
    lost_states: int
    documented_states: int


class CutVerdicts(TypedDict):
    """The verdicts of a study of power cuts, with the number of each."""

    answer: str
    verdicts: dict[str, int]
    runs: list[CutVerdict]


def rankings(results: Results) -> list[Ranking]:
    """Return the best and worst setting of each grid by each metric, and whether they really differ."""
    return [
        {
            "grid": summary.grid,
            **_ranking(one),
            "effects": [_effect(one, effect) for effect in one.effects],
            "within": None if one.within is None else _ranking(one.within),
        }
        for summary in summaries(results)
        for one in summary.ranked
    ]


def _effect(ranked: Ranked, effect: Effect) -> EffectOf:
    return {
        "key": effect.key,
        "best": effect.best,
        "best_value": effect.best_mean,
        "worst": effect.worst,
        "worst_value": effect.worst_mean,
        "change": ranked.change_of(effect),
        "pairs": effect.pairs,
        "agreeing": effect.agreeing,
        "interval": None if effect.interval is None else list(effect.interval),
        "is_told_apart": effect.is_told,
    }


def _ranking(ranked: Ranked) -> _RankedBy:
    return {
        "metric": ranked.metric.name,
        "unit": ranked.metric.unit,
        "best": dict(ranked.best),
        "best_value": ranked.best_value.mean,
        "worst": dict(ranked.worst),
        "worst_value": ranked.worst_value.mean,
        "change_pct": ranked.change_pct,
        "is_equal": ranked.is_equal,
        "is_told_apart": ranked.is_distinguishable,
        "alike": [dict(setting) for setting in ranked.indistinguishable],
        "interval": None if ranked.interval is None else list(ranked.interval),
        "inputs": list(ranked.inputs),
        "seeds": ranked.seeds,
    }


def cut_verdicts(results: Results) -> CutVerdicts:
    """Return the verdict of each run of a study of power cuts, with the number of each verdict."""
    runs: list[CutVerdict] = [
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
        for table in power_cut_table.tables(results)
        for (name, column), cell in table.cells.items()
    ]
    return {"answer": power_cut_table.headline(results), "verdicts": power_cut_table.counts(results), "runs": runs}
