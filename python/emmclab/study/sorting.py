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


def in_ranges(rows: Iterable[tuple[Any, ...]], places: int, aside: Path) -> Iterator[tuple[Any, ...]]:
    """Give rows, each of which begins with its place below `places`, in the order of these.

    What does not fit into memory waits in `aside`, by ranges of places.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as aside:
    ...     list(in_ranges([(2, "c"), (0, "a"), (1, "b")], 3, Path(aside)))
    [(0, 'a'), (1, 'b'), (2, 'c')]
    """
    held: dict[int, list[tuple[Any, ...]]] = {}
    size = 0
    spilled = False
    for row in rows:
        held.setdefault(row[0] * _RANGES // places, []).append(row)
        size += sum(len(one) for one in row if isinstance(one, str))
        if size > _HELD_BYTES:
            _spill(held, aside)
            held, size, spilled = {}, 0, True
    if spilled:
        _spill(held, aside)
    for number in range(_RANGES):
        found = _taken(_file(aside, number)) if spilled else held.get(number, [])
        yield from sorted(found, key=_place)


def _place(row: tuple[Any, ...]) -> int:
    return int(row[0])


def _file(aside: Path, number: int) -> Path:
    return aside / f"range-{number}"


def _spill(held: dict[int, list[tuple[Any, ...]]], aside: Path) -> None:
    for number, rows in held.items():
        packed = zlib.compress(pickle.dumps(rows), 1)
        with _file(aside, number).open("ab") as file:
            file.write(len(packed).to_bytes(8, "little") + packed)


def _taken(path: Path) -> list[tuple[Any, ...]]:
    """Give the rows of a file of this module, and remove it."""
    rows: list[tuple[Any, ...]] = []
    if path.exists():
        with path.open("rb") as file:
            while length := file.read(8):
                # Written above, into a folder of this process.
                rows += pickle.loads(zlib.decompress(file.read(int.from_bytes(length, "little"))))  # noqa: S301
        path.unlink()
    return rows
