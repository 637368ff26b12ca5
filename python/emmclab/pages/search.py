"""The page of a search: the Pareto-optimal trials, and the results of each method of choosing trials."""

import functools
from collections.abc import Iterator
from typing import Any, TypedDict

import altair as alt

from emmclab.comparison.seed_statistics import MORE_SEEDS, untested
from emmclab.pages.assemble import Head, Provenance, Tile, assemble, exact
from emmclab.pages.plots import Chart, Figure, Rows, chart_of, in_order
from emmclab.runtime.document import Cells, Charts, Column, Note, Number, Part, Section, TextTable
from emmclab.simulation.result_fields import field_of_column
from emmclab.studies.search import WAYS, Objective, SearchResult, Trial, dominates, indistinguishable_trials, seeds_of
from emmclab.studies.summary import plain_value
from emmclab.traces.inputs import ProvenanceFields

#: Maximum number of rows in the table of the Pareto front.
_MOST_ROWS = 200


def render(result: SearchResult, provenance: ProvenanceFields | None = None) -> str:
    """Return the HTML page; equal trials produce equal bytes."""
    drawn = _figures(result)
    return assemble(
        [figure for figure, _ in drawn],
        {figure.name: rows for figure, rows in drawn},
        [way for way in WAYS if any(trial.way == way for trial in result.trials)],
        title=result.study.name,
        head=_head(result, [figure for figure, _ in drawn]),
        provenance=Provenance(
            f"Search of {result.study.name}: {len(result.trials):,} trials, seed {result.seed}",
            [("Budget", f"{result.budget} trials in each way, {result.batch} in a batch")],
            made=provenance or {},
        ),
        sections=_sections(result, has_figures=bool(drawn)),
    )


def _sections(result: SearchResult, *, has_figures: bool) -> Iterator[Section]:
    mean = "Each figure is the geometric mean over all inputs and seeds, or for shares the arithmetic mean."
    parts: list[Part] = [Note("No trial is possible within the bounds.", "quiet")]
    if front := front_table(result, _MOST_ROWS):
        parts = [front]
        if (more := len(result.front()) - _MOST_ROWS) > 0:
            parts.append(Note(f"{more} more are in the JSON of `emmclab search --json`."))
    yield Section("front", "Trials that no other trial beats", [*parts, Note(mean)], nav="Best")
    if has_figures:
        yield Section("figures", "Figures", [Charts("Nothing to draw.")], nav="Figures")
    tpe = (
        "TPE (optuna's tree-structured Parzen estimator) uses the results of earlier batches; random and grid are "
        "baselines."
    )
    failed = [Note(f"{count} without figures: {reason}", "quiet") for reason, count in reasons(result)]
    yield Section("ways", "Ways of choosing", [ways_table(result), Note(tpe), *failed], nav="Ways")


def front_table(result: SearchResult, most: int) -> TextTable | None:
    """Return the first Pareto-optimal trials, with their settings and figures; None if there are none."""
    front, settings = result.front(), [parameter.name for parameter in result.space.ranges]
    rows: list[Cells] = [
        [
            f"{trial.way} {trial.number}",
            *(text_of(trial.values[name]) for name in settings),
            *(Number(number(value, name), value) for name, value in trial.figures.items()),
        ]
        for trial in front[:most]
    ]
    if not front:
        return None
    headings: list[str | Column] = ["Trial", *(Column(name, is_text=True) for name in settings), *front[0].figures]
    return TextTable("Beaten by no other trial", headings, rows, style="sortable folds")


def ways_table(result: SearchResult) -> TextTable:
    """Return the results of each method of choosing trials."""
    best = [f"Best {objective.metric}" for objective in result.objectives]
    rows = [
        [
            row["way"],
            *(str(count) for count in (row["trials"], row["feasible"], row["front"])),
            *(row["best"][objective.metric] or "–" for objective in result.objectives),
            "–" if row["beaten"] is None else f"{row['beaten']} of {row['of']}",
        ]
        for row in compared(result)
    ]
    headings = ["Way", "Trials", "Within bounds", "On the front of all", *best, "Beats of TPE's front"]
    return TextTable("Ways of choosing trials", headings, rows, style="matrix folds numbers")


