"""The verdicts of a study, including those of power cuts, as tables and JSON, for pages and the terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import msgspec

from emmclab.crash.json_types import FindingFields
from emmclab.simulation.layers import Setting
from emmclab.studies.power_cut_settings import DOCUMENTED, KEPT, LOST, RULE, VERDICTS, CutCell, CutResult
from emmclab.studies.results import Results
from emmclab.studies.stored_types import FailedCell
from emmclab.studies.summary import Effect, Ranked, plain_value, summaries

#: Verdict on a cell whose run failed, so that its crash states were not checked.
NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class Column:
    """A column in the table of power-cut verdicts: file system, device and layers."""

    file_system: str
    device: str
    layer: str

    def __str__(self) -> str:
        above = "" if self.layer == "none" else f", {self.layer}"
        return f"{self.file_system}, {self.device}{above}"


@dataclass(frozen=True)
class Verdict:
    """Result of one power-cut run: how many cuts and crash states were tried, and what was lost."""

    word: str
    level: str
    cuts: int
    states: int
    lost_states: int
    documented_states: int

    @property
    def text(self) -> str:
        """The verdict as text; if data was lost, with the level (such as the file system) that lost it."""
        return f"{self.word}: {self.level}" if self.level else self.word


_FAILED = Verdict(NOT_JUDGED, "", 0, 0, 0, 0)
#: A run of a power-cut study (a cell), and its verdict.
_Judged = tuple[CutCell, Verdict]


@dataclass(frozen=True)
class Table:
    """A table of power-cut verdicts, one row per workload; `cells` contains them by workload and column."""

    rows: tuple[str, ...]
    columns: tuple[Column, ...]
    cells: dict[tuple[str, Column], Verdict]


def tables(results: Results) -> list[Table]:
    """Return a table for each set of workloads, in the order of the study; failed cells are included."""
    verdicts = [(run.cell, _verdict(run.result)) for run in results.cut_runs()]
    verdicts += [(cell_of(failure), _FAILED) for failure in results.failures]
    grids: dict[str, list[_Judged]] = {}
    for cell, verdict in verdicts:
        grids.setdefault(cell.grid, []).append((cell, verdict))
    parts: dict[tuple[str, ...], list[_Judged]] = {}
    for grid_verdicts in grids.values():
        parts.setdefault(tuple(dict.fromkeys(cell.input for cell, _ in grid_verdicts)), []).extend(grid_verdicts)
    return [_table(rows, grid_verdicts) for rows, grid_verdicts in parts.items()]


def _table(rows: tuple[str, ...], verdicts: Sequence[_Judged]) -> Table:
    cells: dict[tuple[str, Column], Verdict] = {}
    for cell, verdict in verdicts:
        place = cell.input, column_of(cell)
        cells[place] = _both(cells[place], verdict) if place in cells else verdict
    return Table(rows, tuple(dict.fromkeys(column_of(cell) for cell, _ in verdicts)), cells)


def _both(first: Verdict, second: Verdict) -> Verdict:
    """Combine two runs in one table cell, for example with two seeds: the worse verdict, and the sums of the counts."""
    words = (*VERDICTS[:-1], NOT_JUDGED, LOST)
    worst = max(first, second, key=lambda verdict: words.index(verdict.word))
    return Verdict(
        worst.word,
        worst.level,
        first.cuts + second.cuts,
        first.states + second.states,
        first.lost_states + second.lost_states,
        first.documented_states + second.documented_states,
    )


def cell_of(failure: FailedCell) -> CutCell:
    """Return the study cell of a run that failed."""
    return msgspec.convert(failure, CutCell)


def column_of(cell: CutCell) -> Column:
    """Return the table column of a cell: the file system, the device and the layers, with their settings.

    >>> settings = {"cache.policy": "fifo"}
    >>> layers = {"layers": ["advil"], "layer_settings": {"advil.reserved": "8MiB"}}
    >>> options = {"file_system": "ordered", **layers}
    >>> str(column_of(CutCell("grid", "sqlite-wal", "emmc51-cache", settings, options)))
    'ordered, emmc51-cache cache.policy=fifo, advil advil.reserved=8MiB'
    """
    options = cell.options
    device = [cell.device, *_written(cell.settings)]
    layer = [*options.get("layers", ()), *_written(options.get("layer_settings") or {})]
    if options.get("second"):
        layer.append(f"on {options['second']}")
    return Column(options["file_system"], " ".join(device), " ".join(layer) or "none")


def _written(settings: Mapping[str, Setting]) -> list[str]:
    return [f"{key}={plain_value(value)}" for key, value in settings.items()]


def _verdict(result: CutResult) -> Verdict:
    return Verdict(
        result.verdict, result.lost_at or "", result.cuts, result.states, result.lost_states, result.documented_states
    )


def counts(results: Results) -> dict[str, int]:
    """Count the power-cut runs by verdict."""
    counts_by_verdict = dict.fromkeys((*VERDICTS, NOT_JUDGED), 0)
    for _, result in results.cut_runs():
        counts_by_verdict[result.verdict] += 1
    counts_by_verdict[NOT_JUDGED] = len(results.failures)
    return {word: count for word, count in counts_by_verdict.items() if count}


def headline(results: Results) -> str:
    """Return a line of text: how many runs lost data, and how many power cuts and crash states were tried."""
    lost = counts(results).get(LOST, 0)
    runs = [run.result for run in results.cut_runs()]
    states, cuts = sum(run.states for run in runs), sum(run.cuts for run in runs)
    return f"{lost:,} of {len(runs):,} runs lost acknowledged data: {states:,} states after {cuts:,} cuts"


def findings(results: Results, *, documented: bool = False) -> list[tuple[CutCell, FindingFields]]:
    """Return all findings, or all documented losses if `documented` is set, each with its study cell."""
    return [
        (cell, finding)
        for cell, result in results.cut_runs()
        for finding in (result.documented if documented else result.findings)
    ]


#: Meaning of each verdict, for the legend.
MEANING = {
    KEPT: "every state has all acknowledged data",
    DOCUMENTED: "some states lack data that SQLite, by its documentation, does not promise to keep",
    RULE: "a command breaks a rule of the journal, but no tried state lost data because of it",
    LOST: "a state lacks acknowledged data; the level is the lowest one that broke a promise",
    NOT_JUDGED: "the run failed, or its states cannot be recovered",
}


class _RankedBy(TypedDict):
    """The best and the worst setting of a study's grid by one metric."""

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
    """The effect of a varied key, such as `gc.policy`: its best and worst value, with all other keys equal."""

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
    """The ranking of the settings of a grid, and the effect of each varied setting.

    `within` is a second ranking. It contains only the settings in which the key with the strongest effect has its best
    value.
    """

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
    """The verdicts of a power-cut study, and the number of runs with each verdict."""

    answer: str
    verdicts: dict[str, int]
    runs: list[CutVerdict]


def rankings(results: Results) -> list[Ranking]:
    """Return the best and worst setting of each study grid by each metric, and whether they differ significantly."""
    return [
        {
            "grid": summary.grid,
            **_ranking(ranked),
            "effects": [_effect(ranked, effect) for effect in ranked.effects],
            "within": None if ranked.within is None else _ranking(ranked.within),
        }
        for summary in summaries(results)
        for ranked in summary.ranked
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
    """Return the verdict of each run of a power-cut study, and the number of runs with each verdict."""
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
        for table in tables(results)
        for (name, column), cell in table.cells.items()
    ]
    return {"answer": headline(results), "verdicts": counts(results), "runs": runs}
