"""The page of a study: a summary, then tables by input and setting, and charts over varied settings."""

import functools
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import altair as alt

from emmclab import __version__
from emmclab.calibration.fit_sources import Fitted, is_durable, is_of_single_reads, order_note
from emmclab.comparison.seed_statistics import MORE_SEEDS, Spread, untested
from emmclab.pages.assemble import Head, Notice, Provenance, Tile, assemble, lost, note_notices, tile
from emmclab.pages.plots import Chart, Figure, Rows, chart_of, in_order
from emmclab.pages.profile_figures import FIGURES
from emmclab.pages.theme import CATEGORIES, GREY
from emmclab.runtime.document import (
    Bullets,
    Cell,
    Cells,
    Charts,
    Column,
    Heading,
    Note,
    Number,
    Part,
    Row,
    Section,
    TextTable,
    difference_text,
    figure_difference,
    signed,
)
from emmclab.runtime.statistics import CONFIDENCE_TEXT, Interval, mean_interval, positive_interval
from emmclab.simulation.layers import Setting
from emmclab.simulation.result_text import durability_unknown, is_buffered, mode_name
from emmclab.studies.bundled import bundled
from emmclab.studies.grid import REPLAYS
from emmclab.studies.results import Results
from emmclab.studies.summary import (
    Effect,
    Metric,
    Point,
    Ranked,
    Summary,
    average,
    overload_note,
    plain_value,
    setting_text,
    summaries,
)
from emmclab.traces.inputs import ProvenanceFields
from emmclab.traces.profile_fields import TABLES, ledger_line

#: Maximum number of rows in a table; the tables that `query` reads contain all rows.
_MOST_ROWS = 2_000
#: Maximum number of tiles with best values. If there are fewer tiles than the second number, tiles with the numbers of
#: inputs and requests are added.
_MOST_TILES, _LEAST_TILES = 5, 3
#: Maximum number of inputs that are listed for a ranking that does not use all of them.
_NAMED_INPUTS = 3
#: Maximum number of inputs that a chart draws separately. If there are more, it draws their average.
_MOST_LINES = 8
_MOST_OTHERS = 4
#: Names of the figures on the page that describe the inputs of the study.
_OF_INPUTS = ("size_distribution", "response_distribution", "inter_arrival_distribution")
#: Fields in the table of the study's inputs.
_FIELDS = (
    "requests",
    "data_size_kb",
    "mean_size_kb",
    "write_requests_pct",
    "duration_s",
    "no_wait_pct",
    "mean_response_ms",
)


def render(results: Results, study: str = "") -> str:
    """Return the HTML page; equal results produce equal bytes.

    `study` is the argument of `emmclab run`: the path of the study's file; not needed for a bundled study.
    """
    grids = summaries(results)
    drawn = figures(results)
    rows = {figure.name: part for figure, part in drawn}
    points = [(summary, point) for summary in grids for point in summary.points]
    failed = [_reason(*pair, pair[1].failed) for pair in points if pair[1].failed]
    ended = [_reason(*pair, pair[1].ended_early) for pair in points if pair[1].ended_early]
    return assemble(
        [figure for figure, _ in drawn],
        rows,
        list(dict.fromkeys(row["trace"] for part in rows.values() for row in part)),
        title=results.about["name"],
        head=_head(results, grids, [figure for figure, _ in drawn], bool(failed), bool(ended)),
        provenance=provenance(results, study),
        trace_names=[profile.name for profile in results.inputs_once()],
        sections=_sections(results, grids, [figure.name for figure, _ in drawn], failed, ended),
    )


def _reason(summary: Summary, point: Point, reasons: Sequence[str]) -> tuple[str, str]:
    return f"{summary.grid}: {point.input}, {setting_text(point.setting)}: {'; '.join(reasons)}", ""


