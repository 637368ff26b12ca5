"""The estimate of a lifetime in words and tables, for the terminal and for pages."""

from collections.abc import Sequence

from emmclab.advice.lifetime import REGISTERS, Assumption, Interval, Lifetime
from emmclab.advice.lifetime_changes import LifetimeChange, Remedies, WriterWear
from emmclab.advice.lifetime_load import SMALL_BYTES, YEAR_S
from emmclab.advice.wear_rate import SLC_KINDS, WAF_PARTS
from emmclab.runtime.document import (
    Cell,
    Cells,
    Column,
    TextTable,
    change_pct,
    decimal_size,
    duration,
    percent_text,
    significant,
)
from emmclab.simulation.result_text import state_text

#: Years beyond which wear does not end a device: data sheets of consumer parts promise ten years or less.
_LONG = 20.0
_STYLE = "matrix folds numbers"
#: Number of writers that are listed.
_MOST_WRITERS = 8


def years_text(years: float) -> str:
    """Return a time in years, or in a smaller unit if it is less than one.

    >>> years_text(12.34), years_text(1.0), years_text(0.12), years_text(0.0)
    ('12.3 years', '1 year', '43.8 days', '0 s')
    """
    if years >= 1:
        return f"{significant(years)} year{'' if significant(years) == '1' else 's'}"
    return duration(years * YEAR_S).replace(" d", " days")


def _range_text(low: float, high: float) -> str:
    if low >= 1:
        return f"{significant(low)} to {years_text(high)}"
    return f"{years_text(low)} to {years_text(high)}"


def headline(life: Lifetime) -> str:
    """Return the answer in one sentence: years with their bounds, and what ends first."""
    years = life.years
    return (
        f"{life.device} lasts {years_text(years.value)} ({_range_text(years.low, years.high)}) at "
        f"{decimal_size(life.daily_bytes)} a day of {life.load}: {decimal_size(life.host_bytes.value)} written (TBW); "
        f"blocks that wear out first: {life.ends_first}"
    )


def bounds(life: Lifetime) -> list[str]:
    """Return where the bounds of the years come from, one source in each text."""
    by_seed = life.years_by_seed.values()
    texts = []
    if len(by_seed) > 1:
        texts.append(f"{len(by_seed)} seeds: {_range_text(min(by_seed), max(by_seed))}")
    else:
        texts.append("seeds: nothing in this run is random")
    if life.limit_factor > 1:
        low, high = life.years_of_limits
        texts.append(f"erase limits, known within a factor of {life.limit_factor:g}: {_range_text(low, high)}")
    low, high = life.years_of_start
    if low != high:
        texts.append(f"registers, which have steps of 10 %: {_range_text(low, high)}")
    return texts


def most_important(life: Lifetime) -> str:
    """Return a sentence with the assumption that matters most; empty if no other assumption changes the years."""
    one = life.matters_most
    if one is None or one.years is None:
        return ""
    return (
        f"The assumption that matters most: {one.name}. Here, {one.here}; if {one.instead}, the device lasts "
        f"{years_text(one.years)}"
    )


def remarks(life: Lifetime) -> list[str]:
    """Return what the tables mean, and how the wear was measured."""
    shares = [
        f"{name} {'not recorded' if share is None else f'{share:.1f} %'}"
        for name, share in (("journal", life.journal_pct), ("metadata", life.metadata_pct))
    ]
    names = REGISTERS.get(life.interface)
    others = [kind.kind for kind in life.kinds if kind.erase_limit and not kind.kind.startswith(SLC_KINDS)]
    several = f" B is the mean of {' and '.join(others)}, by their erases." if len(others) > 1 else ""
    uneven = (
        " Without static wear levelling, the years with data that stays in its blocks are an estimate, not a bound: "
        "simulated devices with greedy collection lasted 0.94 to 1.01 times as long, and those whose collection moves "
        "such data (fifo) longer."
    )
    meaning = "0x01 is up to 10 % of the life used, 0x0B beyond it."
    is_uneven = any(one.name == "wear levelling" and one.years is not None for one in life.assumptions)
    return [
        f"Of the bytes that the host writes: {', '.join(shares)}. Small writes fill pages only in part; the part is "
        "negative if data is overwritten in the write buffer.",
        *([] if names is None else [f"Registers: {names[0]} (A) and {names[1]} (B); {meaning}{several}"]),
        f"Measured in a run of {decimal_size(life.written_bytes)} ({life.passes:,} passes of the load); device before "
        f"it: {state_text(life.precondition)}. Daily amount: {life.origin}. TB, GB and MB are decimal. The blocks of a "
        f"kind wear evenly; failures other than wear are not modelled.{uneven if is_uneven else ''}",
    ]


def cautions(life: Lifetime) -> list[str]:
    """Return warnings about the estimate."""
    texts = list(life.notes)
    if life.years.value > _LONG:
        texts.append(
            f"more than {_LONG:g} years mean only that wear does not end this device: retention, the controller and "
            "other causes of failure are not modelled"
        )
    return texts


def waf_table(life: Lifetime) -> TextTable:
    """Return the parts of the write amplification; their sum is its value."""
    parts = [(name, life.waf_parts[key]) for key, name, is_always in WAF_PARTS if is_always or life.waf_parts[key]]
    return TextTable(
        "Write amplification",
        ["Part", Column("Bytes programmed per byte of the host", short="Programmed\nper byte")],
        [[name, f"{value:,.3f}"] for name, value in (*parts, ("all (WAF)", life.waf))],
        style=_STYLE,
    )


