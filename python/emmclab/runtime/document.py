"""Documents, which consist of texts, tables and charts, and are shown on the terminal, on pages and in notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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
    return Number("–" if value is None else f"{value:,.{digits}f}", value, note)


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
