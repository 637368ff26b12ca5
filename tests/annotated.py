"""Generates a trace with block notes, like that of ext4 in ordered mode with many small transactions."""

import random
from pathlib import Path
from typing import Any

import pyarrow

from emmclab import Trace

SYNC, FUA, META, JOURNAL = 1, 2, 8, 256
_LOG_START, _LOG_BLOCKS = 1_000_000, 4_096
#: The columns of notes.
_TYPES = {
    "role": pyarrow.string(),
    "role_sectors": pyarrow.uint32(),
    "home_sector": pyarrow.uint64(),
    "changed_sectors": pyarrow.uint16(),
    "transaction": pyarrow.uint32(),
}
#: A note: role, sectors, home, changed sectors, transaction.
Note = tuple[str, int, int | None, int | None, int | None]


def rows(commits: int = 300, seed: int = 1) -> list[dict[str, Any]]:
    """Return the requests: for each transaction data, journal blocks, a flush and a commit block."""
    chance = random.Random(seed)
    requests: list[dict[str, Any]] = []
    now, head = 0, 0

    def request(op: str, sector: int, notes: list[Note], flags: int, service_us: int) -> None:
        nonlocal now
        now += 50_000
        row = {
            "arrival_ns": now,
            "start_ns": now + 10_000,
            "complete_ns": now + 10_000 + service_us * 1_000,
            "sector": sector,
            "sectors": sum(note[1] for note in notes),
            "op": op,
            "flags": flags,
        }
        columns = zip(*notes, strict=True) if notes else ([],) * len(_TYPES)
        row.update({name: list(values) or None for name, values in zip(_TYPES, columns, strict=True)})
        requests.append(row)
        now = row["complete_ns"]

    for number in range(commits):
        # Commits are in bursts, so that their rate differs from second to second.
        now += chance.randrange(5_000_000, 40_000_000 if number % 60 < 40 else 900_000_000)
        request("write", chance.randrange(1_000) * 8, [("data", 8 * chance.randint(1, 8), None, None, None)], SYNC, 800)
        homes = [8_000 + 8 * chance.randrange(200) for _ in range(chance.randint(1, 9))]
        logged: list[Note] = [("logged", 8, home, chance.choice([1, 1, 1, 2, None]), number) for home in homes]
        descriptor: Note = ("descriptor", 8, None, 1, number)
        if head + len(logged) + 2 > _LOG_BLOCKS:
            head = 0
        request("write", _LOG_START + 8 * head, [descriptor, *logged], SYNC | META | JOURNAL, 1_200)
        request("flush", 0, [], 0, 1_500)
        head += len(logged) + 1
        request("write", _LOG_START + 8 * head, [("commit", 8, None, 1, number)], SYNC | FUA | META | JOURNAL, 900)
        head += 1
        if number % 25 == 24:
            for home in sorted(set(homes)):
                request("write", home, [("inode_table", 8, None, chance.choice([0, 0, 3]), number)], META, 700)
    return requests


def table(requests: list[dict[str, Any]]) -> pyarrow.Table:
    schema = pyarrow.schema(
        [
            *((name, pyarrow.int64()) for name in ("arrival_ns", "start_ns", "complete_ns")),
            *(("sector", pyarrow.uint64()), ("sectors", pyarrow.uint32()), ("op", pyarrow.string())),
            ("flags", pyarrow.uint16()),
            *((name, pyarrow.list_(kind)) for name, kind in _TYPES.items()),
        ]
    )
    return pyarrow.Table.from_pylist(requests, schema=schema)


def trace(requests: list[dict[str, Any]]) -> Trace:
    return Trace.from_arrow(table(requests), "annotated")


def write(path: Path, requests: list[dict[str, Any]]) -> Path:
    """Write requests as a trace in Parquet."""
    trace(requests).write(path)
    return path