def _sections(
    results: Results,
    grids: Sequence[Summary],
    drawn: Sequence[str],
    failed: Sequence[tuple[str, str]],
    ended: Sequence[tuple[str, str]],
) -> Iterator[Section]:
    seeds = sorted({cell["seed"] for cell in (*results.runs, *results.failures)})
    if effects := [table for summary in grids if (table := _effects(summary)).rows]:
        rule = (
            "A pair is two runs that differ only in this setting, with the same input, other settings and seed. Pairs: "
            "in how many of them the best value is better. An effect is told apart if the interval over the seeds "
            "excludes 0, or if so many pairs of one sign had a chance below 5 % with equally probable signs."
        )
        yield Section("effects", "Effect of each setting", [*effects, Note(rule)], nav="Effects")
    best: list[Part] = []
    for summary in grids:
        if summary.swept and summary.ranked:
            best += [_answers(summary), Note(_answers_note(summary, len(seeds)))]
    if best:
        yield Section("best", "Best and worst", best, nav="Best")
    if grids:
        parts = [part for summary in grids for part in _results(summary)]
        parts += [Heading("Failed", "failed"), Bullets(failed)] if failed else []
        parts += [Heading("Ended early", "ended"), Bullets(ended)] if ended else []
        yield Section("results", "Results", parts, nav="Results")
    swept = [name for name in drawn if name not in _OF_INPUTS]
    reason = (
        "No metric changes with a swept key." if grids else "The study has no grid: its inputs are characterised below."
    )
    empty = [] if swept else [Note(reason, "quiet")]
    yield Section("figures", "Figures", [Charts(only=swept), *empty], nav="Figures")
    synthetic = [Note(f"Synthetic inputs with seed {seeds[0]}.")] if len(seeds) > 1 else []
    yield Section("inputs", "Inputs", [_inputs(results), *synthetic, Charts(only=_OF_INPUTS)], nav="Inputs")


def _head(results: Results, grids: Sequence[Summary], drawn: Sequence[Figure], failed: bool, ended: bool) -> Head:
    about = results.about
    seeds = sorted({cell["seed"] for cell in (*results.runs, *results.failures)})
    inputs = len(results.inputs_once())
    about_text = f": {about['about']}" if about["about"] else ""
    with_seeds = f", seed{'s' if len(seeds) != 1 else ''} {', '.join(map(str, seeds))}" if seeds else ""
    notices = incomplete(results)
    for is_present, badge, problem in ((failed, "failed", "failed"), (ended, "ended early", "ended early")):
        if is_present:
            text = f"rows of the results have cells that {problem}; figures do not include these cells."
            notices.append(Notice(badge, text, f"#{problem.split(' ', maxsplit=1)[0]}"))
    if note := overload_note(grids):
        notices.append(Notice("overloaded", f"{note}."))
    notices += _free_durability(results)
    notices += note_notices(order_note(_fitted(results, is_durable), _fitted(results, is_of_single_reads)))
    return Head(
        answer=headline(results, grids),
        lead=[
            f"Study {about['name']}{about_text}. {len(results.runs):,} simulations of {inputs} "
            f"input{'s' if inputs != 1 else ''}{_modes(results)}{with_seeds}."
        ],
        tiles=_tiles(results, grids),
        notices=notices,
        picture=drawn[0].name if drawn else "",
    )


def _fitted(results: Results, rule: Callable[[Mapping[str, Any]], bool]) -> dict[str, Fitted]:
    """Return the sources to which each device was fitted that has a run to which the rule applies."""
    fitted = results.about.get("fitted", {})
    names = dict.fromkeys(run.device for run in results.runs if run.device in fitted and rule(run))
    return {name: Fitted(**fitted[name]) for name in names}


def _free_durability(results: Results) -> list[Notice]:
    """Return notices on devices with a volatile cache if the replayed traces requested no durability."""
    texts = {
        run.device: text
        for run in results.runs
        if is_buffered(run) and (text := durability_unknown(run, "`flush_every = 8` in the grid"))
    }
    return [Notice("caution", f"{', '.join(texts)}: {text}") for text in dict.fromkeys(texts.values())]


