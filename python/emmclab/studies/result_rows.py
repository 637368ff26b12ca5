"""Stores study results in Parquet files (parts): cells are written as they finish, and read in any order."""

import contextlib
import csv
import hashlib
import itertools
import pickle
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from emmclab.runtime import checksummed
from emmclab.runtime.parquet import database, questions, quoted, refusing, sql_list

#: Number of results that are fetched from the database at once.
_FETCHED = 200
#: Name of the column with the checksum of a row; it identifies the intact rows of a damaged part.
_CHECKSUM = "checksum"
#: Number of rows that are written at once when part files are joined, and of rows per row group of the result.
_JOINED, _GROUP = 500, 2_048


class StoredCell(NamedTuple):
    """The stored result of a study cell: a row of one of the study's Parquet files."""

    key: str
    #: Result of the single run of the study (cell), as JSON.
    result: str
    #: The first line is the SHA-256 of `result`. The other lines are the table rows.
    rows: str

    @staticmethod
    def of(key: str, result: str, lines: str) -> "StoredCell":
        """Create a stored cell from its key, its result, and its table rows."""
        return StoredCell(key, result, f"{hashlib.sha256(result.encode()).hexdigest()}\n{lines}")

    @property
    def checksum(self) -> str:
        """Return the SHA-256 of the whole row, first 16 digits."""
        return hashlib.sha256("\n".join(self).encode()).hexdigest()[:16]


#: DuckDB option that reserves space for the seal (a checksum) in the metadata of a part file.
_METADATA = f"kv_metadata {{{checksummed.KEY}: '{checksummed.UNSEALED}'}}"


def write_part(results: Sequence[StoredCell], path: Path, compression: str = "zstd, compression_level 1") -> None:
    """Write results as a part with a checksum; `compression` is DuckDB's option of this name.

    Raises:
        InputError: the disk is full.
    """
    values = {name: [result[place] for result in results] for place, name in enumerate(StoredCell._fields)}
    values[_CHECKSUM] = [result.checksum for result in results]
    columns = ", ".join(f"unnest(${name}::varchar[]) as {name}" for name in values)
    options = f"format parquet, compression {compression}, {_METADATA}"
    with refusing(path.parent), questions() as connection:
        connection.execute(f"copy (select {columns}) to '{quoted(path)}' ({options})", values)
    checksummed.seal(path)


def write_joined(results: Iterable[StoredCell], aside: Path) -> Path | None:
    """Write results as one part in `aside`, in batches; return None if there are none.

    Raises:
        InputError: the disk is full.
    """
    pieces: list[Path] = []
    remaining = iter(results)
    while some := list(itertools.islice(remaining, _JOINED)):
        pieces.append(aside / f"piece-{len(pieces)}.parquet")
        write_part(some, pieces[-1], "snappy")
    if not pieces:
        return None
    joined = aside / "all.parquet"
    with refusing(aside), questions() as connection:
        options = f"format parquet, compression zstd, row_group_size {_GROUP}, {_METADATA}"
        connection.execute(f"copy (from read_parquet({sql_list(pieces)})) to '{quoted(joined)}' ({options})")
    for piece in pieces:
        piece.unlink()
    checksummed.seal(joined)
    return joined


def undamaged(part: Path) -> Iterator[StoredCell]:
    """Yield the results of a damaged part that are readable and have the right checksum."""
    with questions() as connection, contextlib.suppress(duckdb.Error):
        groups = connection.execute(
            "select distinct row_group_id, row_group_num_rows from parquet_metadata($path) order by 1",
            {"path": str(part)},
        ).fetchall()
        begin = 0
        for _, rows in groups:
            # A damaged row group is skipped; the other row groups can still be read.
            with contextlib.suppress(duckdb.Error):
                connection.execute(
                    f"select {', '.join([*StoredCell._fields, _CHECKSUM])} "  # noqa: S608
                    "from read_parquet($path, file_row_number = true) "
                    "where file_row_number >= $begin and file_row_number < $end",
                    {"path": str(part), "begin": begin, "end": begin + rows},
                )
                for *values, checksum in _rows(connection):
                    if all(isinstance(value, str) for value in values):
                        cell = StoredCell(*values)
                        if cell.checksum == checksum:
                            yield cell
            begin += rows


def keys_of(parts: Sequence[Path], aside: Path) -> set[str]:
    """Return the keys of all cells whose results are in these parts.

    Raises:
        InputError: a part is broken.
    """
    with refusing(aside), questions() as connection:
        connection.execute(f"select key from read_parquet({sql_list(parts)})")  # noqa: S608
        keys: set[str] = set()
        while rows := connection.fetchmany(10_000):
            keys.update(key for (key,) in rows)
        return keys


