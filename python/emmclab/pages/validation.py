"""The page of `emmclab validate`."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import altair as alt

from emmclab.calibration import validation_text as texts
from emmclab.calibration.validation import Validation
from emmclab.calibration.validation_groups import WITHIN_PCT
from emmclab.pages import plots
from emmclab.pages.assemble import Head, Notice, Provenance, Tile, assemble, lost, tile
from emmclab.pages.plots import Chart, Figure, Rows
from emmclab.runtime.document import Bullets, Charts, Heading, Note, Part, Row, Section, signed
from emmclab.runtime.files import write_atomically
from emmclab.traces.inputs import ProvenanceFields
from emmclab.traces.profile_fields import ledger_line

#: Name of the recorded times in charts that compare them with models.
_RECORDED = "recorded"
#: Axis titles of the charts of errors, by the property that groups the requests.
_AXES = {
    "size": "size",
    "idle": "idle time before the request",
    "queue": "requests unfinished at arrival",
    "operation": "operation",
}


def write_validation(
    results: Sequence[Validation], html: Path, provenance: ProvenanceFields, refused: Sequence[Mapping[str, str | None]]
) -> None:
    """Write the HTML page; equal results produce equal bytes."""
    rows = {"curves": list(_curves(results)), **{name: list(_errors(results, name)) for name in _AXES}}
    write_atomically(
        html,
        assemble(
            _FIGURES,
            rows,
            [row.trace for row in results],
            title=f"Validation with {', '.join(row.trace for row in results)}",
            sections=_sections(results, refused),
            head=_head(results, refused),
            provenance=Provenance(
                f"{ledger_line(results[0].ledger)}{f', and {len(results) - 1} more' if len(results) > 1 else ''}",
                lost=lost([row.ledger for row in results]),
                made=provenance,
            ),
        ),
    )


def _sections(results: Sequence[Validation], refused: Sequence[Mapping[str, str | None]]) -> Iterator[Section]:
    overview = texts.overview(results)
    limits = (
        "The table of medians is not a device: it predicts the time of each request as the median of the first half "
        "for its operation and size. The last row of a recording compares the recorded times of its two halves; no "
        "model that is fitted to the first half can predict this difference."
    )
    errors = overview._replace(title="Table of errors")
    yield Section("overview", overview.title, [errors, Note(limits)], nav="Errors")
    charts = Charts("No group has enough requests.")
    yield Section("figures", "Errors of the model by group", [charts], nav="Figures")
    if refused:
        reasons = [(row["reason"] or "", row["hint"] or "") for row in refused]
        yield Section("refused", "Not validated", [Bullets(reasons)])
    for number, row in enumerate(results, 1):
        parts: list[Part] = []
        if len(results) > 1:
            parts += [Note(f"{texts.headline(row)}.", ""), Note(_sentence(texts.method(row)), "quiet")]
        parts += [Note(text, "quiet") for text in texts.notes(row)]
        times = texts.times(row)
        parts += [Heading(times.title), times._replace(title=f"Table of times, {row.trace}", words=1)]
        for table in (table for model in row.simulated for table in texts.groups(model)):
            parts += [Heading(table.title), table._replace(title=f"{table.title}, {row.trace}")]
        if few := texts.few_note(row.main.judgement):
            parts.append(Note(f"{few}."))
        yield Section(f"recording-{number}", row.trace, parts, nav="Groups" if number == 1 else "")


def _curves(results: Sequence[Validation]) -> Iterator[Row]:
    """Yield the points of the distributions of response times; the last point of a recording is its maximum."""
    for row in results:
        for number, model in enumerate(row.simulated):
            for percentile, recorded, predicted in model.judgement.curve:
                if not number:
                    yield _point(row.trace, _RECORDED, percentile, recorded)
                yield _point(row.trace, model.name, percentile, predicted)


def _point(trace: str, times: str, percentile: float, ms: float) -> Row:
    return {"trace": trace, "times": times, "response_ms": ms, "cumulative_pct": percentile}


def _errors(results: Sequence[Validation], name: str) -> Iterator[Row]:
    """Yield the error of the median of each group with enough requests."""
    for row in results:
        for model in row.simulated:
            for group in model.judgement.groups[name]:
                if not group.is_few and (ratio := group.ratio):
                    yield {
                        "trace": row.trace,
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
        plots.bare_chart([row for row in rows if row["response_ms"] > 0])
        .mark_line(interpolate="step-before")
        .encode(
            x=alt.X(
                "response_ms:Q",
                title="response, ms",
                scale=alt.Scale(type="log", nice=False),
                axis=alt.Axis(format="~r", tickCount=6),
            ),
            y=alt.Y("cumulative_pct:Q", title="requests up to this response time, %"),
            color=alt.Color("times:N", title=None, sort=plots.in_order(rows, "times")),
            strokeDash=alt.StrokeDash("times:N", legend=None, sort=plots.in_order(rows, "times")),
            tooltip=plots.tooltip(rows),
        )
    )


def _error_by(title: str, rows: Rows) -> Chart:
    """Draw the error ratio of each group, a colour for each model, on a logarithmic axis."""
    models = plots.in_order(rows, "model")
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
            y=alt.Y("ratio:Q", title="simulated / recorded", **plots.ratio_axis(rows)),
            y2=alt.datum(1),
            xOffset=alt.XOffset("model:N", sort=models),
            color=alt.Color("model:N", title=None, sort=models),
        )
    )


_FIGURES = (
    Figure(
        "curves",
        "Recorded and simulated response times",
        "Second half of the recording; a model left of the recorded line is too fast.",
        _curve,
        each=True,
        wide=True,
    ),
    *(
        Figure(
            name,
            f"Error by {title}",
            "Median of the simulated response times divided by the median of the recorded ones; above 1 the model is "
            "too slow. Groups with too few requests are left out.",
            partial(_error_by, title),
            each=True,
        )
        for name, title in _AXES.items()
    ),
)


def _head(results: Sequence[Validation], refused: Sequence[Mapping[str, str | None]]) -> Head:
    """Return the first screen, for one recording or for several."""
    first = results[0]
    several = len(results) > 1
    shares = [row.main.judgement.response.within_pct[WITHIN_PCT.index(texts.SAID_PCT)] for row in results]
    answer = (
        f"{len(results)} recordings: {min(shares):.0f} to {max(shares):.0f} % of the simulated response times are "
        f"within {texts.SAID_PCT} % of the recorded ones"
        if several
        else texts.headline(first)
    )
    tiles = [
        Tile(row.trace, f"{share:.0f} %", note=f"within {texts.SAID_PCT} %, {row.main.name}")
        for row, share in zip(results[:6], shares, strict=False)
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
    lead = [f"{texts.headline(row)}." for row in results] if several else [_sentence(texts.method(first))]
    return Head(answer=answer, lead=lead, tiles=tiles, notices=_refusal_notices(results, refused), picture="curves")


def _refusal_notices(results: Sequence[Validation], refused: Sequence[Mapping[str, str | None]]) -> list[Notice]:
    """Return a notice on the recordings that could not be validated; a separate section contains the reasons."""
    if not refused:
        return []
    text = f"{len(refused)} of {len(refused) + len(results)} recordings cannot be validated."
    return [Notice("not validated", text, "#refused")]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