def _modes(results: Results) -> str:
    """Return a text with the replay modes of the traces; empty if none were replayed."""
    replays = [cell for cell in results.runs if cell.get("options", {}).get("mode") in REPLAYS]
    modes = dict.fromkeys(cell.run.mode for cell in replays)
    return f", {' and '.join(map(mode_name, modes))}" if modes else ""


def incomplete(results: Results) -> list[Notice]:
    """Return a notice about simulations (cells) without a result; empty if all have one."""
    cells = results.about["cells"]
    if not results.missing:
        return []
    share = 100 * results.missing / cells
    text = f"{results.missing:,} of {cells:,} cells ({share:.1f} %) have no result and are not included below."
    return [Notice("incomplete", text)]


def provenance(results: Results, study: str = "", **further: str) -> Provenance:
    """Return the provenance that a study's page shows; `further` adds lines of text by their label."""
    about = results.about
    study = study or (about["name"] if about["name"] in bundled() else "")
    reading = ", ".join(f"{key} = {value}" for key, value in (about.get("reading") or {}).items())
    facts = {
        "Results": f"SHA-256 {results.digest} of all {about['cells']:,} results, for any number of processes",
        "As tables": " ".join(['emmclab query "select * from runs" --study', about["name"]]),
        "Recorded inputs": f"read with {reading}" if reading else "",
        **further,
    }
    ledgers = [profile["ledger"] for profile in results.profiles.values()]
    command = command_of(["run", study], about.get("reading") or {}) if study else ""
    source = command or f"Study {about['name']}"
    summary = f"{source}: {about['cells']:,} results, SHA-256 {results.digest[:16]}"
    lines = [(name, text) for name, text in facts.items() if text]
    return Provenance(summary, lines, lost(ledgers), study_provenance(results, command))


def study_provenance(results: Results, command: str) -> ProvenanceFields:
    """Return the group `provenance` of a study: the command that runs it, and its recorded inputs."""
    recorded = [profile for profile in results.inputs_once() if profile.get("trace_digest")]
    fields: ProvenanceFields = {"version": __version__}
    if command:
        fields["command"] = command
    fields["inputs"] = [{"name": profile.name, "sha256": profile["trace_digest"]} for profile in recorded]
    return fields


def command_of(command: Sequence[str], reading: Mapping[str, Setting]) -> str:
    """Return `command` with the options for reading traces, as a command line."""
    words = ["emmclab", *command]
    for key, value in reading.items():
        for part in value if isinstance(value, list) else [value]:
            words += [f"--{key.replace('_', '-')}", *([] if part is True else [str(part)])]
    return shlex.join(words)


def _tiles(results: Results, grids: Sequence[Summary]) -> list[Tile]:
    """Return tiles with the best value by each of the first metrics.

    If there are few metrics, further tiles contain the numbers of inputs and requests.
    """
    first_ranked = [(first_ranked, summary) for summary in grids for first_ranked in summary.ranked][:_MOST_TILES]
    tiles = [
        Tile(
            first_ranked.metric.label,
            first_ranked.metric.text(
                by_key.best_mean if (by_key := _by_key(first_ranked)) else first_ranked.best_value.mean
            ),
            note=_tile_note(first_ranked, summary),
        )
        for first_ranked, summary in first_ranked
    ]
    if len(tiles) < _LEAST_TILES:
        profiles = results.inputs_once()
        tiles.append(Tile("Inputs", f"{len(profiles):,}"))
        tiles.append(tile("Requests", sum(first_ranked["requests"] for first_ranked in profiles), digits=12))
    return tiles


