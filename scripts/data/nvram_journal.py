"""Makes traces of SQLite on ext4 with its journal in a small non-volatile memory, from those with it on flash.

Usage: nvram_journal.py [FOLDER]

This follows the abstract of Delta Journaling (Kim, Min, Eom, 2014): NVRAM of 16 MB stores a block of the journal as
its compressed difference from the last copy. Here the difference is the changed sectors of the block, at least one,
which is an upper bound. Like ext4 with its journal on another device, a commit first flushes the flash, because in
ordered mode data must be durable before it, and then writes its record to the NVRAM.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

import emmclab

PROGRAMS = ("sqlite-delete", "sqlite-truncate", "sqlite-persist", "sqlite-wal")
#: First sector of the NVRAM: the end of the recorded partition of 16 GB.
BORDER = 16 << 21
_NVRAM_SECTORS = 16 << 11
COLUMNS = ("arrival_ns", "complete_ns", "sector", "sectors", "op", "flags")
#: Times and addresses are stored as differences, which takes a quarter of the space.
_ENCODING = dict.fromkeys(("arrival_ns", "complete_ns", "sector"), "DELTA_BINARY_PACKED")


def in_nvram(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the requests of a trace with block notes, with its journal in NVRAM."""
    moved: list[dict[str, Any]] = []
    at = BORDER
    for row in rows:
        plain = {name: row[name] for name in COLUMNS}
        roles = row["role"] or []
        journal = [part in ("descriptor", "logged", "revoke", "commit", "journal_superblock") for part in roles]
        if not any(journal):
            moved.append(plain)
            continue
        if not all(journal):
            raise SystemExit(f"error: a request writes both journal and other blocks: {roles}")
        logged = [changed for part, changed in zip(roles, row["changed_sectors"], strict=True) if part == "logged"]
        sectors = sum(max(1, changed or 0) for changed in logged) or 1
        if "commit" in roles:
            middle = (row["arrival_ns"] + row["complete_ns"]) // 2
            moved.append({**plain, "complete_ns": middle, "op": "flush", "flags": 0, "sector": 0, "sectors": 0})
            plain["arrival_ns"] = middle
        moved.append({**plain, "flags": 0, "sector": at, "sectors": sectors})
        at += sectors
    if at > BORDER + _NVRAM_SECTORS:
        raise SystemExit("error: the journal does not fit into the NVRAM")
    return moved


def main() -> None:
    """Write the traces."""
    sources = {path.stem: path for path in emmclab.bundled(annotated=True)}
    for name in PROGRAMS:
        table = pyarrow.parquet.read_table(sources[name])
        metadata = dict(table.schema.metadata)
        header = json.loads(metadata[b"emmclab.header"])
        header["source"] += ", its journal moved into NVRAM"
        del header["block_notes"]
        ledger = json.loads(metadata[b"emmclab.ledger"])
        rows = in_nvram(table.to_pylist())
        ledger |= {"kept": len(rows), "seen": len(rows), "merged": 0, "filtered": 0}
        metadata |= {b"emmclab.header": json.dumps(header).encode(), b"emmclab.ledger": json.dumps(ledger).encode()}
        schema = pyarrow.schema([table.schema.field(column) for column in COLUMNS], metadata)
        target = Path(sys.argv[1] if len(sys.argv) > 1 else sources[name].parent) / f"{name}-nvram.parquet"
        moved = pyarrow.Table.from_pylist(rows, schema=schema)
        compact: dict[str, Any] = {"compression": "zstd", "compression_level": 19, "column_encoding": _ENCODING}
        pyarrow.parquet.write_table(moved, target, use_dictionary=["op"], **compact)
        print(f"{target}: {len(rows):,} requests")


if __name__ == "__main__":
    main()
