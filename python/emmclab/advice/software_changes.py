"""Loads as changed software would write them: the requests of a recording, held back in memory, merged or left out.

A rewritten load keeps the requests that the change does not concern, at their recorded times. It is simulated like the
recording itself. What a recording does not show is not changed, and its reason is stated.
"""

import csv
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from emmclab import _core
from emmclab.advice.lifetime_load import SMALL_BYTES, Load, LoadChange, Writer, hours_text
from emmclab.core_types import RecordedActivity
from emmclab.runtime.document import size
from emmclab.traces.activity import activity_of
from emmclab.traces.journal import Journal, kernel_threads
from emmclab.traces.reading import read
from emmclab.traces.trace import RequestRow, Trace

_SECTOR_BYTES, _SECOND_NS = 512, 1_000_000_000
#: Sectors of a page of memory and of a usual block of a file system, and pages of a large request (512 KB).
_PAGE, _LARGEST = 8, 128
#: Interval of the commits of a journal, seconds: the usual one of ext4, and others that are tried.
USUAL_COMMIT_S, COMMIT_INTERVALS_S = 5, (30, 60, 600)
#: Logged blocks that a descriptor of JBD2 lists: 4,096 bytes without header, UUID and checksum, 16 bytes for each.
_TAGS = 254
#: Seconds for which a folder in RAM keeps what is written.
RAM_INTERVALS_S = {"an hour": 3600, "a day": 86_400}
#: Maximum number of requests of a recording that is rewritten.
_MOST_REQUESTS = 2_000_000
#: Number of writers whose part of the wear is simulated.
_SIMULATED = 3
_JOURNAL_ROLES = ("descriptor", "logged", "revoke")
_DATA_ROLES = ("data", "journal_superblock", "fast_commit")
#: Names of the workers of the kernel that write back pages of all programs begin with this.
_WORKERS = "kworker"


class Write(NamedTuple):
    """A request of a rewritten load: time in ns, address and length in sectors, flags as a number."""

    arrival_ns: int
    sector: int
    sectors: int
    op: str = "write"
    flags: int = 0


def requests(trace: Trace) -> Iterator[RequestRow]:
    """Yield the requests of a trace in order of arrival."""
    for batch in trace.batches():
        yield from batch.rows(len(batch))


def flags_of(row: RequestRow) -> int:
    """Return the flags of a request as a number."""
    return sum(1 << _core.FLAG_NAMES.index(name) for name in row["flags"])


def unchanged(row: RequestRow) -> Write:
    """Return a request as it was recorded."""
    return Write(row["arrival_ns"], row["sector"], row["sectors"], row["op"], flags_of(row))


def writer_of(row: RequestRow) -> str:
    """Return the process that wrote, with one name for all workers of the kernel; empty if it is not recorded."""
    name = row["process"] or ""
    return _WORKERS if name.startswith(_WORKERS) else name


def rewritten(load: Load, rows: Iterable[Write], path: Path) -> Load:
    """Write requests to a file, and return them as a load that runs as often in a day as the given load."""
    written = 0
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["arrival_ns", "sector", "sectors", "op", "flags"])
        for row in rows:
            written += row.sectors * _SECTOR_BYTES if row.op == "write" else 0
            out.writerow(row)
    trace = read(path)
    return replace(
        load,
        trace=lambda passes, _seed: trace.repeated(passes) if passes > 1 else trace,
        pass_bytes=float(written),
        daily_bytes=load.daily_bytes * written / load.pass_bytes,
        others=(),
    )


