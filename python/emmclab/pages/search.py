"""The page of a search: its Pareto-optimal trials, and the results of each way of choosing trials."""

import functools
from collections.abc import Iterator
from typing import Any, TypedDict

import altair as alt

from emmclab.comparison.seed_statistics import MORE_SEEDS, untested
from emmclab.pages.assemble import assemble
from emmclab.pages.first_screen import Head, Provenance, Tile, exact
from emmclab.pages.plots import Chart, Figure, Rows, chart_of, in_order, tooltip
from emmclab.runtime.document import Cells, Charts, Column, Note, Number, Part, Section, TextTable
from emmclab.simulation.result_fields import field_of_column
from emmclab.studies.search import WAYS, Objective, SearchResult, Trial, dominates, indistinguishable_trials, seeds_of
from emmclab.studies.summary import plain_value
from emmclab.traces.inputs import ProvenanceFields

#: Maximum number of rows in the table of the Pareto front.
_MOST_ROWS = 200


def render(found: SearchResult, made: ProvenanceFields | None = None) -> str:
    """Return the page; the same trials produce the same bytes."""
    drawn = _figures(found)
    return assemble(
        "document.html.j2",
        [figure for figure, _ in drawn],
        {figure.name: rows for figure, rows in drawn},
        [way for way in WAYS if any(one.way == way for one in found.trials)],
        title=found.study.name,
        head=_head(found, [figure for figure, _ in drawn]),
        provenance=Provenance(
            f"Search of {found.study.name}: {len(found.trials):,} trials, seed {found.seed}",
            [("Budget", f"{found.budget} trials in each way, {found.batch} in a batch")],
            made=made or {},
        ),
        sections=_sections(found, has_figures=bool(drawn)),
    )


def _sections(found: SearchResult, *, has_figures: bool) -> Iterator[Section]:
    front, settings = found.front(), [one.name for one in found.space.ranges]
    mean = "Each figure is the geometric mean over all inputs and seeds; of shares it is the arithmetic mean."
    parts: list[Part] = [Note("No trial is possible within the bounds.", "quiet")]
    if front:
        columns = [Column(name, is_text=True) for name in settings]
        rows: list[Cells] = [
            [
                f"{one.way} {one.number}",
                *(text_of(one.values[name]) for name in settings),
                *(Number(number(value, name), value) for name, value in one.figures.items()),
            ]
            for one in front[:_MOST_ROWS]
        ]
        title = "Table of trials that no other beats"
        headings: list[str | Column] = ["Way, trial", *columns, *front[0].figures]
        parts = [TextTable(title, headings, rows, style="sortable folds")]
        if len(front) > _MOST_ROWS:
            parts.append(Note(f"{len(front) - _MOST_ROWS} more are in the JSON of `emmclab search --json`."))
    yield Section("front", "Trials that no other beats", [*parts, Note(mean)], nav="Best")
    if has_figures:
        yield Section("figures", "Figures", [Charts("Nothing to draw.")], nav="Figures")
    best = [f"Best {one.metric}" for one in found.objectives]
    ways = TextTable(
        "Table of ways",
        ["Way", "Trials", "Within bounds", "On the front of all", *best, "Beats of TPE's front"],
        [
            [
                row["way"],
                *(str(count) for count in (row["trials"], row["feasible"], row["front"])),
                *(row["best"][one.metric] or "–" for one in found.objectives),
                "–" if row["beaten"] is None else f"{row['beaten']} of {row['of']}",
            ]
            for row in compared(found)
        ],
        style="matrix folds numbers",
    )
    tpe = (
        "TPE (optuna's tree-structured Parzen estimator) learns from earlier batches; random and grid are "
        "its baselines."
    )
    failed = [Note(f"{count} without figures: {reason}", "quiet") for reason, count in reasons(found)]
    yield Section("ways", "Ways of choosing", [ways, Note(tpe), *failed], nav="Ways")


def _head(found: SearchResult, drawn: list[Figure]) -> Head:
    wanted = ", ".join(one.text for one in found.objectives)
    bounds = ", ".join(_bound(one) for one in found.space.bounds)
    done = [one for one in found.trials if one.is_feasible]
    tiles = [Tile("Trials", f"{len(found.trials):,}"), Tile("Within the bounds", f"{len(done):,}")]
    for objective in found.objectives:
        values = [one.figures[objective.metric] for one in done]
        if values:
            best = (max if objective.is_maximized else min)(values)
            tiles.append(Tile(f"Best {objective.metric}", number(best, objective.metric), exact(best)))
    return Head(
        answer=headline(found),
        lead=[
            f"Search of the study {found.study.name}, grid {found.space.grid}: {wanted}"
            f"{', with ' + bounds if bounds else ''}. {found.budget} trials in each way, {found.batch} in a "
            f"batch, seed {found.seed}."
        ],
        tiles=tiles,
        picture=drawn[0].name if drawn else "",
    )


def headline(found: SearchResult) -> str:
    """Return in one line the best result, and the number of trials that cannot be distinguished from it."""
    front = found.front()
    if not front:
        return f"None of {len(found.trials):,} trials is possible within the bounds"
    others = len(indistinguishable_trials(found))
    trials = f"{others:,} other trial{'s are' if others != 1 else ' is'} not told apart from"
    if len(front) == 1:
        figures = (f"{one.metric} {number(front[0].figures[one.metric], one.metric)}" for one in found.objectives)
        line = f"{trial_text(front[0])}: {', '.join(figures)}" + (f"; {trials} it" if others else "")
    else:
        line = f"{len(front):,} of {len(found.trials):,} trials are beaten by no other"
        line += f"; {trials} them" if others else ""
    if len(seeds_of(front[0], found.objectives[0].metric)) > 1:
        return line
    return f"{line}; {untested(MORE_SEEDS)}"