def _head(result: SearchResult, drawn: list[Figure]) -> Head:
    objectives = ", ".join(objective.text for objective in result.objectives)
    bounds = ", ".join(_bound(bound) for bound in result.space.bounds)
    feasible = [trial for trial in result.trials if trial.is_feasible]
    tiles = [Tile("Trials", f"{len(result.trials):,}"), Tile("Within the bounds", f"{len(feasible):,}")]
    for objective in result.objectives:
        values = [trial.figures[objective.metric] for trial in feasible]
        if values:
            best = (max if objective.is_maximized else min)(values)
            tiles.append(Tile(f"Best {objective.metric}", number(best, objective.metric), exact(best)))
    return Head(
        answer=headline(result),
        lead=[
            f"Search of the study {result.study.name}, grid {result.space.grid}: {objectives}"
            f"{', with ' + bounds if bounds else ''}. {result.budget} trials in each way, {result.batch} in a "
            f"batch, seed {result.seed}."
        ],
        tiles=tiles,
        picture=drawn[0].name if drawn else "",
    )


def headline(result: SearchResult) -> str:
    """Return a line with the best result, and the number of trials that cannot be distinguished from it."""
    front = result.front()
    if not front:
        return f"None of {len(result.trials):,} trials is possible within the bounds"
    others = len(indistinguishable_trials(result))
    trials = f"{others:,} other trial{'s are' if others != 1 else ' is'} not told apart from"
    if len(front) == 1:
        figures = (
            f"{objective.metric} {number(front[0].figures[objective.metric], objective.metric)}"
            for objective in result.objectives
        )
        line = f"{trial_text(front[0])}: {', '.join(figures)}" + (f"; {trials} it" if others else "")
    else:
        line = f"{len(front):,} of {len(result.trials):,} trials are beaten by no other trial"
        line += f"; {trials} them" if others else ""
    if len(seeds_of(front[0], result.objectives[0].metric)) > 1:
        return line
    return f"{line}; {untested(MORE_SEEDS)}"


def trial_text(trial: Trial) -> str:
    """Format the settings of a trial in one line of text."""
    return ", ".join(f"{name} = {text_of(value)}" for name, value in trial.values.items())


def text_of(value: Any) -> str:
    """Format a setting as in a study file, numbers with at most six significant digits."""
    return f"{value:.6g}" if isinstance(value, float) else plain_value(value)


def number(value: float, metric: str) -> str:
    """Format a figure like a field of a result; unknown columns and sizes get four significant digits.

    >>> number(3094.3481, "waf"), number(3094.3481, "layer_moved"), number(0.0012345, "layer_moved")
    ('3,094.348', '3,094', '0.001234')
    """
    field = field_of_column(metric)
    if field is not None and field.unit != "byte":
        return field.text(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


class ComparedWay(TypedDict):
    """Results of a method of choosing trials: numbers of trials, of trials within bounds, and on the Pareto front.

    `best` is the best value by metric. `of` is the number of trials on the Pareto front of the method TPE. `beaten` is
    the number of these that are dominated by a trial of this method.
    """

    way: str
    trials: int
    feasible: int
    front: int
    best: dict[str, str | None]
    beaten: int | None
    of: int


def compared(result: SearchResult) -> list[ComparedWay]:
    """Return the results of each method of choosing trials."""
    front = result.front()
    rows: list[ComparedWay] = []
    for way in WAYS:
        trials = [trial for trial in result.trials if trial.way == way]
        if not trials:
            continue
        best = {
            goal.metric: min(
                (trial.figures[goal.metric] for trial in trials if trial.is_feasible),
                key=lambda value, goal=goal: -value if goal.is_maximized else value,  # type: ignore[misc]
                default=None,
            )
            for goal in result.objectives
        }
        tpe_front = result.front(WAYS[0])
        beaten = sum(any(dominates(own, tpe, result.objectives) for own in result.front(way)) for tpe in tpe_front)
        rows.append(
            {
                "way": way,
                "trials": len(trials),
                "feasible": sum(trial.is_feasible for trial in trials),
                "front": sum(trial.way == way for trial in front),
                "best": {name: None if value is None else number(value, name) for name, value in best.items()},
                "beaten": beaten if way != WAYS[0] else None,
                "of": len(tpe_front),
            }
        )
    return rows


def reasons(result: SearchResult) -> list[tuple[str, int]]:
    """Count the reasons for trials without figures, most frequent first."""
    counts: dict[str, int] = {}
    for trial in result.trials:
        if trial.reason:
            counts[trial.reason] = counts.get(trial.reason, 0) + 1
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:20]


