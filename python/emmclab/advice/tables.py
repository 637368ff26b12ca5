"""The tables that `emmclab advise` prints: design options, lifetimes, and modes of the layer `journal`."""

from emmclab.advice.advise import FIGURES, LIFETIME, ORDERS, Advised, Life, lifetime_text
from emmclab.advice.journal_modes import MODE_FIGURES
from emmclab.runtime.document import Cell, Cells, Column, TextTable, change_pct, percent_text, signed
from emmclab.simulation.result_fields import ResultField, result_field

_RAM = result_field("configuration.ram_kb")
_CHANGE = Column("Change", "%", short="")
_STYLE = "matrix folds numbers"


def _with_changes(*fields: ResultField) -> list[Column]:
    """Return two table columns for each figure: its value, and its change relative to the unchanged device."""
    return [column for field in fields for column in (field.heading, _CHANGE)]


def options_table(advised: Advised) -> TextTable:
    """Return the table of figures by design option; the lifetime comes first if options are ranked by it."""
    base, by_lifetime = advised.base, advised.by == "lifetime"
    mean, p99, waf = FIGURES.values()
    paths = ("mean_response_ms", "p99_response_ms")

    def life(value: Life | None) -> tuple[str, ...]:
        if not by_lifetime:
            return ()
        if value is None:
            return "–", "–"
        plain = advised.life
        change = "" if value is plain or not plain else percent_text(change_pct(plain.host_gb, value.host_gb))
        return value.text, change

    figures = [cell for field in (mean, p99) for cell in (field.text(base[field.path]), "")]
    as_it_is = [*life(advised.life), *figures, waf.text(base[waf.path]), "", _RAM.text(base[_RAM.path])]
    rows: list[Cells] = [[f"{base.device} as it is", *as_it_is]]
    for advice in advised.options:
        changes = zip((mean, p99), paths, (advice.mean_change_pct, advice.p99_change_pct), strict=True)
        rows.append(
            [
                Cell(advice.option, "; ".join(filter(None, (advice.about, advice.note)))),
                *life(advice.life),
                *(cell for field, name, pct in changes for cell in (field.text(getattr(advice, name)), signed(pct))),
                waf.text(advice.waf),
                signed(advice.capacity_change_pct),
                f"{advice.ram_kb:+d}" if advice.ram_kb else "0",
            ]
        )
    lives = _with_changes(LIFETIME) if by_lifetime else []
    capacity = Column("Capacity", "%", short="Size")
    headings: list[str | Column] = ["Option", *lives, *_with_changes(mean, p99), waf.heading, capacity, _RAM.heading]
    return TextTable(f"Options by {ORDERS[advised.by]}", headings, rows, style=_STYLE)


def lives_table(advised: Advised) -> TextTable:
    """Return the table of lifetimes: a row for the unchanged device, and a row for each design option."""
    waf = FIGURES["waf"]

    def row(name: str, life: Life | None) -> Cells:
        if life is None:
            return [name, "–", "–", "–"]
        return [name, waf.text(life.waf), life.text, "–" if life.years is None else f"{life.years:,.2f}"]

    rows = [row(f"{advised.base.device} as it is", advised.life)]
    rows += [row(advice.option, advice.life) for advice in advised.options]
    headings = ["Option", f"{waf.short} in use", LIFETIME.display_unit, "years"]
    return TextTable("Lifetime", headings, rows, style=_STYLE)


def journal_table(advised: Advised) -> TextTable:
    """Return the figures by mode of the layer `journal`; no rows if no mode could be compared."""
    time, mean, flushes, pages = MODE_FIGURES

    def life(gigabytes: float | None) -> list[str]:
        return [lifetime_text(gigabytes)] if advised.life else []

    rows: list[Cells] = []
    if advised.journal.modes:
        values = [field.text(advised.base[field.path] or 0) for field in MODE_FIGURES]
        host_gb = None if advised.life is None else advised.life.host_gb
        rows = [["none", values[0], "", values[1], "", *values[2:], "", *life(host_gb)]]
    for mode in advised.journal.modes:
        rows.append(
            [
                Cell(mode.mode, mode.note),
                time.text(mode.run_s),
                signed(mode.run_change_pct),
                mean.text(mode.mean_response_ms),
                signed(mode.mean_change_pct),
                flushes.text(mode.flushes),
                pages.text(mode.page_programs),
                signed(mode.page_programs_change_pct),
                *life(mode.life_gb),
            ]
        )
    lives = [LIFETIME.heading] if advised.life else []
    headings: list[str | Column] = ["Mode", *_with_changes(time, mean), flushes.heading, *_with_changes(pages), *lives]
    return TextTable("Modes of the layer journal by time", headings, rows, style=_STYLE)