def trial_text(trial: Trial) -> str:
    """Format the settings of a trial in one line."""
    return ", ".join(f"{name} = {text_of(value)}" for name, value in trial.values.items())


def text_of(value: Any) -> str:
    """Format a setting as in a study file, numbers with six digits."""
    return f"{value:.6g}" if isinstance(value, float) else plain_value(value)


def number(value: float, metric: str) -> str:
    """Format a figure as everywhere; columns that are not known figures with four significant digits.

    >>> number(3094.3481, "waf"), number(3094.3481, "layer_moved"), number(0.0012345, "layer_moved")
    ('3,094.348', '3,094', '0.001234')
    """
    field = field_of_column(metric)
    if field is not None and field.unit != "byte":
        return field.text(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


class ComparedWay(TypedDict):
    """A way of searching: its trials, those within the bounds, and those on the overall front.

    `best` is the best value by metric. Of the `of` trials on the front of TPE, this way beats `beaten`.
    """

    way: str
    trials: int
    feasible: int
    front: int
    best: dict[str, str | None]
    beaten: int | None
    of: int


def compared(found: SearchResult) -> list[ComparedWay]:
    """Count the trials of each method, its trials on the overall front, and TPE's trials that it beats."""
    front = found.front()
    rows: list[ComparedWay] = []
    for way in WAYS:
        own = [one for one in found.trials if one.way == way]
        if not own:
            continue
        best = {
            one.metric: min(
                (trial.figures[one.metric] for trial in own if trial.is_feasible),
                key=lambda value, one=one: -value if one.is_maximized else value,  # type: ignore[misc]
                default=None,
            )
            for one in found.objectives
        }
        against = found.front(WAYS[0])
        beaten = sum(any(dominates(one, other, found.objectives) for one in found.front(way)) for other in against)
        rows.append(
            {
                "way": way,
                "trials": len(own),
                "feasible": sum(one.is_feasible for one in own),
                "front": sum(one.way == way for one in front),
                "best": {name: None if value is None else number(value, name) for name, value in best.items()},
                "beaten": beaten if way != WAYS[0] else None,
                "of": len(against),
            }
        )
    return rows


def reasons(found: SearchResult) -> list[tuple[str, int]]:
    """Count the reasons for trials without figures, most frequent first."""
    counts: dict[str, int] = {}
    for one in found.trials:
        if one.reason:
            counts[one.reason] = counts.get(one.reason, 0) + 1
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:20]


def _bound(bound: Any) -> str:
    least = f"at least {bound.least:g}" if bound.least > -float("inf") else ""
    most = f"at most {bound.most:g}" if bound.most < float("inf") else ""
    return f"{bound.metric} {' and '.join(filter(None, (least, most)))}"


def _figures(found: SearchResult) -> list[tuple[Figure, Rows]]:
    done = [one for one in found.trials if one.is_feasible]
    if not done:
        return []
    drawn = []
    if len(found.objectives) > 1:
        first, second = (one.metric for one in found.objectives[:2])
        rows = [
            {
                "trace": one.way,
                "x": one.figures[first],
                "y": one.figures[second],
                "best": "yes" if one.is_best else "no",
                "settings": trial_text(one),
            }
            for one in done
        ]
        about = "A point is a trial within the bounds; large ones are beaten by no other."
        draw = functools.partial(over_objectives, x=first, y=second)
        drawn.append((Figure("objectives", f"{first} and {second}", about, draw, wide=True), rows))
    for objective in found.objectives:
        title = f"Best {objective.metric} so far"
        draw = functools.partial(best_so_far, title=objective.metric)
        about = "Up to each trial, of those within the bounds."
        drawn.append((Figure(f"best-{objective.metric}", title, about, draw), _so_far(found, objective)))
    return drawn


def _so_far(found: SearchResult, objective: Objective) -> Rows:
    rows = []
    best: dict[str, float] = {}
    for one in found.trials:
        if one.is_feasible:
            value = one.figures[objective.metric]
            if one.way not in best or objective.better(value, best[one.way]):
                best[one.way] = value
        if one.way in best:
            rows.append({"trace": one.way, "trial": one.number + 1, "value": best[one.way]})
    return rows


def over_objectives(rows: Rows, x: str, y: str) -> Chart:
    """Draw each trial by its values `x` and `y`, a colour for each way; Pareto-optimal ones are large."""
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
            tooltip=tooltip(rows),
        )
    )


def best_so_far(rows: Rows, title: str) -> Chart:
    """Draw the best `value` up to each `trial`, a colour for each way."""
    return (
        chart_of(rows)
        .mark_line(interpolate="step-after")
        .encode(
            x=alt.X("trial:Q", title="trial"),
            y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=False, padding=8)),
            color=alt.Color(
                "trace:N", title=None, sort=in_order(rows, "trace"), legend=alt.Legend(columns=3, orient="bottom")
            ),
            tooltip=tooltip(rows),
        )
    )
