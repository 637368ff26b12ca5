"""The page of `emmclab advise`."""

from collections.abc import Iterator
from pathlib import Path

import altair as alt

from emmclab.advice.advise import FIGURES, ORDERS, Advised, measurement_text
from emmclab.advice.tables import journal_table, lives_table, options_table
from emmclab.pages import plots
from emmclab.pages.assemble import Head, Notice, Provenance, Tile, assemble, lost, tile
from emmclab.runtime.document import Note, Part, Section, signed
from emmclab.runtime.files import write_atomically
from emmclab.simulation.result_text import device_before, mode_line
from emmclab.traces.profile_fields import ledger_line

#: Maximum number of recommended options on the first screen of the page.
_BEST = 3


def write_advice(advised: Advised, html: Path) -> None:
    """Write the HTML page of `emmclab advise`; equal results produce equal bytes."""
    base, options = advised.base, advised.options
    rows = [
        {"trace": base.trace, "option": advice.option, "time": kind, "change_pct": change}
        for advice in options
        for kind, change in (("mean", advice.mean_change_pct), ("p99", advice.p99_change_pct))
    ]
    log = plots.symlog(rows, "change_pct", 10.0)
    x = alt.X("change_pct:Q", title="change of response, %", scale=log.scale, axis=log.axis)
    chart = plots.dots(rows, "option", x, "time")
    figure = plots.Figure(
        "changes",
        "Change of response times by option",
        "Compared with the unchanged device; left of 0 is faster.",
        lambda _rows: chart,
        wide=True,
    )
    write_atomically(
        html,
        assemble(
            [figure],
            {"changes": rows},
            [base.trace],
            title=f"Advice for {base.trace}",
            sections=_sections(advised),
            head=_head(advised),
            provenance=Provenance(ledger_line(base.ledger), lost=lost([base.ledger]), made=base.provenance or {}),
        ),
    )


def _sections(advised: Advised) -> Iterator[Section]:
    parts: list[Part] = [options_table(advised)]
    if advised.life:
        parts += [lives_table(advised), Note(measurement_text(advised.life, advised.base))]
    for name, reason in advised.refused.items():
        parts.append(Note(f"Not possible here: {name}: {reason}", "quiet"))
    yield Section("options", f"Options, by {ORDERS[advised.by]}", parts, nav="Options")
    journal = advised.journal
    modes = [journal_table(advised)] if journal.modes else []
    refused = [
        Note(f"Not possible here: journal:{mode}: {reason}", "quiet") for mode, reason in journal.refused.items()
    ]
    parts = [Note(f"{journal.headline}.", ""), *modes, *refused]
    yield Section("journal", "Layer below the journal", parts, nav="Journal")


def _head(advised: Advised) -> Head:
    """Return the first screen: the headline, the unchanged device, and the options with the largest effect."""
    base = advised.base
    tiles = [tile(figure.label, base[figure.path], figure.unit, note="as it is") for figure in FIGURES.values()]
    tiles += [
        Tile(advice.option, f"{signed(advice.mean_change_pct)} %", note=FIGURES["mean"].name)
        for advice in advised.options[:_BEST]
    ]
    return Head(
        answer=advised.headline,
        lead=[
            *(f"{text}." for text in (advised.state.line, advised.state.tried_line) if text),
            f"{base.trace} on {base.device}: {mode_line(base)}; {device_before(base)}.",
        ],
        tiles=tiles,
        notices=[Notice("caution", text) for text in advised.cautions],
        picture="changes",
    )
