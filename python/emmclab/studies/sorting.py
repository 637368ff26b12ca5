"""Rows in order, where there are more than memory holds.

DuckDB sorts long texts only where all of them fit into its memory.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

#: Text that is held at once, bytes.
_HELD_BYTES = 192 << 20
#: Ranges that the places are split into, of which one is sorted at a time.
_RANGES = 256

Row = tuple[Any, ...]


def in_ranges(batches: Iterable[tuple[int, Iterable[Row]]], places: int, aside: Path) -> Iterator[Row]:
    """Yield rows, each of which begins with its place below `places`, in the order of these.

    Batches come with a place that no row of them or of later ones is before: what is before it goes out at
    once. What does not fit into memory waits in `aside`, by ranges of places.

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
            yield from _taken(following, held, aside)
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
        yield from _taken(number, held, aside)


def _place(row: Row) -> int:
    return int(row[0])


def _file(aside: Path, number: int) -> Path:
    return aside / f"range-{number}"


def _spill(held: dict[int, list[Row]], aside: Path) -> None:
    for number, rows in held.items():
        packed = zlib.compress(pickle.dumps(rows), 1)
        with _file(aside, number).open("ab") as file:
            file.write(len(packed).to_bytes(8, "little") + packed)


def _taken(number: int, held: dict[int, list[Row]], aside: Path) -> list[Row]:
    """Return the rows of a range in order, and forget them."""
    rows = held.pop(number, [])
    path = _file(aside, number)
    if path.exists():
        with path.open("rb") as file:
            while length := file.read(8):
                # Written above, into a folder of this process.
                rows += pickle.loads(zlib.decompress(file.read(int.from_bytes(length, "little"))))  # noqa: S301
        path.unlink()
    return sorted(rows, key=_place)