def in_runs(sectors: Iterable[int], unit: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of neighbouring blocks of `unit` sectors in the given order: first sector, number of sectors.

    >>> list(in_runs([8, 16, 40, 48], 8))
    [(8, 16), (40, 16)]
    """
    first = end = -1
    for sector in sectors:
        if sector == end and end - first < _LARGEST * _PAGE:
            end += unit
            continue
        if first >= 0:
            yield first, end - first
        first, end = sector, sector + unit
    if first >= 0:
        yield first, end - first


class RamFolder:
    """Keeps what a process writes in memory for an interval, as log2ram does.

    At the end of each interval, every page of 4 KB that the process wrote in it is written once, in order of address.
    Pages that are discarded or that another process writes are not written. The process sends no flushes.

    Attributes:
        most_held: largest number of pages in memory.
    """

    def __init__(self, writer: str, interval_s: int) -> None:
        self.writer, self.interval_ns = writer, interval_s * _SECOND_NS
        self.most_held = 0

    def rewrite(self, rows: Iterable[RequestRow]) -> Iterator[Write]:
        """Yield the requests of a recording with the writes of the process at the ends of the intervals."""
        held: set[int] = set()
        end: int | None = None
        arrival = 0

        def write_out(at: int) -> Iterator[Write]:
            yield from (Write(at, *run) for run in in_runs((page * _PAGE for page in sorted(held)), _PAGE))
            held.clear()

        for row in rows:
            arrival = row["arrival_ns"]
            end = arrival + self.interval_ns if end is None else end
            while arrival >= end:
                yield from write_out(end)
                end += self.interval_ns
            pages = range(row["sector"] // _PAGE, -(-(row["sector"] + row["sectors"]) // _PAGE))
            is_own = writer_of(row) == self.writer
            if is_own and row["op"] == "write":
                held.update(pages)
                self.most_held = max(self.most_held, len(held))
                continue
            if row["op"] in ("write", "discard"):
                held.difference_update(pages)
            if not (is_own and row["op"] == "flush"):
                yield unchanged(row)
        yield from write_out(arrival)


class _Blocks:
    """The blocks of a transaction of a journal: homes of the logged blocks, and the sectors of the journal."""

    def __init__(self) -> None:
        self.homes: dict[object, None] = {}
        self.sectors: list[int] = []
        self.unit = _PAGE
        self.revokes = 0

    def add(self, other: "_Blocks") -> None:
        self.homes |= other.homes
        self.sectors += other.sectors
        self.unit, self.revokes = other.unit, max(self.revokes, other.revokes)

    def written(self, at: int, flags: int) -> Iterator[Write]:
        """Yield the writes of the transaction: descriptors and logged blocks, then the commit block."""
        count = max(1, -(-len(self.homes) // _TAGS)) + len(self.homes) + self.revokes
        yield from (Write(at, *run) for run in in_runs(self.sectors[: min(count, len(self.sectors) - 1)], self.unit))
        yield Write(at, self.sectors[min(count, len(self.sectors) - 1)], self.unit, "write", flags)


class CommitMerger:
    """Merges the commits of a journal that nothing waits for, as with a longer commit interval.

    A commit is delayed until the interval has passed since its transaction began, which is one usual interval before
    the recorded commit, or until a commit that something waits for. Each logged block is then written once, with one
    set of descriptors and one commit block; a block in place that is written again during the delay is written once.
    Without roles of blocks, the logged blocks of a journal that was found by its addresses are all kept, because their
    homes are not known, and blocks in place are not recognised.

    Attributes:
        commits: number of commits.
        merged: number of commits that became a part of a later one.
        most_held: largest number of blocks that a delayed transaction held.
    """

    def __init__(
        self, interval_s: int, activity: RecordedActivity, found: Sequence[Mapping[str, int | float | str]] = ()
    ) -> None:
        self.delay_ns = (interval_s - USUAL_COMMIT_S) * _SECOND_NS
        self.waits = sorted(
            (start, start + time)
            for task in activity.waits
            for start, time in zip(task.start_ns, task.time_ns, strict=True)
        )
        self.regions = [
            range(int(row["first_sector"]), int(row["first_sector"]) + round(2 * float(row["size_kb"])))
            for row in found
        ]
        self.commits = self.merged = self.most_held = 0
        self._running, self._pending = _Blocks(), _Blocks()
        self._due: int | None = None
        self._flags = 0
        self._last_commit: int | None = None
        self._home: dict[int, int] = {}
        self._begun = 0
        self._wait = 0

    def rewrite(self, rows: Iterable[RequestRow]) -> Iterator[Write]:
        """Yield the requests with merged commits."""
        arrival = 0
        for row in rows:
            arrival = row["arrival_ns"]
            if self._due is not None and arrival > self._due:
                yield from self._write_pending(self._due)
            parts = list(self._parts(row))
            if not parts:
                yield unchanged(row)
            for role, sector, sectors, home in parts:
                if role in _DATA_ROLES:
                    yield Write(arrival, sector, sectors, "write", flags_of(row))
                elif role in _JOURNAL_ROLES:
                    self._log(role, sector, sectors, home, arrival)
                elif role == "commit":
                    self._running.sectors.append(sector)
                    self._running.unit = sectors
                    yield from self._commit(arrival, flags_of(row))
                elif self._due is not None:
                    self._home[sector] = sectors
                else:
                    yield Write(arrival, sector, sectors, "write", flags_of(row))
        yield from self._write_pending(arrival)
        # A transaction whose commit block is not recorded is written as far as it was recorded.
        yield from (Write(arrival, *run) for run in in_runs(self._running.sectors, self._running.unit))

    def _parts(self, row: RequestRow) -> Iterator[tuple[str, int, int, object]]:
        """Yield role, sector, sectors and home of each part of a write; nothing for other requests."""
        if row["op"] != "write" or not row["sectors"]:
            return
        sector = row["sector"]
        if self.regions:
            if not any(sector in region for region in self.regions):
                return
            running = self._running
            follows = bool(running.sectors) and sector == running.sectors[-1] + _PAGE
            if follows and row["sectors"] <= _PAGE and len(running.sectors) > 1:
                yield "commit", sector, _PAGE, None
                return
            for place in range(sector, sector + row["sectors"], _PAGE):
                yield ("logged" if running.sectors or place > sector else "descriptor"), place, _PAGE, ("at", place)
            return
        roles = row.get("role", [])
        homes = row.get("home_sector") or [None] * len(roles)
        for (role, home), length in zip(zip(roles, homes, strict=True), row.get("role_sectors", []), strict=True):
            yield role, sector, length, home
            sector += length

    def _log(self, role: str, sector: int, sectors: int, home: object, arrival: int) -> None:
        running = self._running
        if not running.sectors:
            self._begun = arrival
        running.sectors.append(sector)
        running.unit = sectors
        if role == "logged":
            # A block without a known home is not the same as another.
            running.homes[("at", sector) if home is None else home] = None
        running.revokes += role == "revoke"

    def _commit(self, arrival: int, flags: int) -> Iterator[Write]:
        self.commits += 1
        is_awaited = self._is_awaited(arrival)
        self._last_commit = arrival
        if self._due is not None:
            self.merged += 1
        self._pending.add(self._running)
        self._running = _Blocks()
        self._flags = flags
        self.most_held = max(self.most_held, len(self._pending.homes) + len(self._home))
        if is_awaited or (self._due is not None and arrival >= self._due):
            yield from self._write_pending(arrival)
        elif self._due is None:
            self._due = arrival + self.delay_ns

    def _is_awaited(self, arrival: int) -> bool:
        """Return whether something waits for a commit that is recorded now.

        This is a recorded wait in fsync. Without recorded waits, it is a commit sooner after the one before than the
        usual interval, and the first one.
        """
        if self.waits:
            while self._wait < len(self.waits) and self.waits[self._wait][1] < self._begun:
                self._wait += 1
            return any(
                start <= arrival and end >= self._begun
                for start, end in itertools.takewhile(lambda wait: wait[0] <= arrival, self.waits[self._wait :])
            )
        return self._last_commit is None or arrival - self._last_commit < USUAL_COMMIT_S * _SECOND_NS

    def _write_pending(self, at: int) -> Iterator[Write]:
        if self._pending.sectors:
            yield from self._pending.written(at, self._flags)
        # Blocks in place may be written only when their transaction is in the journal.
        yield from (Write(at, sector, sectors) for sector, sectors in sorted(self._home.items()))
        self._pending, self._due, self._home = _Blocks(), None, {}


def changes_of_trace(trace: Trace, load: Load, folder: Path) -> Iterator[LoadChange]:
    """Yield the changes of the software that wrote a recording, each with its rewritten load or the reason for none."""
    profile, journal = trace.profile(), trace.journal()
    seconds = profile["duration_s"] or 0.0
    is_long = sum(row["requests"] for row in profile["by_operation"]) > _MOST_REQUESTS
    too_long = f"not known: the recording has more than {_MOST_REQUESTS:,} requests; select a part with --only"
    too_short = f"not known: the recording lasts {hours_text(seconds / 3600)}, less than the interval"
    found, reason = _journal_of(journal)
    names = itertools.count()

    def path() -> Path:
        return folder / f"{next(names)}.csv"

    for interval in COMMIT_INTERVALS_S:
        name = f"commit every {interval} s"
        about = f"the journal commits after {interval} s in place of {USUAL_COMMIT_S} s"
        why = reason or (too_long if is_long else too_short if seconds < interval else "")
        if why:
            yield LoadChange(name, about, None, why)
            continue
        merger = CommitMerger(interval, activity_of(trace.header), found)
        changed = rewritten(load, merger.rewrite(requests(trace)), path())
        about += f": {merger.merged:,} of {merger.commits:,} commits become a part of a later one"
        if not merger.waits:
            about += f"; no waits in fsync are recorded, so that those within {USUAL_COMMIT_S} s of another are awaited"
        if found:
            about += "; only descriptors and commit blocks are saved, as the homes of logged blocks are not known"
        price = f"{size(merger.most_held * _PAGE * _SECTOR_BYTES)} of RAM; {interval} s of data that was not synced"
        yield LoadChange(name, about, changed if merger.merged else load, f"{price} are lost with the power")
    yield LoadChange(
        "write-ahead log",
        "SQLite in WAL mode in place of a rollback journal",
        None,
        "not known: block requests do not show which blocks are a database and its journal; give its program (--app)",
    )
    yield LoadChange(
        "noatime",
        "no updates of access times",
        None,
        "not known: block requests do not tell access times from other changes of an inode",
    )
    writer = _busiest(profile["figures.process_share"])
    for text, interval in RAM_INTERVALS_S.items():
        about = f"what {writer or 'a process'} writes stays in RAM and is written once {text}"
        why = "" if writer else "not known: no process of a user is recorded as the writer"
        why = why or (too_long if is_long else too_short if seconds < interval else "")
        if why:
            yield LoadChange(f"log2ram, {text}", about, None, why)
            continue
        ram = RamFolder(writer, interval)
        changed = rewritten(load, ram.rewrite(requests(trace)), path())
        price = (
            f"{size(ram.most_held * _PAGE * _SECTOR_BYTES)} of RAM; its data of {interval:,} s is lost with the power"
        )
        yield LoadChange(f"log2ram, {text}", f"{about}; its metadata and journal remain", changed, price)
    yield LoadChange(
        "batching",
        "the application writes several records at once",
        None,
        "not known: a trace does not show what the application can write together; record it with the change",
    )


def _journal_of(journal: Journal) -> tuple[list[Mapping[str, int | float | str]], str]:
    """Return the journals that were found by addresses, and why commits cannot be merged; empty if they can."""
    if journal.by_roles:
        return [], "" if journal["commits"]["commits"] else "not known: the recording has no commit of a journal"
    found = [row for row in journal["found"] if row["kind"] == "journal"]
    if found:
        return found, ""
    if any(row["kind"] == "checkpoints" for row in journal["found"]):
        return [], "not possible: f2fs has checkpoints, not a journal"
    return [], "not known: the recording has no roles of blocks, and no journal was found by its addresses"


def _busiest(processes: Sequence[Mapping[str, Any]]) -> str:
    """Return the process of a user that sends the most writes; empty if there is none."""
    writes: Counter[str] = Counter()
    kernel = {thread["thread"] for thread in kernel_threads(processes, 1.0)}  # type: ignore[arg-type]
    for row in processes:
        name = row["process"] or ""
        if name and name not in kernel and not name.startswith((_WORKERS, "swapper", "ksoftirqd")):
            writes[name] += row["writes"]
    return next((name for name, count in writes.most_common(1) if count), "")


def writers_of_trace(trace: Trace, load: Load, folder: Path) -> list[Writer]:
    """Return who writes a recording, the largest first; the first have the load without them.

    Empty if no process is recorded, or if the recording is too long to be rewritten.
    """
    profile = trace.profile()
    recorded = profile["figures.process_share"]
    if not recorded or sum(row["requests"] for row in profile["by_operation"]) > _MOST_REQUESTS:
        return []
    count, written, small, sequential = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    ends: dict[str, int] = {}
    for row in requests(trace):
        if row["op"] != "write":
            continue
        name = writer_of(row)
        count[name] += 1
        written[name] += row["sectors"] * _SECTOR_BYTES
        small[name] += row["sectors"] * _SECTOR_BYTES < SMALL_BYTES
        sequential[name] += row["sector"] == ends.get(name)
        ends[name] = row["sector"] + row["sectors"]
    tasks = {thread["thread"]: f"{thread['file_system']} {thread['role']}" for thread in kernel_threads(recorded, 1.0)}
    tasks[_WORKERS] = "the kernel writes back pages of all programs"
    writers = []
    for number, (name, amount) in enumerate(written.most_common()):
        without = None
        if number < _SIMULATED and amount < load.pass_bytes:
            others = (unchanged(row) for row in requests(trace) if row["op"] != "write" or writer_of(row) != name)
            without = rewritten(load, others, folder / f"without-{number}.csv")
        share = 100 / count[name]
        writers.append(
            Writer(
                name or "not recorded",
                tasks.get(name, ""),
                amount,
                count[name],
                share * small[name],
                share * sequential[name],
                without,
            )
        )
    return writers
