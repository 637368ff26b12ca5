"""Tables in the style of all commands, fitted into the terminal without losing a digit or a part of a name."""

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

#: Length of the longest word that is not broken, in characters.
_LONGEST_WORD = 36
#: Least width of a column whose names are broken over several lines, in characters.
_LEAST_NAME = 16
#: Indentation of the meaning below the row that it explains, in characters.
_INDENT = 4


class _Widths(NamedTuple):
    """Widths of a column: with cells in one line, with unbroken words, and with broken names."""

    whole: int
    words: int
    least: int


def fitted(console: Console, table: Table) -> list[Table]:
    """Return a table in parts that fit into a console: one part if wrapped texts suffice.

    Each part has the first column, which names the rows. Numbers are never broken.
    """
    widths = [_widths(console, column) for column in table.columns]
    if _total([one.whole for one in widths]) <= console.width:
        return [table]
    parts = _parts(widths, console.width)
    if len(parts) == 1:
        return [_part(table, parts[0], _shared([*widths], console.width))]
    found = []
    for number, places in enumerate(parts):
        one = _part(table, places, _shared([widths[place] for place in places], console.width))
        one.title = table.title if number == 0 else None
        one.caption = table.caption if number == len(parts) - 1 else None
        found.append(one)
    return found


def explained(console: Console, table: Table, meanings: Sequence[Text]) -> Iterator[Text]:
    """Yield the lines of a table, each row with its meaning below it on lines of its own, indented."""
    columns = table.columns
    widths = _shared([_widths(console, column) for column in columns], console.width)
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
            shown = part.copy()
            shown.rstrip()
            shown.align("right" if column.justify == "right" else "left", width)
            line.append_text(Text("  " if number else ""))
            line.append_text(shown)
        line.rstrip()
        yield line


def least_width(part: Table) -> int:
    """Return the width that the columns of a fitted table need; 0 if the table was not changed."""
    widths = [column.width for column in part.columns if column.width is not None]
    return _total(widths) if len(widths) == len(part.columns) else 0


def _widths(console: Console, column: Column) -> _Widths:
    options = console.options.update(width=10_000)
    heading = Measurement.get(console, options, column.header)
    cells = [Measurement.get(console, options, cell) for cell in column.cells]
    whole = max((one.maximum for one in cells), default=0)
    # In a column of numbers, only the heading is wrapped.
    is_whole = column.justify == "right" or column.no_wrap
    least = whole if is_whole else max((one.minimum for one in cells), default=0)
    words = [min(word, _LONGEST_WORD) for word in (heading.minimum, 0 if is_whole else least)]
    names = [min(word, _LEAST_NAME) for word in words]
    floor = whole if is_whole else 0
    return _Widths(max(whole, heading.maximum), max(floor, *words), max(floor, *names))


def _total(widths: Sequence[int]) -> int:
    """Return the width of a table with columns of these widths and two spaces between columns."""
    return sum(widths) + 2 * (len(widths) - 1)


def _parts(widths: Sequence[_Widths], room: int) -> list[list[int]]:
    """Return the column indices of each part: the first column is in all; parts have similar widths."""
    found = _filled(widths, room)
    for narrower in range(room - 1, 0, -1):
        parts = _filled(widths, narrower)
        if len(parts) > len(found):
            break
        found = parts
    return found


def _filled(widths: Sequence[_Widths], room: int) -> list[list[int]]:
    """Return the column indices of each part, filled in order; each has at least one besides the first."""
    parts: list[list[int]] = [[0]]
    for place in range(1, len(widths)):
        together = _total([widths[one].least for one in (*parts[-1], place)])
        if together > room and len(parts[-1]) > 1:
            parts.append([0])
        parts[-1].append(place)
    return parts


def _shared(widths: Sequence[_Widths], room: int) -> list[int]:
    """Share the width among columns: the widest is narrowed first; words are broken only if necessary."""
    found = [one.whole for one in widths]
    for floors in ([one.words for one in widths], [one.least for one in widths]):
        while _total(found) > room:
            able = [place for place, floor in enumerate(floors) if found[place] > floor]
            if not able:
                break
            found[max(able, key=lambda place: found[place])] -= 1
    return found


def _part(table: Table, places: Sequence[int], widths: Sequence[int]) -> Table:
    """Return a table of the columns at `places`, with these widths."""
    part = copy.copy(table)
    part.columns = [
        dataclasses.replace(table.columns[place], _index=number, width=width, overflow="fold", no_wrap=False)
        for number, (place, width) in enumerate(zip(places, widths, strict=True))
    ]
    return part


class HarmlessConsole(Console):
    """A console that removes control sequences from printed text; its own take effect."""

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return super()._render_buffer(
            segment if segment.control else segment._replace(text=harmless(segment.text)) for segment in buffer
        )


class DataConsole(HarmlessConsole):
    """A console that prints every digit and name; a closed pipe ends the command with its exit code."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects; tables are fitted to the terminal, and exceed it only if a number is wider."""
        if not any(isinstance(one, Table) for one in objects):
            super().print(*objects, **options)
            return
        for one in objects:
            parts = fitted(self, one) if isinstance(one, Table) else [one]
            for number, part in enumerate(parts):
                if number:
                    super().print()
                self._print_whole(part, options)

    def _print_whole(self, part: Any, options: dict[str, Any]) -> None:
        """Print an object without cutting any line."""
        least = least_width(part) if isinstance(part, Table) else 0
        fits = self.width
        self.width = max(least, fits)
        try:
            super().print(part, crop=least <= fits, **options)
        finally:
            self.width = fits

    def on_broken_pipe(self) -> None:
        """Raise `ClosedPipe` instead of the exit that rich would do."""
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
        head, left = heading if isinstance(heading, str) else heading.head, column.is_text
        table.add_column(head, justify="left" if left else "right", no_wrap=no_wrap and not left)
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
    made = cell.copy()
    made.plain = one_line(cell.plain)
    return made


def framed(
    title: str = "", *headings: str | Text, words: int = 1, text: Collection[str] = (), tall: bool = False
) -> Table:
    """Make a table without rows in the style of all commands; cells of a `tall` one may have several lines.

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