def kinds_table(life: Lifetime) -> TextTable:
    """Return the life of each kind of block."""
    unworn = "not worn by this load"
    return TextTable(
        "Kinds of block",
        ["Kind", "Blocks", "Erase limit", Column("TBW", "TB"), "Years left", Column("Used now", "%"),
         Column("Used a year", "%")],
        [
            [
                Cell(kind.kind, "ends first" if kind.kind == life.ends_first else ""),
                f"{kind.blocks:,}",
                "none stated" if kind.erase_limit is None else f"{kind.erase_limit:,}",
                unworn if kind.host_bytes is None else significant(kind.host_bytes / 1e12),
                "–" if kind.years is None else years_text(kind.years),
                significant(kind.used_now_pct),
                significant(kind.used_per_year_pct),
            ]
            for kind in life.kinds
        ],
        style=_STYLE,
    )  # fmt: skip


def _steps_text(value: Interval) -> str:
    """Return the value of a life-time register with its bounds; a dash if the flash has no erase limit."""
    if not value.value:
        return "–"
    text = f"0x{int(value.value):02X}"
    return text if value.low == value.high else f"{text} (0x{int(value.low):02X} to 0x{int(value.high):02X})"


def registers_table(life: Lifetime) -> TextTable:
    """Return what the life-time registers read over the years."""
    names = zip(REGISTERS[life.interface], ("A (SLC)", "B (others)"), strict=True)
    return TextTable(
        "Life-time registers",
        ["After", *(Column(name, short=kind) for name, kind in names)],
        [
            [years_text(row.years) if row.years else "now", _steps_text(row.type_a), _steps_text(row.type_b)]
            for row in life.registers
        ],
        style=_STYLE,
    )


def assumptions_table(life: Lifetime) -> TextTable:
    """Return the assumptions, the one with the largest effect first."""

    def row(one: Assumption) -> list[str | Cell]:
        if one.years is None:
            return [Cell(one.name, one.reason), one.here, one.instead, "–", "–"]
        change = percent_text(change_pct(life.years.value, one.years), 0)
        return [one.name, one.here, one.instead, years_text(one.years), change]

    return TextTable(
        "What the estimate assumes",
        ["Assumption", "Here", "Instead", "Years instead", Column("Change", "%")],
        [row(one) for one in life.assumptions],
        3,
        style=_STYLE,
    )


def changes_table(changes: Sequence[LifetimeChange]) -> TextTable:
    """Return what would lengthen the life, by the years gained."""
    return TextTable(
        "What would help",
        ["Change", "Price", "Years", "Gained"],
        [
            [Cell(one.name, one.about), one.price, "–" if one.years is None else years_text(one.years), _gain_text(one)]
            for one in changes
        ],
        2,
        "matrix folds",
    )


def _gain_text(change: LifetimeChange) -> str:
    """Return the years gained, with a minus sign if the life is shorter, and none if it changes by less than 0.1 %."""
    years, gained = change.years, change.gained_years
    if years is None or gained is None:
        return "–"
    return "none" if abs(gained) < years / 1000 else f"{'-' if gained < 0 else ''}{years_text(abs(gained))}"


def writers_table(writers: Sequence[WriterWear]) -> TextTable:
    """Return who writes, and the part of the wear that the largest of them cause."""

    def pct(value: float | None) -> str:
        return "–" if value is None else significant(value)

    rows: list[Cells] = [
        [
            Cell(one.name, one.about),
            significant(one.daily_bytes / 1e9),
            pct(one.bytes_pct),
            significant(one.mean_kb),
            pct(one.small_pct),
            pct(one.sequential_pct),
            pct(one.wear_pct),
        ]
        for one in writers[:_MOST_WRITERS]
    ]
    headings: list[str | Column] = ["Writer", Column("A day", "GB"), Column("Bytes", "%"), Column("Mean write", "KB")]
    headings += [Column("Small", "%"), Column("Sequential", "%"), Column("Wear", "%")]
    return TextTable("Who writes", headings, rows, style=_STYLE)


def notes_of(helps: Remedies) -> list[str]:
    """Return what the changes are, and what the table of writers shows."""
    texts = [f"{one.name}: {one.about}" for one in helps.changes if one.about and one.years is not None]
    if helps.writers:
        texts += [f"{one.name}: {one.about}" for one in helps.writers[:_MOST_WRITERS] if one.about]
        texts.append(
            f"Who writes: small writes have less than {SMALL_BYTES // 1024} KB. Wear: by simulation without the writes "
            "of this writer, of the blocks that wear out first; the parts need not add up to 100 %. –: not simulated, "
            "or not known."
        )
    elif helps.changes:
        texts.append("Who writes is not known: the source holds neither processes nor files.")
    return texts


def tables(life: Lifetime, helps: Remedies | None = None) -> list[TextTable]:
    """Return all tables in the order of their importance."""
    help_tables = [] if helps is None or not helps.changes else [changes_table(helps.changes)]
    help_tables += [] if helps is None or not helps.writers else [writers_table(helps.writers)]
    registers = [registers_table(life)] if life.interface in REGISTERS else []
    return [kinds_table(life), waf_table(life), *registers, *help_tables, assumptions_table(life)]