def _bound(bound: Any) -> str:
    least = f"at least {bound.least:g}" if bound.least > -float("inf") else ""
    most = f"at most {bound.most:g}" if bound.most < float("inf") else ""
    return f"{bound.metric} {' and '.join(filter(None, (least, most)))}"


def _figures(result: SearchResult) -> list[tuple[Figure, Rows]]:
    feasible = [trial for trial in result.trials if trial.is_feasible]
    if not feasible:
        return []
    drawn = []
    if len(result.objectives) > 1:
        first, second = (objective.metric for objective in result.objectives[:2])
        rows = [
            {
                "trace": trial.way,
                "x": trial.figures[first],
                "y": trial.figures[second],
                "best": "yes" if trial.is_best else "no",
                "settings": trial_text(trial),
            }
            for trial in feasible
        ]
        about = "Each point is a trial within the bounds; large points are beaten by no other trial."
        draw = functools.partial(over_objectives, x=first, y=second)
        drawn.append((Figure("objectives", f"{first} and {second}", about, draw, wide=True), rows))
    for objective in result.objectives:
        title = f"Best {objective.metric} so far"
        draw = functools.partial(best_so_far, title=objective.metric)
        about = "The best value up to each trial, of trials within the bounds."
        drawn.append((Figure(f"best-{objective.metric}", title, about, draw), _so_far(result, objective)))
    return drawn


def _so_far(result: SearchResult, objective: Objective) -> Rows:
    rows = []
    best: dict[str, float] = {}
    for trial in result.trials:
        if trial.is_feasible:
            value = trial.figures[objective.metric]
            if trial.way not in best or objective.better(value, best[trial.way]):
                best[trial.way] = value
        if trial.way in best:
            rows.append({"trace": trial.way, "trial": trial.number + 1, "value": best[trial.way]})
    return rows


def over_objectives(rows: Rows, x: str, y: str) -> Chart:
    """Draw trials as points by two figures, `x` and `y`, a colour for each method; Pareto-optimal trials are large."""
    shared = alt.Scale(zero=False, padding=8)
    ways = in_order(rows, "trace")
    legend = alt.Legend(columns=3, orient="bottom")
    sizes = alt.Scale(domain=["no", "yes"], range=[25, 140])
    return (
        chart_of(rows, 320)
        .mark_point(filled=True)
        .encode(
            x=alt.X("x:Q", title=x, scale=shared),
            y=alt.Y("y:Q", title=y, scale=shared),
            color=alt.Color("trace:N", title=None, sort=ways, legend=legend),
            shape=alt.Shape("trace:N", title=None, sort=ways, legend=legend),
            size=alt.Size("best:O", sort=["no", "yes"], legend=None, scale=sizes),
        )
    )


def best_so_far(rows: Rows, title: str) -> Chart:
    """Draw the best `value` of all trials up to each `trial`, with one line for each method."""
    return (
        chart_of(rows)
        .mark_line(interpolate="step-after")
        .encode(
            x=alt.X("trial:Q", title="trial"),
            y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=False, padding=8)),
            color=alt.Color(
                "trace:N", title=None, sort=in_order(rows, "trace"), legend=alt.Legend(columns=3, orient="bottom")
            ),
        )
    )
