"""Records the annotated traces: applications on ext4 on a served device, with notes of their blocks.

Needs root, FUSE and loop devices. Usage: record_journal.py FOLDER [NAME...]

Each application is recorded twice: on ext4 with a journal, NAME.parquet, and on ext4 without a journal,
NAME-no-journal.parquet. `cpu_s.json` contains the processor time of each program and its system calls, in s: the
least of all its runs, because they differ by more than the cost of a journal. `journal_contents.json` contains
the unchanged share of blocks that were logged again, by bytes and by sectors, because traces have no contents.

The clock is free: time passes only while the device serves requests, so that a request arrives when the
requests for which it waited are complete, which closed-loop replay preserves. The programs determine order,
sizes and contents; the decisions of the kernel (times of write-back, places of files, times of commits) may
differ between recordings.
"""

import json
import platform
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow
import pyarrow.parquet

import emmclab
from journal_contents import superblock, unchanged
from journal_workloads import WORKLOADS

#: The served device; its times are stored in the trace.
_DEVICE = "emmc51-cache"
#: Size of the partition, smaller than the device, because layers store their log after it.
_SIZE_GB = 16
_EXTENDED = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"
#: Options of mkfs.ext4 by the suffix of a trace's name.
_JOURNALS = {"": "-J size=128", "-no-journal": "-O ^has_journal"}
#: Mount options of Android for its data partition.
_MOUNT = "noatime,noauto_da_alloc"
#: Share of a phone's memory that may be dirty: 20 % of 1 GB.
_DIRTY_BYTES = 200 << 20
#: Number of runs of each application; the last recording is stored.
_RUNS = 5
#: Bits of the column `flags`.
_FUA, _PREFLUSH = 2, 4
_SCHEMA, _HEADER, _LEDGER = b"emmclab.schema", b"emmclab.header", b"emmclab.ledger"


class Recorded(NamedTuple):
    """A run: all requests, the number of requests before the application began, and its processor time in s."""

    table: pyarrow.Table
    before: int
    cpu_s: float
    #: Figures on blocks that were logged again; empty without a journal.
    contents: dict[str, float]


def mkfs_command(journal: str = _JOURNALS[""]) -> str:
    """Return the shell command that creates the file system, by default with the journal of a phone."""
    return f'mkfs.ext4 -q -F {journal} -E {_EXTENDED} "$EMMCLAB_DEVICE" {_SIZE_GB}G'


def recorded(name: str, journal: str, folder: Path) -> Recorded:
    """Run an application on a new file system."""
    record, mount, cpu = folder / "all.parquet", folder / "mount", folder / "cpu"
    with emmclab.serve(_DEVICE, loop=True, clock="free", record=record, dirty_bytes=_DIRTY_BYTES) as disk:

        def run(*command: str) -> None:
            if disk.run(command):
                raise SystemExit(f"error: {name}: failed: {' '.join(command)}")

        def step(step_name: str) -> None:
            disk.mount(mount, options=_MOUNT)
            program = str(Path(__file__).with_name("journal_workloads.py"))
            run(sys.executable, program, step_name, name, str(mount), str(cpu))
            # Unmounting writes all blocks to their home addresses, and leaves an empty journal.
            disk.unmount()

        run("sh", "-c", mkfs_command(journal))

        def log_of(when: str) -> Path:
            run("sh", "-c", f'debugfs -R "dump <8> {folder / when}" "$EMMCLAB_DEVICE" 2>/dev/null')
            return folder / when

        step("prepare")
        since = 0 if "^has_journal" in journal else superblock(log_of("prepared").read_bytes()).sequence
        before = disk.result().requests.total
        step("run")
        contents = unchanged(log_of("log"), since) if since else {}
    file = pyarrow.parquet.ParquetFile(record)
    metadata = {key: file.metadata.metadata[key] for key in (_SCHEMA, _HEADER, _LEDGER)}
    return Recorded(file.read().replace_schema_metadata(metadata), before, float(cpu.read_text()), contents)