def _tile_note(ranked: Ranked, summary: Summary) -> str:
    if summary.swept and ranked.is_equal:
        return "every setting"
    if not summary.swept:
        return setting_text(ranked.best)
    if (first := _by_key(ranked)) is not None:
        return f"{setting_text(((first.key, first.best),))}{_within(ranked)}"
    if not ranked.is_distinguishable:
        return "settings not told apart"
    return _with_indistinguishable(ranked)


def _with_indistinguishable(ranked: Ranked) -> str:
    """Return the best setting, with the settings that cannot be distinguished from it."""
    others = len(ranked.indistinguishable)
    if not others:
        return setting_text(ranked.best)
    name = f"{others} others" if others > 1 else setting_text(ranked.indistinguishable[0])
    return f"{setting_text(ranked.best)} (not told apart from {name})"


def headline(results: Results, grids: Sequence[Summary]) -> str:
    """Return a line with the best setting and its advantage, if the seeds distinguish the settings."""
    for summary in grids:
        for ranked in summary.ranked:
            if not summary.swept:
                value = ranked.metric.text(ranked.best_value.mean)
                return f"{value} {_lower(ranked.metric.label)} on {setting_text(ranked.best)}"
            return _ranking(ranked)
    if results.failures:
        return f"{len(results.failures):,} of {results.about['cells']:,} cells failed"
    return f"{len(results.inputs_once()):,} inputs characterised"


def _ranking(ranked: Ranked) -> str:
    label, text = _lower(ranked.metric.label), ranked.metric.text
    best, worst = ranked.best_value.mean, ranked.worst_value.mean
    if ranked.is_equal:
        return f"No setting changes the {label}: {text(best)}"
    one_seed = f"; {untested(MORE_SEEDS)}" if ranked.seeds < 2 else ""
    if (first := _by_key(ranked)) is not None:
        return f"{_effect_line(ranked, first)}{_of_inputs(ranked)}{_within(ranked)}{one_seed}"
    if not ranked.is_distinguishable:
        seeds = f"{ranked.seeds} seeds do" if ranked.seeds > 1 else "One seed does"
        interval = f", {_interval(ranked)}" if ranked.interval else ""
        return (
            f"{seeds} not tell the settings apart by {label}: means of {text(best)} to {text(worst)}"
            f"{interval}{one_seed}"
        )
    return (
        f"{_with_indistinguishable(ranked)} has the {_first(ranked)} {label}{_of_inputs(ranked)}: {text(best)}, "
        f"{_distance(best, worst)} {setting_text(ranked.worst)}{one_seed}"
    )


def _by_key(ranked: Ranked) -> Effect | None:
    """Return the strongest effect of a varied setting; None if the best combination is clear, or only one varies."""
    is_clear = ranked.is_distinguishable and not ranked.indistinguishable
    return None if is_clear or len(ranked.effects) < 2 else ranked.strongest


def _first(ranked: Ranked) -> str:
    return "highest" if ranked.metric.highest_is_best else "lowest"


def _distance(best: float, worst: float) -> str:
    """Return how far the best value is above or below the worst, in percent of the worst."""
    share = round(abs(100 - 100 * best / worst)) if worst else 0
    amount = f"{share}\u00a0%" if share >= 1 else "less than 1\u00a0%"
    return f"{amount} {'below' if best < worst else 'above'}"


def _effect_line(ranked: Ranked, effect: Effect) -> str:
    """Return the effect of a varied setting in words, with the number of paired runs that show it."""
    best, worst = (setting_text(((effect.key, value),)) for value in (effect.best, effect.worst))
    label, value = _lower(ranked.metric.label), ranked.metric.text(effect.best_mean)
    agreeing = "all" if effect.agreeing == effect.pairs else f"{effect.agreeing:,} of"
    return (
        f"{best} has the {_first(ranked)} {label}: {value}, {_distance(effect.best_mean, effect.worst_mean)} {worst}, "
        f"in {agreeing} {effect.pairs:,} pairs of runs that differ only in it"
    )