def ask(parts: Sequence[Path], aside: Path, keys: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the key and columns of study cells in the order of `keys`; columns of missing cells are None."""
    none = tuple(None for _ in columns)
    following = 0
    for number, *values in in_ranges(_numbered(parts, aside, keys, columns), len(keys), aside):
        if number < following:  # A cell may be in two parts after a killed run.
            continue
        yield from ((key, *none) for key in keys[following:number])
        yield (keys[number], *values)
        following = number + 1
    yield from ((key, *none) for key in keys[following:])


def _numbered(
    parts: Sequence[Path], aside: Path, keys: Sequence[str], columns: Sequence[str]
) -> Iterator[tuple[int, Iterator[tuple[Any, ...]]]]:
    """Yield the rows of study cells for each result file (part); each row begins with its index in `keys`.

    Each element is the smallest index in a part, and the part's rows. Parts are sorted by this index. Their index
    ranges overlap little, because cells run roughly in the order of the study.
    """
    if not parts or not keys:
        return
    wanted_file = aside / "wanted.csv"
    with wanted_file.open("w", newline="") as file:
        csv.writer(file).writerows(enumerate(keys))
    with database(aside) as connection:
        # DuckDB keeps one side of a join in memory. This optimizer might choose the side with the large results, so it
        # is disabled.
        connection.execute("set disabled_optimizers = 'build_side_probe_side'")
        connection.execute(
            "create table wanted as select * from read_csv($path, header = false, auto_detect = false, "
            "columns = {number: 'BIGINT', key: 'VARCHAR'})",
            {"path": str(wanted_file)},
        )
        connection.execute(
            "create table places "  # noqa: S608
            "as select part.file_index as file, part.file_row_number as line, wanted.number "
            f"from read_parquet({sql_list(parts)}, file_row_number = true) part "
            "join wanted on part.key = wanted.key"
        )
        connection.execute("drop table wanted")
        least = connection.execute(
            "select file, min(number) from places group by file order by min(number), file"
        ).fetchall()
        for file_index, first in least:
            connection.execute(
                f"select placed.number, {', '.join(f'part.{name}' for name in columns)} "  # noqa: S608
                f"from read_parquet({sql_list([parts[file_index]])}, file_row_number = true) part "
                f"join (select line, number from places where file = {file_index}) placed "
                "on part.file_row_number = placed.line"
            )
            yield first, _rows(connection)


def _rows(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query, in batches."""
    while rows := connection.fetchmany(_FETCHED):
        yield from rows


#: Maximum amount of row text that is kept in memory, bytes.
_HELD_BYTES = 192 << 20
#: Number of ranges into which the sort keys are divided; one range is sorted at a time.
_RANGES = 256

Row = tuple[Any, ...]


# Sorting in DuckDB is not used here, because it can sort long texts only if all of them fit into memory.
def in_ranges(batches: Iterable[tuple[int, Iterable[Row]]], places: int, aside: Path) -> Iterator[Row]:
    """Yield rows sorted by their first column, which is a number from 0 to `places` - 1.

    Each batch has a lower bound of the numbers in it and in all later batches, so that ranges below this bound are
    yielded at once. Rows that do not fit into memory are written to the folder `aside`, by ranges.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as aside:
    ...     list(in_ranges([(0, [(2, "c"), (0, "a")]), (1, [(1, "b")])], 3, Path(aside)))
    [(0, 'a'), (1, 'b'), (2, 'c')]
    """
    ranges: dict[int, list[Row]] = {}
    sizes: dict[int, int] = {}
    size = following = 0
    for least, rows in batches:
        while following < least * _RANGES // places:
            size -= sizes.pop(following, 0)
            yield from _take_range(following, ranges, aside)
            following += 1
        for row in rows:
            number = row[0] * _RANGES // places
            length = sum(len(cell) for cell in row if isinstance(cell, str))
            ranges.setdefault(number, []).append(row)
            sizes[number] = sizes.get(number, 0) + length
            size += length
            if size > _HELD_BYTES:
                _spill(ranges, aside)
                ranges, sizes, size = {}, {}, 0
    for number in range(following, _RANGES):
        yield from _take_range(number, ranges, aside)


def _file(aside: Path, number: int) -> Path:
    return aside / f"range-{number}"


def _spill(ranges: dict[int, list[Row]], aside: Path) -> None:
    for number, rows in ranges.items():
        packed = zlib.compress(pickle.dumps(rows), 1)
        with _file(aside, number).open("ab") as file:
            file.write(len(packed).to_bytes(8, "little") + packed)


def _take_range(number: int, ranges: dict[int, list[Row]], aside: Path) -> list[Row]:
    """Return the rows whose numbers are in a range, in order, and remove them from memory and disk."""
    rows = ranges.pop(number, [])
    path = _file(aside, number)
    if path.exists():
        with path.open("rb") as file:
            while length := file.read(8):
                # Unpickling is safe, because this process wrote the file into its own folder.
                rows += pickle.loads(zlib.decompress(file.read(int.from_bytes(length, "little"))))  # noqa: S301
        path.unlink()
    return sorted(rows, key=lambda row: int(row[0]))