def _join_commits(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Join the requests that the block layer sends for a commit without FUA: flush, commit block, flush.

    ext4 requests one write with preflush and FUA. Returns the rows, and the number of flushes that were
    joined with commit blocks.
    """
    joined_rows: list[dict[str, Any]] = []
    joined = at = 0
    while at < len(rows):
        row, three = rows[at], rows[at : at + 3]
        ops = [request["op"] for request in three]
        if ops == ["flush", "write", "flush"] and "commit" in (three[1]["role"] or ()):
            first, commit, last = three
            flags = commit["flags"] | _FUA | _PREFLUSH
            times = {name: first[name] for name in ("arrival_ns", "start_ns", "issue_ns")}
            row = {**commit, **times, "complete_ns": last["complete_ns"], "flags": flags}
            joined += 2
            at += 2
        joined_rows.append(row)
        at += 1
    return joined_rows, joined


def _write(table: pyarrow.Table, before: int, name: str, target: Path) -> int:
    """Write the requests from number `before` on, starting at time 0; return their number."""
    recorded = table.slice(before).to_pylist()
    # Requests near the end of the disk are left out: the host searches there for signatures.
    inside = [row for row in recorded if row["sector"] + row["sectors"] <= _SIZE_GB << 21]
    rows, joined = _join_commits(inside)
    start = rows[0]["arrival_ns"]
    for row in rows:
        for column in ("arrival_ns", "start_ns", "issue_ns", "complete_ns"):
            row[column] -= start
    metadata = dict(table.schema.metadata)
    header = json.loads(metadata[_HEADER])
    e2fsprogs = subprocess.run(["mkfs.ext4", "-V"], capture_output=True, text=True, check=True).stderr.split()[1]
    application, on = name.removesuffix("-no-journal"), "ext4"
    if application != name:
        on += " without a journal"
    kernel = platform.release().split("-")[0]
    header["source"] = f"{application} on {on} of Linux {kernel} (mke2fs {e2fsprogs})"
    header["note"] = (
        f"on {_SIZE_GB} GB of a served {_DEVICE}, with a free clock: no time of the host; mounted with "
        f"{_MOUNT}; from mounting to unmounting; {joined:,} flushes joined with commit blocks, as preflush "
        "and FUA"
    )
    ledger = json.loads(metadata[_LEDGER])
    ledger |= {"seen": len(recorded), "kept": len(rows), "merged": joined, "filtered": len(recorded) - len(inside)}
    metadata |= {_HEADER: json.dumps(header).encode(), _LEDGER: json.dumps(ledger).encode()}
    written = pyarrow.Table.from_pylist(rows, schema=table.schema.with_metadata(metadata))
    # Columns without values are left out.
    empty = [column for column in written.column_names if written[column].null_count == len(written)]
    _write_table(written.drop_columns(empty), target)
    return len(rows)


def _write_table(table: pyarrow.Table, target: Path) -> None:
    """Write a table in few bytes: integers as differences, and its metadata without Arrow's second copy of it."""
    texts = ("op", "role")
    lists = {column: ".list.element" for column in table.column_names if pyarrow.types.is_list(table[column].type)}
    paths = {column: f"{column}{lists.get(column, '')}" for column in table.column_names}
    integers = {path: "DELTA_BINARY_PACKED" for column, path in paths.items() if column not in texts}
    with pyarrow.parquet.ParquetWriter(
        target,
        table.schema.remove_metadata(),
        compression="zstd",
        compression_level=19,
        use_dictionary=[paths[column] for column in texts],
        column_encoding=integers,
        store_schema=False,
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(table.schema.metadata)


def main() -> None:
    """Record the applications in the arguments, or all of them."""
    if len(sys.argv) < 2:
        raise SystemExit("usage: record_journal.py FOLDER [NAME...]")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    cpu_s: dict[str, float] = {}
    contents: dict[str, dict[str, float]] = {}
    for name in sys.argv[2:] or WORKLOADS:
        for suffix, journal in _JOURNALS.items():
            target = folder / f"{name}{suffix}.parquet"
            times = []
            for _ in range(_RUNS):
                with TemporaryDirectory(prefix="emmclab-") as work:
                    run = recorded(name, journal, Path(work))
                times.append(run.cpu_s)
            if run.contents:
                contents[name] = run.contents
            cpu_s[name] = round(min(*times, cpu_s.get(name, times[0])), 4)
            requests = _write(run.table, run.before, target.stem, target)
            spread = " to ".join(f"{1000 * took:.1f}" for took in (min(times), max(times)))
            print(
                f"{target.stem}: {requests:,} requests, {target.stat().st_size / 1024:.0f} KB; "
                f"{spread} ms of the processor"
            )
    (folder / "cpu_s.json").write_text(json.dumps(cpu_s, indent=1) + "\n")
    (folder / "journal_contents.json").write_text(json.dumps(contents, indent=1) + "\n")


if __name__ == "__main__":
    main()