def _within(ranked: Ranked) -> str:
    """Return a text on the effect of the other varied settings, if the strongest one has its best value."""
    if (inside := ranked.within) is None:
        return ""
    if inside.is_equal:
        return "; the other settings do not change it"
    if inside.is_distinguishable:
        return f"; with it, {_with_indistinguishable(inside)} is best: {inside.metric.text(inside.best_value.mean)}"
    return "; the other settings are not told apart"


def _of_inputs(ranked: Ranked) -> str:
    """Return a text that names or counts the inputs of a ranking; empty if the ranking uses all inputs."""
    used, total = len(ranked.inputs), ranked.all_inputs
    if used == total:
        return ""
    return f" over {', '.join(ranked.inputs) if used <= _NAMED_INPUTS else f'{used} inputs'} of {total} inputs"


def _interval(ranked: Ranked) -> str:
    """Return the confidence interval of the difference between worst and best setting; empty for a single seed."""
    return _bounds(ranked.interval, ranked.metric)


def _bounds(interval: Interval | None, metric: Metric) -> str:
    if interval is None:
        return ""
    unit = "points" if metric.unit == "%" else "%"
    low, high = (f"{bound:+,.3g}" for bound in interval)
    if low == high:
        return "the same with every seed"
    bounds = f"{low} to {high}"
    return f"{CONFIDENCE_TEXT} interval of the difference {bounds} {unit}"


def _lower(label: str) -> str:
    return label[:1].lower() + label[1:]


def _ranking_columns(summary: Summary, *middle: Column) -> list[str | Column]:
    """Return the headings of a table that contains the best and the worst setting."""
    best, worst = (Column(name, is_text=True) for name in ("Best", "Worst"))
    return [summary.grid, *middle, best, "Value", worst, "Value", "Worst against best"]


def _answers(summary: Summary) -> TextTable:
    """Return the best and the worst setting by each metric."""
    rows: list[Cells] = []
    for ranked in summary.ranked:
        metric, means = ranked.metric, (ranked.best_value.mean, ranked.worst_value.mean)
        best, worst = map(metric.text, means)
        if ranked.is_equal:
            rows.append([metric.label, "every setting", best, "", "", ""])
            continue
        if ranked.seeds < 2:
            note = "one seed" if ranked.is_distinguishable else "one seed, not told apart"
        else:
            note = _interval(ranked) if ranked.is_distinguishable else f"not told apart; {_interval(ranked)}"
        if of_inputs := _of_inputs(ranked):
            note = f"{note};{of_inputs}" if note else of_inputs.lstrip()
        against = difference_text(figure_difference(*means, is_share=metric.unit == "%"))
        worst_setting = setting_text(ranked.worst)
        rows.append([metric.label, _with_indistinguishable(ranked), best, worst_setting, worst, Cell(against, note)])
    title, headings = f"Best and worst of {summary.grid}", _ranking_columns(summary)
    return TextTable(title, headings, rows, style="matrix folds numbers")


def _answers_note(summary: Summary, seeds: int) -> str:
    most = max(len(ranked.inputs) for ranked in summary.ranked)
    means = ": geometric mean of times and write amplification, mean of shares" if most > 1 else ""
    over = f"; mean over {seeds} seeds" if seeds > 1 else ""
    idle = [
        key
        for key in summary.swept
        if not any(
            _changes([point for point in summary.points if metric.name in point.figures], key, metric)
            for metric in summary.metrics
        )
    ]
    without = f" No effect on these metrics: {', '.join(idle)}." if idle else ""
    return f"Over {most} input{'s' if most != 1 else ''}{means}{over}.{without}"


