"""The page of `emmclab validate`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from emmclab.calibration import validation_text as words
from emmclab.calibration.validation import Validation
from emmclab.calibration.validation_groups import WITHIN_PCT
from emmclab.pages import plots
from emmclab.pages.assemble import assemble
from emmclab.pages.first_screen import Head, Notice, Provenance, Tile, lost, tile
from emmclab.pages.plots import Chart, Figure, Rows
from emmclab.runtime.document import Bullets, Charts, Heading, Note, Part, Row, Section
from emmclab.runtime.files import write_atomically
from emmclab.runtime.number_format import signed
from emmclab.traces.inputs import ProvenanceFields
from emmclab.traces.profile_fields import ledger_line

#: Name of the recorded times in comparisons with models.
_RECORDED = "recorded"
#: Ticks of the axis of ratios.
_RATIOS = [part * 10.0**power for power in range(-4, 5) for part in (1, 2, 5)]
#: Minimum range of the axis, as a ratio.
_LEAST_SHOWN = 2.0
#: Titles of the axes of the errors by group.
_AXES = {
    "size": "size",
    "idle": "idle time before the request",
    "queue": "requests unfinished at arrival",
    "operation": "operation",
}


def write_validation(
    found: Sequence[Validation], html: Path, made: ProvenanceFields, refused: Sequence[Mapping[str, str | None]]
) -> None:
    """Write the page; the same findings produce the same bytes."""
    rows = {"curves": list(_curves(found)), **{name: list(_errors(found, name)) for name in _AXES}}
    write_atomically(
        html,
        assemble(
            "document.html.j2",
            _FIGURES,
            rows,
            [one.trace for one in found],
            title=f"Validation with {', '.join(one.trace for one in found)}",
            sections=_sections(found, refused),
            head=_head(found, refused),
            provenance=Provenance(
                f"{ledger_line(found[0].ledger)}{f', and {len(found) - 1} more' if len(found) > 1 else ''}",
                lost=lost([one.ledger for one in found]),
                made=made,
            ),
        ),
    )


def _sections(found: Sequence[Validation], refused: Sequence[Mapping[str, str | None]]) -> Iterator[Section]:
    overview = words.overview(found)
    limits = (
        "The table of medians is no device: it predicts each request by the median of the first half for its "
        "operation and size. The last row of a recording compares its two halves as recorded; no model that "
        "is fitted to the first half can predict this difference."
    )
    errors = overview._replace(title="Table of errors")
    yield Section("overview", overview.title, [errors, Note(limits)], nav="Errors")
    charts = Charts("No group has enough requests.")
    yield Section("figures", "Where the model is right and where it is wrong", [charts], nav="Figures")
    if refused:
        reasons = [(one["reason"] or "", one["hint"] or "") for one in refused]
        yield Section("refused", "Not judged", [Bullets(reasons)])
    for number, one in enumerate(found, 1):
        parts: list[Part] = []
        if len(found) > 1:
            parts += [Note(f"{words.headline(one)}.", ""), Note(_sentence(words.method(one)), "quiet")]
        parts += [Note(text, "quiet") for text in words.notes(one)]
        times = words.times(one)
        parts += [Heading(times.title), times._replace(title=f"Table of times, {one.trace}", words=1)]
        for table in (table for model in one.simulated for table in words.groups(model)):
            parts += [Heading(table.title), table._replace(title=f"{table.title}, {one.trace}")]
        if few := words.few_note(one.main.judgement):
            parts.append(Note(f"{few}."))
        yield Section(f"recording-{number}", one.trace, parts, nav="Groups" if number == 1 else "")


def _curves(found: Sequence[Validation]) -> Iterator[Row]:
    """Yield the points of the distributions; the last point of a recording is its maximum."""
    for one in found:
        for number, model in enumerate(one.simulated):
            for percentile, recorded, predicted in model.judgement.curve:
                if not number:
                    yield _point(one.trace, _RECORDED, percentile, recorded)
                yield _point(one.trace, model.name, percentile, predicted)


def _point(trace: str, times: str, percentile: float, ms: float) -> Row:
    return {"trace": trace, "times": times, "response_ms": ms, "cumulative_pct": percentile}


def _errors(found: Sequence[Validation], name: str) -> Iterator[Row]:
    """Yield the error of the median of each group with enough requests."""
    for one in found:
        for model in one.simulated:
            for group in model.judgement.groups[name]:
                if not group.is_few and (ratio := group.ratio):
                    yield {
                        "trace": one.trace,
                        "model": model.name,
                        "group": group.label,
                        "requests": group.recorded.requests,
                        "recorded_ms": group.recorded.median_ms,
                        "predicted_ms": group.predicted.median_ms,
                        "error_pct": 100 * (ratio - 1),
                        "ratio": ratio,
                    }


def _curve(rows: Rows) -> Chart:
    """Draw the share of requests by response time: recorded, and predicted by each model."""
    return (
        plots.chart_of([row for row in rows if row["response_ms"] > 0])
        .mark_line(interpolate="step-before")
        .encode(
            x=alt.X(
                "response_ms:Q",
                title="response, ms",
                scale=alt.Scale(type="log", nice=False),
                axis=alt.Axis(format="~r", tickCount=6),
            ),
            y=alt.Y("cumulative_pct:Q", title="requests at most as long, %"),
            color=alt.Color("times:N", title=None, sort=plots.in_order(rows, "times")),
            strokeDash=alt.StrokeDash("times:N", legend=None, sort=plots.in_order(rows, "times")),
            tooltip=plots.tooltip(rows),
        )
    )


def _error_by(title: str) -> Any:
    """Return a function that draws ratios by group, a colour for each model; the axis is logarithmic."""

    def draw(rows: Rows) -> Chart:
        models = plots.in_order(rows, "model")
        ratios = [row["ratio"] for row in rows]
        ends = [min(*ratios, 1 / _LEAST_SHOWN), max(*ratios, _LEAST_SHOWN)]
        return (
            plots.chart_of(rows)
            .mark_bar()
            .encode(
                x=alt.X(
                    "group:N",
                    title=title,
                    sort=plots.in_order(rows, "group"),
                    axis=alt.Axis(labelAngle=-40, labelOverlap=False),
                ),
                y=alt.Y(
                    "ratio:Q",
                    title="simulated / recorded",
                    scale=alt.Scale(type="log", domain=ends),
                    axis=alt.Axis(format="~r", values=_RATIOS, labelOverlap=True),
                ),
                y2=alt.datum(1),
                xOffset=alt.XOffset("model:N", sort=models),
                color=alt.Color("model:N", title=None, sort=models),
                tooltip=plots.tooltip(rows),
            )
        )

    return draw


_FIGURES = (
    Figure(
        "curves",
        "Recorded and simulated response times",
        "Second half of the recording; a line left of the recorded one is too fast.",
        _curve,
        each=True,
        wide=True,
    ),
    *(
        Figure(
            name,
            f"Error by {title}",
            "Median of the simulated response times over that of the recorded ones; above 1 the model is too "
            "slow. Groups with too few requests are left out.",
            _error_by(title),
            each=True,
        )
        for name, title in _AXES.items()
    ),
)


def _head(found: Sequence[Validation], refused: Sequence[Mapping[str, str | None]]) -> Head:
    """Return the headline: of the recording, or of each if there are several."""
    first = found[0]
    several = len(found) > 1
    met = [one.main.judgement.response.within_pct[WITHIN_PCT.index(words.SAID_PCT)] for one in found]
    answer = (
        f"{len(found)} recordings: {min(met):.0f} to {max(met):.0f} % of the requests are met within "
        f"{words.SAID_PCT} % of the recorded response time"
        if several
        else words.headline(first)
    )
    tiles = [
        Tile(one.trace, f"{share:.0f} %", note=f"met within {words.SAID_PCT} %, {one.main.name}")
        for one, share in zip(found[:6], met, strict=False)
    ]
    response = first.main.judgement.response
    if not several:
        pairs = (
            ("Mean", response.error.mean_pct, response.recorded.mean_ms),
            ("Median", response.error.median_pct, response.recorded.median_ms),
            ("p90", response.error.p90_pct, response.recorded.p90_ms),
            ("p99", response.error.p99_pct, response.recorded.p99_ms),
        )
        tiles += [
            Tile(name, "–" if error is None else f"{signed(error)} %", note=f"recorded {tile('', ms, 'ms').value}")
            for name, error, ms in pairs
        ]
    lead = [f"{words.headline(one)}." for one in found] if several else [_sentence(words.method(first))]
    return Head(answer=answer, lead=lead, tiles=tiles, notices=_refusal_notices(found, refused), picture="curves")


def _refusal_notices(found: Sequence[Validation], refused: Sequence[Mapping[str, str | None]]) -> list[Notice]:
    """Return a notice on the recordings that could not be judged; the reasons are in a separate section."""
    if not refused:
        return []
    text = f"{len(refused)} of {len(refused) + len(found)} recordings cannot be judged."
    return [Notice("not judged", text, "#refused")]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
