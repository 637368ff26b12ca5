"""Tables in the style of all commands, fitted into the terminal without truncating numbers or names."""

import copy
import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from rich import box
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from emmclab.cli.console import ClosedPipe, one_line
from emmclab.errors import harmless
from emmclab.runtime.document import Cell, Number, TextTable

#: Words up to this length are not broken, characters.
_LONGEST_WORD = 36
#: Minimum width of a column whose names are broken over several lines, characters.
_LEAST_NAME = 16
#: Indentation of the explanation below a row, characters.
_INDENT = 4


class _Widths(NamedTuple):
    """Widths of a column: without any wrapping, with wrapping between words, and with wrapping within names."""

    one_line: int
    words: int
    least: int


def fitted(console: Console, table: Table) -> list[Table]:
    """Divide a table into parts that fit the width of a console; if wrapping texts is enough, there is one part.

    Each part contains the first column, which identifies the rows. Numbers are never broken.
    """
    widths = [_widths(console, column) for column in table.columns]
    if _total([width.one_line for width in widths]) <= console.width:
        return [table]
    parts = _parts(widths, console.width)
    if len(parts) == 1:
        return [_part(table, parts[0], _shared_widths([*widths], console.width))]
    tables = []
    for number, columns in enumerate(parts):
        part = _part(table, columns, _shared_widths([widths[column] for column in columns], console.width))
        part.title = table.title if number == 0 else None
        part.caption = table.caption if number == len(parts) - 1 else None
        tables.append(part)
    return tables


def explained(console: Console, table: Table, meanings: Sequence[Text]) -> Iterator[Text]:
    """Yield the lines of a table; an explanation of each row follows on separate, indented lines."""
    columns = table.columns
    widths = _shared_widths([_widths(console, column) for column in columns], console.width)
    if table.title:
        yield from Text(str(table.title), "bold").wrap(console, console.width)
    if not meanings:
        return
    yield from _row(console, [Text(str(column.header), "bold") for column in columns], columns, widths)
    yield Text("─" * _total(widths))
    for *cells, meaning in zip(*(column.cells for column in columns), meanings, strict=True):
        yield from _row(
            console, [Text.from_markup(cell) if isinstance(cell, str) else cell for cell in cells], columns, widths
        )
        lines = meaning.wrap(console, console.width - _INDENT, overflow="fold") if meaning else ()
        for line in lines:
            line.rstrip()
            yield Text.assemble(" " * _INDENT, line)


def _row(console: Console, cells: Sequence[Text], columns: Sequence[Column], widths: Sequence[int]) -> Iterator[Text]:
    """Yield the lines of a row, each cell wrapped to the width of its column."""
    wrapped = [cell.wrap(console, width, overflow="fold") for cell, width in zip(cells, widths, strict=True)]
    for parts in itertools.zip_longest(*wrapped, fillvalue=Text()):
        line = Text()
        for number, (part, column, width) in enumerate(zip(parts, columns, widths, strict=True)):
            text = part.copy()
            text.rstrip()
            text.align("right" if column.justify == "right" else "left", width)
            line.append_text(Text("  " if number else ""))
            line.append_text(text)
        line.rstrip()
        yield line


def least_width(part: Table) -> int:
    """Return the width of a table whose column widths are set; 0 if they are not."""
    widths = [column.width for column in part.columns if column.width is not None]
    return _total(widths) if len(widths) == len(part.columns) else 0


def _widths(console: Console, column: Column) -> _Widths:
    options = console.options.update(width=10_000)
    heading = Measurement.get(console, options, column.header)
    cells = [Measurement.get(console, options, cell) for cell in column.cells]
    one_line_width = max((cell.maximum for cell in cells), default=0)
    # In a column of numbers, cells are never wrapped, only the heading.
    is_unbroken = column.justify == "right" or column.no_wrap
    least = one_line_width if is_unbroken else max((cell.minimum for cell in cells), default=0)
    words = [min(word, _LONGEST_WORD) for word in (heading.minimum, 0 if is_unbroken else least)]
    names = [min(word, _LEAST_NAME) for word in words]
    floor = one_line_width if is_unbroken else 0
    return _Widths(max(one_line_width, heading.maximum), max(floor, *words), max(floor, *names))


def _total(widths: Sequence[int]) -> int:
    """Return the width of a table with columns of these widths and two spaces between columns."""
    return sum(widths) + 2 * (len(widths) - 1)


def _parts(widths: Sequence[_Widths], available: int) -> list[list[int]]:
    """Divide a wide table into parts of similar width; return their column indices. All have the first column."""
    parts = _filled(widths, available)
    for narrower in range(available - 1, 0, -1):
        narrower_parts = _filled(widths, narrower)
        if len(narrower_parts) > len(parts):
            break
        parts = narrower_parts
    return parts