def _effects(summary: Summary) -> TextTable:
    """Return a table of the effect of each varied setting on each metric that it changes, largest first."""
    rows: list[Cells] = []
    for ranked in summary.ranked:
        notable = [each for each in ranked.effects if each.pairs > 1 and not ranked.is_alike(each)]
        for effect in sorted(notable, key=lambda each: -abs(ranked.change_of(each))):
            unit = "points" if ranked.metric.unit == "%" else "%"
            note = "" if effect.is_told else "not told apart"
            notes = "; ".join(filter(None, (note, _bounds(effect.interval, ranked.metric))))
            change = f"{signed(ranked.change_of(effect), 2 if unit == 'points' else 1)} {unit}"
            rows.append(
                [
                    *(ranked.metric.label, effect.key),
                    *(plain_value(effect.best), ranked.metric.text(effect.best_mean)),
                    *(plain_value(effect.worst), ranked.metric.text(effect.worst_mean)),
                    Cell(change, notes),
                    f"{effect.agreeing:,}\u00a0of\u00a0{effect.pairs:,}",
                ]
            )
    headings = [*_ranking_columns(summary, Column("Setting", is_text=True)), "Pairs"]
    return TextTable(f"Effects in {summary.grid}", headings, rows, style="matrix folds numbers")


def _results(summary: Summary) -> list[Part]:
    """Return the table of the figures of each input with each setting, below a heading."""
    keys = list(summary.swept) or ["device"]
    rows: list[Cells] = [
        [
            Cell(_badge(point), badge="no", before=point.input) if _badge(point) else point.input,
            *(plain_value(value) for _, value in point.setting),
            *(_cell(metric, point.figures.get(metric.name)) for metric in summary.metrics),
        ]
        for point in summary.points[:_MOST_ROWS]
    ]
    headings: list[str | Column] = ["Input", *(Column(key, is_text=True) for key in keys)]
    headings += [Column(metric.label, metric.unit) for metric in summary.metrics]
    remarks = []
    if any(point.seeds > 1 for point in summary.points):
        remarks.append("Mean over the seeds, with the lowest and highest in brackets.")
    if (more := len(summary.points) - _MOST_ROWS) > 0:
        remarks.append(f"{more:,} more rows are in the table `runs` of `emmclab query`.")
    table = TextTable(f"Results of {summary.grid}", headings, rows, style="sortable folds")
    return [Heading(summary.grid), table, *([Note(" ".join(remarks))] if remarks else [])]


def _badge(point: Point) -> str:
    if point.failed:
        return "failed"
    if point.ended_early:
        return "ended early"
    return "overloaded" if point.overloaded else ""


def _cell(metric: Metric, spread: Spread | None) -> Number:
    """Return a table cell with the mean of a metric, and its range over the seeds if the values differ."""
    if spread is None:
        return Number("–", None)
    mean, low, high = map(metric.number, spread)
    return Number(mean if low == high else f"{mean} ({low} to {high})", spread.mean)


def figures(results: Results) -> list[tuple[Figure, Rows]]:
    """Return a chart of each metric by each varied setting that changes it, then charts of the inputs."""
    drawn = [
        chart
        for summary in summaries(results)
        for key in summary.swept
        for metric in summary.metrics
        if (chart := _over(summary, key, metric)) is not None
    ]
    profiles = results.inputs_once()
    chosen = [figure for figure in FIGURES if figure.name in _OF_INPUTS and profiles]
    return drawn + [(figure, rows) for figure in chosen if figure.can_draw(rows := figure.rows(profiles))]


