"""Sorts more rows than fit into memory.

DuckDB can sort long texts only if all of them fit into its memory.
"""

import pickle
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

#: Maximum amount of text in memory, bytes.
_HELD_BYTES = 192 << 20
#: Number of ranges into which the sort keys are divided; one range is sorted at a time.
_RANGES = 256

Row = tuple[Any, ...]


def in_ranges(batches: Iterable[tuple[int, Iterable[Row]]], places: int, aside: Path) -> Iterator[Row]:
    """Yield rows sorted by their first column, which is a number below `places`.

    Each batch has a lower bound of the numbers in it and in all later batches, so that ranges below the bound
    are yielded at once. Rows that do not fit into memory are written to `aside`, by ranges.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as aside:
    ...     list(in_ranges([(0, [(2, "c"), (0, "a")]), (1, [(1, "b")])], 3, Path(aside)))
    [(0, 'a'), (1, 'b'), (2, 'c')]
    """
    held: dict[int, list[Row]] = {}
    sizes: dict[int, int] = {}
    size = following = 0
    for least, rows in batches:
        while following < least * _RANGES // places:
            size -= sizes.pop(following, 0)
            yield from _take_range(following, held, aside)
            following += 1
        for row in rows:
            number = row[0] * _RANGES // places
            length = sum(len(one) for one in row if isinstance(one, str))
            held.setdefault(number, []).append(row)
            sizes[number] = sizes.get(number, 0) + length
            size += length
            if size > _HELD_BYTES:
                _spill(held, aside)
                held, sizes, size = {}, {}, 0
    for number in range(following, _RANGES):
        yield from _take_range(number, held, aside)


def _place(row: Row) -> int:
    return int(row[0])


def _file(aside: Path, number: int) -> Path:
    return aside / f"range-{number}"


def _spill(held: dict[int, list[Row]], aside: Path) -> None:
    for number, rows in held.items():
        packed = zlib.compress(pickle.dumps(rows), 1)
        with _file(aside, number).open("ab") as file:
            file.write(len(packed).to_bytes(8, "little") + packed)


def _take_range(number: int, held: dict[int, list[Row]], aside: Path) -> list[Row]:
    """Return the rows of a range in order, and remove them."""
    rows = held.pop(number, [])
    path = _file(aside, number)
    if path.exists():
        with path.open("rb") as file:
            while length := file.read(8):
                # The file was written above, into a folder of this process.
                rows += pickle.loads(zlib.decompress(file.read(int.from_bytes(length, "little"))))  # noqa: S301
        path.unlink()
    return sorted(rows, key=_place)