def _filled(widths: Sequence[_Widths], available: int) -> list[list[int]]:
    """Distribute the columns over the parts of a table; return the column indices of each part.

    Each part begins with the first column and contains at least one other column.
    """
    parts: list[list[int]] = [[0]]
    for column in range(1, len(widths)):
        total = _total([widths[index].least for index in (*parts[-1], column)])
        if total > available and len(parts[-1]) > 1:
            parts.append([0])
        parts[-1].append(column)
    return parts


def _shared_widths(widths: Sequence[_Widths], available: int) -> list[int]:
    """Divide the width among columns: the widest is narrowed first; words are broken only if necessary."""
    shares = [width.one_line for width in widths]
    for floors in ([width.words for width in widths], [width.least for width in widths]):
        while _total(shares) > available:
            reducible = [column for column, floor in enumerate(floors) if shares[column] > floor]
            if not reducible:
                break
            shares[max(reducible, key=lambda column: shares[column])] -= 1
    return shares


def _part(table: Table, columns: Sequence[int], widths: Sequence[int]) -> Table:
    """Return a table with the columns at these indices; `widths` are their widths."""
    part = copy.copy(table)
    part.columns = [
        dataclasses.replace(table.columns[column], _index=number, width=width, overflow="fold", no_wrap=False)
        for number, (column, width) in enumerate(zip(columns, widths, strict=True))
    ]
    return part


class HarmlessConsole(Console):
    """A console that removes control sequences from the text that it prints, but not its own."""

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return super()._render_buffer(
            segment if segment.control else segment._replace(text=harmless(segment.text)) for segment in buffer
        )


class DataConsole(HarmlessConsole):
    """A console that never truncates numbers or names; if the reader closes the pipe, the command ends."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects; tables are fitted to the terminal, and exceed it only if a number is wider."""
        if not any(isinstance(value, Table) for value in objects):
            super().print(*objects, **options)
            return
        for value in objects:
            parts = fitted(self, value) if isinstance(value, Table) else [value]
            for number, part in enumerate(parts):
                if number:
                    super().print()
                self._print_uncropped(part, options)

    def _print_uncropped(self, part: Any, options: dict[str, Any]) -> None:
        """Print an object without cutting any line."""
        least = least_width(part) if isinstance(part, Table) else 0
        fits = self.width
        self.width = max(least, fits)
        try:
            super().print(part, crop=least <= fits, **options)
        finally:
            self.width = fits

    def on_broken_pipe(self) -> None:
        """Raise `ClosedPipe`; rich would end the process."""
        raise ClosedPipe


def print_line(console: Console, line: str, style: str = "") -> None:
    """Print a line, which the terminal may wrap."""
    console.print(Text(line, style), soft_wrap=True)


def show_table(console: Console, part: TextTable) -> None:
    """Print an empty line and a table of texts."""
    console.print()
    console.print(table_of(part))


def table_of(part: TextTable, *, is_first_bold: bool = False, no_wrap: bool = False) -> Table:
    """Return a table in the style of all commands; numbers are not wrapped if `no_wrap` is set."""
    table = framed(escape(part.title), tall=True)
    for heading, column in zip(part.headings, part.columns, strict=True):
        head, is_left = heading if isinstance(heading, str) else heading.head, column.is_text
        table.add_column(head, justify="left" if is_left else "right", no_wrap=no_wrap and not is_left)
    for number, cells in enumerate(part.rows):
        texts = [Text("\n".join(map(one_line, _lines(cell)))) for cell in cells]
        if is_first_bold and not number:
            texts[0].stylize("bold")
        table.add_row(*texts)
    table.caption, table.caption_justify = part.caption or None, "left"
    return table


def _lines(cell: str | Number | Cell) -> list[str]:
    """Return the lines of a cell: its text, and the note of a number."""
    if isinstance(cell, str):
        return [cell]
    return [cell.text, cell.note] if isinstance(cell, Number) and cell.note else [cell.text]


def show_explained(console: Console, table: Table, meanings: Sequence[Text]) -> None:
    """Print a table, with the meaning of each row in a line below the row."""
    for line in explained(console, table, meanings):
        console.print(line, soft_wrap=True)


class _Framed(Table):
    """A table in which each cell is one line, even if a name contains line breaks."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*(_cell(cell) if isinstance(cell, (str, Text)) else cell for cell in cells), **options)


def _cell(cell: str | Text) -> str | Text:
    """Return a cell without line breaks; its spans of bold or coloured text are unchanged."""
    if isinstance(cell, str):
        return one_line(cell)
    copied = cell.copy()
    copied.plain = one_line(cell.plain)
    return copied


def framed(
    title: str = "", *headings: str | Text, words: int = 1, text: Collection[str] = (), tall: bool = False
) -> Table:
    """Create a table without rows in the style of all commands; cells of a `tall` table may have several lines.

    The first `words` columns and those with a heading in `text` contain names, the others numbers. More columns may be
    added.
    """
    table = (Table if tall else _Framed)(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < words or heading in text else "right")
    return table