def _over(summary: Summary, key: str, metric: Metric) -> tuple[Figure, Rows] | None:
    points = [point for point in summary.points if metric.name in point.figures]
    if not _changes(points, key, metric):
        return None
    averaged = []
    inputs = list(dict.fromkeys(point.input for point in points))
    if len(inputs) > _MOST_LINES:
        averaged.append(f"{len(inputs)} inputs")
    others = dict.fromkeys(_others(point, key) for point in points)
    if len(others) > _MOST_OTHERS:
        averaged.append(f"{len(others)} combinations of the other settings")
    groups: dict[tuple[str, str, str], list[dict[int, float]]] = {}
    for point in points:
        trace = "all inputs" if len(inputs) > _MOST_LINES else point.input
        other = "all other settings" if len(others) > _MOST_OTHERS else _others(point, key)
        coordinates = (trace, plain_value(dict(point.setting)[key]), other)
        groups.setdefault(coordinates, []).append(point.by_seed[metric.name])
    kind = "mean" if metric.unit == "%" else "geometric mean"
    about = f"Grid {summary.grid}. " + (f"A point is the {kind} of {' and '.join(averaged)}. " if averaged else "")
    rows = [_row(coordinates, by_seed, metric) for coordinates, by_seed in groups.items()]
    if any(row["low"] < row["high"] for row in rows):
        about += f"Vertical bars are the {CONFIDENCE_TEXT} confidence interval of the mean over the seeds."
    name = f"{summary.grid}-{key.replace('.', '_')}-{metric.name}"
    title = f"{metric.label}, {metric.unit}" if metric.unit else metric.label
    return (
        Figure(name, f"{metric.label} by {key}", about.strip(), functools.partial(over_values, key=key, title=title)),
        rows,
    )


def _changes(points: Sequence[Point], key: str, metric: Metric) -> bool:
    """Return whether a metric changes with a varied setting if all other settings are equal."""
    values: dict[tuple[str, str], set[str]] = {}
    for point in points:
        text = metric.text(point.figures[metric.name].mean)
        values.setdefault((point.input, _others(point, key)), set()).add(text)
    return any(len(texts) > 1 for texts in values.values())


def _row(coordinates: tuple[str, str, str], points: Sequence[dict[int, float]], metric: Metric) -> Row:
    """Return a chart row: the mean over the seeds with its confidence interval. Points are first averaged by seed."""
    seeds = [seed for seed in points[0] if all(seed in values for values in points)]
    if seeds:
        shares = metric.unit == "%"
        values = [average([point[seed] for point in points], arithmetic=shares) for seed in seeds]
    else:
        values = [average([value for point in points for value in point.values()])]
    mean = sum(values) / len(values)
    interval = (mean_interval if metric.unit == "%" else positive_interval)(values) or (mean, mean)
    trace, setting, others = coordinates
    low, high = min(interval[0], mean), max(interval[1], mean)
    return {"trace": trace, "setting": setting, "others": others, "value": mean, "low": low, "high": high}


def _others(point: Point, key: str) -> str:
    return setting_text(tuple(pair for pair in point.setting if pair[0] != key))


def _inputs(results: Results) -> TextTable:
    """Return the table of the inputs: figures of each trace, counts of its records, and digest of its file."""
    by_name = {field.name: field for _, fields in TABLES for field in fields}
    fields = [by_name[name] for name in _FIELDS]
    recorded = set(results.about.get("recorded_inputs", []))
    rows: list[Cells] = []
    for profile in results.inputs_once():
        digest = profile.get("trace_digest")
        rows.append(
            [
                *(profile.name, "recorded" if profile.name in recorded else "synthetic"),
                *(Number(field.text(profile[field.name]), profile[field.name]) for field in fields),
                Cell(ledger_line(profile["ledger"]) + (f"; SHA-256 `{digest}`" if digest else "")),
            ]
        )
    kind, ledger = (Column(name, is_text=True) for name in ("Kind", "Ledger"))
    headings: list[str | Column] = ["Input", kind, *(field.column for field in fields), ledger]
    return TextTable("Table of inputs", headings, rows, style="sortable folds")


#: Ratio of the largest to the smallest value above which the axis is logarithmic.
_FAR_APART = 30


def over_values(rows: Rows, key: str, title: str) -> Chart:
    """Draw `value` by `setting`, a colour for each `trace`, with vertical bars from `low` to `high`.

    Numeric settings are joined by lines, with a dash pattern for each combination of `others` (further settings).
    Non-numeric settings have no order: each is drawn as a bar, or as a point if the axis is logarithmic, where bars
    would have no base.
    """
    values = [row["value"] for row in rows]
    logarithmic = min(values) > 0 and max(values) > _FAR_APART * min(values)
    return _lines(rows, key, title, logarithmic) if is_numeric(rows) else _bars(rows, key, title, logarithmic)


