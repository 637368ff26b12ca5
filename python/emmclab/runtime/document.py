"""Documents, which consist of texts, tables and charts, and are shown on the terminal, on pages and in notebooks.

Numbers are formatted with three significant digits and a unit, changes with a sign; bars consist of characters. The
package `pages` registers the functions that write the HTML pages of results, because other packages must not import it.
Notebooks get HTML tables for light and dark backgrounds: all text is escaped, there are no scripts and no files, and
the colours are those of the notebook.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from emmclab.errors import ConfigError, harmless

#: A row of stored data: a text, number, boolean or None for each column.
Row = dict[str, Any]


class Column(NamedTuple):
    """The heading of a column; `short` replaces the label on the terminal, `about` is shown on hover on a page."""

    label: str
    unit: str = ""
    short: str | None = None
    about: str = ""
    is_text: bool = False

    @property
    def head(self) -> str:
        r"""The text of the column's heading on the terminal, with the unit on a second line.

        >>> Column("Change of the mean", "%", short="Mean").head
        'Mean\n%'
        """
        label = self.label if self.short is None else self.short
        return f"{label}\n{self.unit}" if self.unit else label

    @property
    def name(self) -> str:
        """The heading in one line.

        >>> Column("Mean response", "ms").name
        'Mean response, ms'
        """
        return f"{self.label}, {self.unit}" if self.unit else self.label


class Number(NamedTuple):
    """A table cell with a number.

    Pages sort by `value` (None if the number is not known), and show `note` below `text`.
    """

    text: str
    value: float | None
    note: str = ""


def number_cell(value: float | None, digits: int = 0, note: str = "") -> Number:
    """Return a cell with a number, or with a dash if it is not known.

    >>> number_cell(1234.56, 1).text, number_cell(None).text
    ('1,234.6', '–')
    """
    return Number(fixed(value, digits), value, note)


def fixed(value: float | None, digits: int) -> str:
    """Format a number with a fixed number of decimal places, or a dash if it is not known."""
    return "–" if value is None else f"{value:,.{digits}f}"


class Cell(NamedTuple):
    """A table cell with text, in which code is in backticks; `note` is shown below the text, and `about` on hover.

    `badge` is the kind of a badge around the text, empty for none, and `before` is text before the badge.
    """

    text: str
    note: str = ""
    badge: str = ""
    about: str = ""
    before: str = ""


#: Cells of a row of a table.
Cells = Sequence[str | Number | Cell]


class TextTable(NamedTuple):
    """A table of texts; the first `words` columns contain names, the others numbers.

    `style` contains the CSS classes of the table on a page: `sortable`; `folds`, if rows become cards on a narrow
    screen; `matrix`, if names may have several lines, with `numbers` if cells are numbers; `dense` and `results`, if
    many columns are printed small. `attached` contains, by row number, a second row that stays below this row.
    """

    title: str
    headings: Sequence[str | Column]
    rows: Sequence[Cells]
    words: int = 1
    style: str = ""
    caption: str = ""
    attached: Mapping[int, Cells] = {}

    @property
    def columns(self) -> list[Column]:
        """The columns of the table; the field `words` is the number of text columns at its beginning."""
        columns = [Column(heading) if isinstance(heading, str) else heading for heading in self.headings]
        return [column._replace(is_text=column.is_text or i < self.words) for i, column in enumerate(columns)]

    def titled(self, anchor: str = "", *, is_minor: bool = False) -> tuple[Heading, TextTable]:
        """Return the title as a heading, and the table."""
        return Heading(self.title, anchor, is_minor), self


class _Template(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        return "–" if value is None else format(value, format_spec)


def filled_in(
    title: str, columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]], *, words: int = 1
) -> TextTable:
    """Return a table of rows of data; `columns` are templates by heading, and a value that is None becomes a dash.

    >>> rows = [{"name": "a", "kb": 1234}, {"name": "b", "kb": None}]
    >>> filled_in("Names", {"name": "{name}", "KB": "{kb:,.1f}"}, rows).rows
    [['a', '1,234.0'], ['b', '–']]
    """
    cells = [[_Template().vformat(column, (), row) for column in columns.values()] for row in rows]
    return TextTable(title, list(columns), cells, words)


@dataclass(frozen=True)
class Heading:
    """A heading in a section; `anchor` is its link target on the page, and `is_minor` makes it smaller."""

    text: str
    anchor: str = ""
    is_minor: bool = False


@dataclass(frozen=True)
class Note:
    """A paragraph, with code in backticks; `kind` contains its CSS classes on a page."""

    text: str
    kind: str = "quiet small"


@dataclass(frozen=True)
class Bullets:
    """A bullet list; each item has a text, and a remark that may be empty."""

    items: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Terms:
    """A list of names; each has a text, and a remark that may be empty."""

    rows: Sequence[tuple[str | Cell, str, str]]


@dataclass(frozen=True)
class Charts:
    """The charts of a page except the one on its first screen: all, or those whose names are in `only`.

    A chart without data is replaced by the text `empty`, or left out if this text is empty.
    """

    empty: str = ""
    only: Sequence[str] | None = None


@dataclass(frozen=True)
class Folded:
    """Parts that are collapsed below a summary line until the reader opens them."""

    summary: str
    parts: Sequence[Part]
    is_open: bool = False


#: Any element that a section of a document can contain.
Part = Heading | Note | Bullets | Terms | Charts | Folded | TextTable


@dataclass(frozen=True)
class Section:
    """A section; `nav` is its name in the navigation of a page, which lists only sections with a name."""

    anchor: str
    title: str
    parts: Sequence[Part]
    nav: str = ""


#: Units of time: name, length in seconds, and the smallest value in this unit for which the unit is used.
_TIMES = (("d", 86_400.0, 2.0), ("h", 3_600.0, 2.0), ("min", 60.0, 2.0), ("s", 1.0, 1.0))
#: Units below a second, with their length in seconds.
_SHORT = (("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))
#: Units of size in bytes; 1 KB is 1,024 bytes, as in the papers.
_SIZES = (("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10))


_TIME_UNITS = {"s": 1.0, "ms": 1e-3, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_duration(text: str, option: str = "--duration") -> float:
    """Parse a duration such as `60s`, `1.5h`, `10m` or `500ms`, in s; a bare number is seconds.

    >>> parse_duration("60s"), parse_duration("1.5m"), parse_duration("2")
    (60.0, 90.0, 2.0)
    """
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        seconds = float(number) * _TIME_UNITS[text[len(number) :] or "s"]
    except (ValueError, KeyError):
        seconds = 0.0
    if not 0 < seconds < 10**9:
        raise ConfigError(f"`{text}` is not a duration", field=option, hint="write the duration as 60s, 10m or 2h")
    return seconds


def duration(seconds: float | None) -> str:
    """Format a duration with its unit; a dash if it is unknown.

    >>> [duration(value) for value in (0, 3.5e-8, 0.00042, 0.653, 12.5, 589, 9000, 259200, None)]
    ['0 s', '35 ns', '420 us', '653 ms', '12.5 s', '9.82 min', '2.5 h', '3 d', '–']
    """
    if seconds is None:
        return "–"
    long = (f"{significant(seconds / unit)} {name}" for name, unit, least in _TIMES if abs(seconds) >= least * unit)
    short = (f"{significant(seconds / unit)} {name}" for name, unit in _SHORT if abs(seconds) >= unit)
    shortest = f"{significant(seconds / 1e-9)} ns" if seconds else "0 s"
    return next(long, None) or next(short, shortest)


def size(amount: float | None) -> str:
    """Format a number of bytes with its unit; a dash if it is unknown.

    >>> [size(value) for value in (0, 512, 4096, 63668 * 1024, 3 << 30, None)]
    ['0 B', '512 B', '4 KB', '62.2 MB', '3 GB', '–']
    """
    if amount is None:
        return "–"
    larger = (f"{significant(amount / unit)} {name}" for name, unit in _SIZES if abs(amount) >= unit)
    return next(larger, f"{significant(amount)} B")


def decimal_size(amount: float) -> str:
    """Format a number of bytes with a decimal unit (1 TB is 10^12 bytes), as for endurance.

    >>> [decimal_size(value) for value in (0, 4096, 5e9, 22.4e12, 3e15)]
    ['0 B', '4.1 KB', '5 GB', '22.4 TB', '3,000 TB']
    """
    units = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3))
    larger = (f"{significant(amount / unit)} {name}" for name, unit in units if abs(amount) >= unit)
    return next(larger, f"{significant(amount)} B")


def significant(value: float, digits: int = 3, least: int = 0) -> str:
    """Format a number with `digits` significant digits and at least `least` decimals.

    >>> significant(0.012345), significant(1234.5), significant(0.5, least=2)
    ('0.0123', '1,234', '0.50')
    """
    if not value:
        return f"{0:.{least}f}"
    places = max(least, digits - 1 - floor(log10(abs(value))))
    text = f"{value:,.{max(0, places)}f}"
    integer, point, decimals = text.partition(".")
    decimals = decimals.rstrip("0").ljust(least, "0")
    return integer + point + decimals if decimals else integer


def signed(value: float, digits: int = 1) -> str:
    """Format a change with its sign; a change that rounds to zero gets a plus.

    >>> signed(-0.04), signed(21612.04), signed(-0.5, 2)
    ('+0.0', '+21,612.0', '-0.50')
    """
    return f"{round(value, digits) + 0.0:+,.{digits}f}"


def change_pct(before: float | None, after: float | None) -> float | None:
    """Return the change from `before` to `after` in percent; None if `before` is 0, or one of them is not known.

    >>> change_pct(2.0, 3.0), change_pct(0.0, 3.0), change_pct(None, 3.0)
    (50.0, None, None)
    """
    return 100 * (after / before - 1) if before and after is not None else None


def percent_text(change: float | None, digits: int = 1) -> str:
    """Format a change in percent as a number without unit; a dash if it is not known.

    >>> percent_text(50.0), percent_text(None)
    ('+50.0', '–')
    """
    return "–" if change is None else signed(change, digits)


class FigureDifference(TypedDict):
    """A figure of two runs, traces or fleets, and the difference from the first to the second.

    For shares, `difference_points` is the difference in percentage points, and `difference_pct` is None. For other
    figures, `difference_pct` is the difference in percent of the first, and `difference_points` is None.
    """

    first: float | None
    second: float | None
    difference_pct: float | None
    difference_points: float | None


def figure_difference(first: float | None, second: float | None, *, is_share: bool) -> FigureDifference:
    """Return the difference of a figure between two results; if both figures are 0, the difference is 0.

    >>> [figure_difference(0, value, is_share=False)["difference_pct"] for value in (0, 1)]
    [0.0, None]
    """
    points = second - first if is_share and first is not None and second is not None else None
    pct = None if is_share else 0.0 if first == second == 0 else change_pct(first, second)
    return {"first": first, "second": second, "difference_pct": pct, "difference_points": points}


def difference_text(difference: FigureDifference, digits: int = 1) -> str:
    """Format a difference with its unit; a dash if it is not known.

    >>> pair = [figure_difference(20.0, 30.0, is_share=is_share) for is_share in (False, True)]
    >>> [difference_text(difference) for difference in pair]
    ['+50.0 %', '+10.00 points']
    """
    pct, points = difference["difference_pct"], difference["difference_points"]
    if points is not None:
        return f"{signed(points, 2)} points"
    return "–" if pct is None else f"{signed(pct, digits)} %"


#: Horizontal and vertical bars, in eighths of a character.
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HEIGHTS = "▁▂▃▄▅▆▇█"


def bar(value: float, longest: float, width: int) -> str:
    """Return a horizontal bar, to an eighth of a character; the value `longest` has `width` characters.

    >>> bar(3, 4, 4)
    '███'
    """
    eighths = round(8 * width * value / longest) if longest > 0 else 0
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def spark(values: Sequence[float]) -> str:
    """Return a bar chart with one column per value, relative to the largest; a value of 0 is a blank.

    >>> spark([0, 1, 8])
    ' ▁█'
    """
    highest = max(values, default=0)
    if highest <= 0:
        return " " * len(values)
    return "".join(" " if value <= 0 else _HEIGHTS[max(0, round(8 * value / highest) - 1)] for value in values)


#: Styles of tables and cells; lines have the colour of the text, so that they are visible on any background.
_TABLE = "border-collapse:collapse;margin:.3em 0 .8em;color:inherit;font-variant-numeric:tabular-nums"
_CELL = "padding:.15em .7em;border-bottom:1px solid color-mix(in srgb,currentColor 25%,transparent)"


def escaped(text: str) -> str:
    """Escape a text for HTML."""
    from html import escape  # Imported here: it loads tables of entities, which commands do not need.

    return escape(harmless(text))


def heading_html(kind: str, name: str) -> str:
    """Return a heading with the kind and the name of an object."""
    return f"<div>{kind} <b>{escaped(name)}</b></div>"


def pairs_html(pairs: Sequence[tuple[str, str]]) -> str:
    """Return a table of names and texts."""
    rows = "".join(
        f'<tr><th style="{_CELL};text-align:left;font-weight:500">{escaped(name)}</th>'
        f'<td style="{_CELL};text-align:left">{escaped(text)}</td></tr>'
        for name, text in pairs
    )
    return f'<table style="{_TABLE}">{rows}</table>'


def table_html(part: TextTable) -> str:
    """Return a table with its title as a caption."""
    columns = [(column, f"{_CELL};text-align:{'left' if column.is_text else 'right'}") for column in part.columns]
    head = "".join(f'<th style="{style};font-weight:500">{escaped(column.name)}</th>' for column, style in columns)
    rows = [[cell if isinstance(cell, str) else cell.text for cell in cells] for cells in part.rows]
    cells = (
        "".join(f'<td style="{style}">{escaped(text)}</td>' for text, (_, style) in zip(row, columns, strict=True))
        for row in rows
    )
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    title = f'<caption style="text-align:left;color:inherit">{escaped(part.title)}</caption>'
    caption = title if part.title else ""
    return f'<table style="{_TABLE}">{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def cell_text(value: Any) -> str:
    """Format a value; a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return significant(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


#: Type of a function that writes the HTML page of a result to a file.
PageWriter = Callable[[Any, str | Path], None]
_writers: dict[str, PageWriter] = {}


def register_page(kind: str, writer: PageWriter) -> None:
    """Set the function that writes the HTML pages of one kind of results."""
    _writers[kind] = writer


def write_page(kind: str, result: object, path: str | Path) -> None:
    """Write the page of a result: one file that needs no network."""
    _writers[kind](result, path)