def is_numeric(rows: Rows) -> bool:
    """Return whether all settings are numbers, so that lines between them are meaningful.

    >>> is_numeric([{"setting": "5"}, {"setting": "7.5"}]), is_numeric([{"setting": "fifo"}])
    (True, False)
    """
    return all(_is_number(row["setting"]) for row in rows)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _base(rows: Rows, key: str) -> Chart:
    return chart_of(rows).encode(
        x=alt.X(
            "setting:N",
            sort=in_order(rows, "setting"),
            title=key,
            # Every setting keeps its label, even on a narrow screen.
            axis=alt.Axis(labelAngle=-20, labelLimit=120, labelOverlap=False),
        ),
        color=alt.Color(
            "trace:N",
            title=None,
            sort=in_order(rows, "trace"),
            legend=alt.Legend(columns=2, orient="bottom", labelLimit=180),
        ),
    )


def _legend_of_others(rows: Rows, symbol: str) -> alt.Legend | None:
    """Return the legend of the settings that are not on the axis; None if all rows have equal values of them."""
    if len(in_order(rows, "others")) < 2:
        return None
    colour = CATEGORIES[0] if len(in_order(rows, "trace")) == 1 else GREY
    return alt.Legend(
        columns=1, orient="bottom", labelLimit=320, symbolType=symbol, symbolFillColor=colour, symbolStrokeColor=colour
    )


def _lines(rows: Rows, key: str, title: str, logarithmic: bool) -> Chart:
    scale = alt.Scale(type="log") if logarithmic else alt.Scale(zero=False, padding=8)
    axis = alt.Axis(tickCount=5, format="~r") if logarithmic else alt.Undefined
    others = in_order(rows, "others")
    chart = _base(rows, key).encode(
        strokeDash=alt.StrokeDash("others:N", title=None, sort=others, legend=_legend_of_others(rows, "stroke"))
    )
    y = alt.Y("value:Q", title=title, scale=scale, axis=axis)
    lines = chart.mark_line().encode(y=y)
    points = chart.mark_point(filled=True, size=45).encode(y=y)
    spread = chart.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", title=title, scale=scale, axis=axis), y2="high:Q")
    return lines + spread + points


def _bars(rows: Rows, key: str, title: str, logarithmic: bool) -> Chart:
    """Draw a value by setting, with bars or points side by side for each trace and combination of other settings."""
    others = in_order(rows, "others")
    chart = (
        _base(rows, key)
        .transform_calculate(place="datum.trace + ', ' + datum.others")
        .encode(xOffset=alt.XOffset("place:N", sort=[f"{row['trace']}, {row['others']}" for row in rows], title=None))
    )
    scale = alt.Scale(type="log") if logarithmic else alt.Undefined
    axis = alt.Axis(tickCount=5, format="~r") if logarithmic else alt.Undefined
    y = alt.Y("value:Q", title=title, scale=scale, axis=axis)
    if logarithmic:
        shape = alt.Shape("others:N", title=None, sort=others, legend=_legend_of_others(rows, "circle"))
        values = chart.mark_point(filled=True, size=45).encode(y=y, shape=shape)
    else:
        opacity = alt.Opacity(
            "others:N",
            title=None,
            sort=others,
            scale=alt.Scale(range=[1.0, 0.35]),
            legend=_legend_of_others(rows, "square"),
        )
        values = chart.mark_bar().encode(y=y, opacity=opacity)
    # Error bars are grey, because they would be invisible in the colour of the bar.
    rule = chart if logarithmic else chart.encode(color=alt.value("#888"))
    spread = rule.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", title=title, scale=scale, axis=axis), y2="high:Q")
    return values + spread
