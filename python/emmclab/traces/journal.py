"""Describes the cost of journaling in words, and recognises kernel threads; the Rust core computes the numbers."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, TypedDict

from emmclab.runtime.document import TextTable, filled_in, fixed, write_page
from emmclab.runtime.field_mapping import FieldMapping


class Kind(NamedTuple):
    """A kind of kernel thread: the prefix of its name, its file system, and what it writes."""

    begins: str
    file_system: str
    role: str


#: Role of a thread that writes checkpoints, which make earlier data reachable, like journal commits.
CHECKPOINT = "checkpoint"
#: Role of a thread that sends only discards; reads by such a thread are discards that a recorder misread.
DISCARDS = "discards"
#: Kinds of kernel threads. Names have at most 15 characters, and usually end with the device: `f2fs_ckpt-254:4`.
KINDS = (
    Kind("f2fs_ckpt", "f2fs", CHECKPOINT),
    Kind("f2fs_flush", "f2fs", "flushes"),
    Kind("f2fs_gc", "f2fs", "cleaning of segments"),
    Kind("f2fs_discard", "f2fs", DISCARDS),
    Kind("jbd2/", "ext4", "journal"),
    Kind("xfsaild/", "xfs", "metadata written back"),
    Kind("btrfs-transacti", "btrfs", "commit of a transaction"),
)


class ProcessRow(TypedDict):
    """The fields of a row of the figure `process_share` that the journaling analysis uses."""

    process: str | None
    reads: int
    writes: int
    others: int
    read_kb: float
    write_kb: float


class KernelThread(TypedDict):
    """A kernel thread of a file system: its task, its requests, and its share of all bytes written."""

    thread: str
    file_system: str
    role: str
    requests: int
    reads: int
    writes: int
    read_kb: float
    written_kb: float
    written_pct: float | None


#: Columns of the data of writes, as templates of the fields of a row.
_WRITTEN = {"KB": "{kb:,.1f}", "% of written": "{written_pct:,.2f}"}


def kernel_threads(processes: Iterable[ProcessRow], written_kb: float) -> list[KernelThread]:
    """Return the kernel threads of file systems among the processes (rows of `process_share`), largest first.

    >>> row = {"process": "f2fs_ckpt-254:4", "reads": 1, "writes": 9, "others": 0}
    >>> row |= {"read_kb": 4.0, "write_kb": 36.0}
    >>> [(one["file_system"], one["role"], one["written_pct"]) for one in kernel_threads([row], 72.0)]
    [('f2fs', 'checkpoint', 50.0)]
    """
    threads: list[KernelThread] = []
    for row in processes:
        name = str(row["process"])
        kind = next((kind for kind in KINDS if name.startswith(kind.begins)), None)
        if kind is not None:
            threads.append(
                {
                    "thread": name,
                    "file_system": kind.file_system,
                    "role": kind.role,
                    "requests": row["reads"] + row["writes"] + row["others"],
                    "reads": row["reads"],
                    "writes": row["writes"],
                    "read_kb": row["read_kb"],
                    "written_kb": row["write_kb"],
                    "written_pct": 100 * row["write_kb"] / written_kb if written_kb else None,
                }
            )
    return sorted(threads, key=lambda thread: (-thread["written_kb"], thread["thread"]))


_POINTS = {"mean": "mean", "p50": "p50", "p99": "p99", "max": "max"}


class Journal(FieldMapping):
    """The cost of journaling in a trace; a mapping of the fields that `emmclab journal --json` prints.

    >>> import emmclab
    >>> emmclab.read(emmclab.bundled()[0]).journal()["by_role"]
    []
    """

    def __repr__(self) -> str:
        return f"<Journal: {self.headline}>"

    @property
    def by_roles(self) -> bool:
        """Whether the trace states the role of each block (journal, metadata, data).

        >>> import emmclab
        >>> emmclab.read(emmclab.bundled()[0]).journal().by_roles
        False
        """
        return bool(self["known_by"] == "roles")

    @property
    def headline(self) -> str:
        """A sentence on the cost of journaling in the trace."""
        share, commits = self["journal_pct"], self["commits"]
        if not self["writes"]:
            return "Nothing is written in this trace."
        if self.by_roles:
            parts = [f"{share:.1f} % of the bytes written go to the journal"]
            if commits["commits"]:
                blocks = commits["journal_blocks"]["mean"]
                parts[0] += f", in {commits['commits']:,} commits of {blocks:.1f} blocks"
            if (unchanged := self["logged"]["unchanged_sectors_pct"]) is not None:
                parts.append(f"{unchanged:.1f} % of the logged sectors are the same as in their last logged copy")
        elif self["known_by"] == "addresses":
            parts = [f"By their addresses, {self._found()}"]
        elif share is None and (checkpoints := self._checkpoints()):
            parts = [checkpoints]
        elif share is None:
            parts = ["Roles are not known, and neither flags nor addresses indicate a journal"]
        else:
            by_flag = any(row["sign"] == "journal" for row in self["by_sign"])
            writer = "the journal's thread wrote" if by_flag else "by their addresses, up to"
            parts = [f"Roles are not known: {writer} {share:.1f} % of the bytes written"]
            if not by_flag:
                parts[0] += " may be a journal's"
            if commits is not None:
                parts[0] += f", in {commits['commits']:,} commits (by {commits['counted_by']})"
        if (durable := self["flush_fua_time_pct"]) is not None:
            parts.append(f"flushes and FUA take {durable:.1f} % of the service time of synchronous writes")
        return "; ".join(parts) + "."

    def tables(self) -> list[TextTable]:
        """Return the tables for the terminal and for pages; tables without rows are left out.

        >>> import emmclab
        >>> [table.title for table in emmclab.read(emmclab.bundled()[0]).journal().tables()][0]
        'Writes by flags and addresses'
        """
        all_of_them = (
            self._kinds(),
            self._roles(),
            self._signs(),
            self._found_table(),
            self._threads(),
            self._commits(),
            self._logged(),
            self._changed(),
            self._synchronous(),
            self._rates(),
        )
        return [table for table in all_of_them if table.rows]

    def remarks(self) -> list[str]:
        """Return remarks on what the figures do not show."""
        remarks = []
        if not self.by_roles:
            remarks.append(
                "Roles are not known: this trace has no block notes. Flags and addresses show which writes "
                "are likely the journal's, but not what their blocks are or how much of them changed."
            )
            if self["known_by"] == "flags" and self["found"]:
                remarks.append(f"Without the flags, by their addresses, {self._found()}.")
            elif self["writes"] and not self["found"]:
                remarks.append("No writes follow the write pointer of a journal, and none alternate like checkpoints.")
        if (commits := self["commits"]) is not None:
            parts = [f"Commits are counted by {commits['counted_by']}: {commits['commits']:,}"]
            if (rate := commits["commits_per_s"]) is not None:
                parts.append(f"{rate:.2f} a second")
            if commits["transactions"] is not None:
                parts.append(f"of {commits['transactions']:,} transactions")
                parts.append(f"{commits['fast_commits']:,} other fast-commit blocks")
            remarks.append(", ".join(parts) + ".")
            if commits["not_committed"]:
                remarks.append(f"{commits['not_committed']:,} logged blocks have no commit block in the trace.")
        if misread := self._discards_as_reads():
            remarks.append(f"{misread}.")
        synchronous = self["synchronous_writes"]
        if 0 < synchronous["timed"] < synchronous["requests"]:
            remarks.append(
                f"Service times are known of {synchronous['timed']:,} of {synchronous['requests']:,} "
                "synchronous writes."
            )
        return remarks

    def write_html(self, path: str | Path) -> None:
        """Write the cost of journaling as one HTML file that needs no network.

        >>> import emmclab, pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = pathlib.Path(folder, "page.html")
        ...     emmclab.read(emmclab.bundled()[0]).journal().write_html(page)
        ...     page.stat().st_size < 3_000_000
        True
        """
        write_page("journal", self, path)

    def _kinds(self) -> TextTable:
        rows = self["by_kind"]
        data = next((row["kb"] for row in rows if row["kind"] == "data"), 0)
        rows = [{**row, "ratio": f"{row['kb'] / data:.2f} : 1" if data else None} for row in rows]
        columns = {"kind": "{kind}", "requests": "{requests:,}", **_WRITTEN, "to data": "{ratio}"}
        return filled_in("Bytes written", columns, rows)

    def _roles(self) -> TextTable:
        columns = {"role": "{role}", "requests": "{requests:,}", "blocks": "{blocks:,}", **_WRITTEN}
        return filled_in("Writes by role", columns, self["by_role"])

    def _signs(self) -> TextTable:
        columns = {"sign": "{sign}", "meaning": "{about}", "requests": "{requests:,}", **_WRITTEN}
        return filled_in("Writes by flags and addresses", columns, self["by_sign"], words=2)

    def _found(self) -> str:
        """Return the end of a sentence on the journals and checkpoints that are found by addresses."""
        parts = []
        for kind, what in (
            ("journal", "follow the write pointer of a journal (as ext4 writes it), in {:,} commits of {:,.1f} KB"),
            ("checkpoints", "are checkpoints of f2fs, which has no journal: {:,} with {:,.1f} KB"),
        ):
            rows = [row for row in self["found"] if row["kind"] == kind]
            if commits := sum(row["commits"] for row in rows):
                share = sum(row["written_pct"] for row in rows)
                size = sum(row["commits"] * row["commit_kb"] for row in rows) / commits
                parts.append(f"{share:.1f} % of the bytes written {what.format(commits, size)} and a last block")
        return "; ".join(parts)

    def _found_table(self) -> TextTable:
        columns = {
            "device": "{device}",
            "file system": "{file_system}",
            "what": "{kind}",
            "first sector": "{first_sector:,}",
            "range KB": "{size_kb:,.0f}",
            "requests": "{writes:,}",
            "KB": "{kb:,.0f}",
            "% of written": "{written_pct:,.2f}",
            "commits": "{commits:,}",
            "KB before the last block": "{commit_kb:,.1f}",
            "passes": "{passes:,}",
            "in order %": "{closed_pct:,.1f}",
            "in the range %": "{within_pct:,.1f}",
        }
        rows = [{**row, "device": row["device"] or None} for row in self["found"]]
        return filled_in("Found by addresses and times", columns, rows, words=3)

    def _checkpoints(self) -> str:
        """Return a sentence on checkpoint writes of a file system without a journal; empty if none."""
        threads = [thread for thread in self.get("kernel_threads", ()) if thread["role"] == CHECKPOINT]
        if not threads:
            return ""
        systems = " and ".join(dict.fromkeys(thread["file_system"] for thread in threads))
        requests = sum(thread["requests"] for thread in threads)
        written = sum(thread["written_pct"] or 0.0 for thread in threads)
        return (
            f"{systems} has checkpoints, not a journal: their threads issued {requests:,} of "
            f"{self['requests']:,} requests, with {written:.1f} % of the bytes written"
        )

    def _discards_as_reads(self) -> str:
        """Return a warning that discards were recorded as reads, if the discard thread seems to have issued reads."""
        threads = [row for row in self.get("kernel_threads", ()) if row["role"] == DISCARDS and row["reads"]]
        if not threads:
            return ""
        reads, megabytes = (sum(row["reads"] for row in threads), sum(row["read_kb"] for row in threads) / 1024)
        return (
            f"{', '.join(row['thread'] for row in threads)}: this thread sends discards only, so that its "
            f"{reads:,} reads of {megabytes:,.0f} MB are likely discards that were recorded as reads"
        )

    def _threads(self) -> TextTable:
        columns = {
            "thread": "{thread}",
            "file system": "{file_system}",
            "task": "{role}",
            "requests": "{requests:,}",
            "KB read": "{read_kb:,.1f}",
            "KB written": "{written_kb:,.1f}",
            "% of written": "{written_pct:.2f}",
        }
        return filled_in("Threads of file systems, by their names", columns, self.get("kernel_threads", ()), words=3)

    def _commits(self) -> TextTable:
        commits = self["commits"]
        if commits is None:
            return TextTable("", [], [], 0)
        labels = {
            "logged_blocks": "logged blocks",
            "journal_blocks": "blocks of the journal",
            "journal_kb": "KB of the journal",
        }
        rows = [
            [label, *(fixed(commits[name][point], 1) for point in _POINTS)]
            for name, label in labels.items()
            if commits[name] is not None
        ]
        return TextTable("Writes of a commit", ["of each commit", *_POINTS.values()], rows, 1)

    def _logged(self) -> TextTable:
        logged = self["logged"]
        if logged is None or not logged["blocks"]:
            return TextTable("", [], [], 0)
        rows = [
            ["by sector", fixed(logged["unchanged_sectors_pct"], 1), f"{logged['compared']:,}"],
            ["by byte (known with the contents only)", "–", "–"],
        ]
        if logged["home_compared"]:
            share = fixed(logged["home_as_logged_pct"], 1)
            rows.append(["home blocks equal to the logged copy", share, f"{logged['home_compared']:,}"])
        return TextTable("Unchanged share of logged blocks", ["share", "%", "blocks compared"], rows, 1)

    def _changed(self) -> TextTable:
        rows = [
            [str(row["changed_sectors"]), f"{row['blocks']:,}", fixed(row["pct"], 1)]
            for row in self["changed_sectors"]
            if row["blocks"]
        ]
        headings = ["changed sectors", "logged blocks", "%"]
        return TextTable("Logged blocks by sectors that changed", headings, rows, 0)

    def _synchronous(self) -> TextTable:
        return TextTable(
            "Synchronous writes",
            ["kind", "requests", "per commit", "mean ms", "p99 ms", "all ms", "% of time"],
            [
                [
                    row["kind"],
                    fixed(row["requests"], 0),
                    fixed(row["per_commit"], 2),
                    *(fixed((row["service_ms"] or {}).get(point), 3) for point in ("mean", "p99")),
                    fixed(row["time_ms"], 1) if row["service_ms"] else "–",
                    fixed(row["time_pct"], 1),
                ]
                for row in self["synchronous"]
            ],
            1,
        )

    def _rates(self) -> TextTable:
        rows = [
            [
                _rate(row["from_per_s"], row["to_per_s"]),
                f"{row['seconds']:,.1f}",
                *(fixed(row[name], 0) for name in ("commits", "flushes")),
                f"{row['written_kb']:,.0f}",
                f"{row['journal_kb']:,.0f}",
                fixed(row["journal_pct"], 1),
            ]
            for row in self["by_commit_rate"]
        ]
        headings = ["commits a second", "s", "commits", "flushes", "KB written", "KB journal", "journal %"]
        title = "By the rate of commits"
        return TextTable(title, headings, rows if self["commits"] else [], 1)


def _rate(low: float, high: float | None) -> str:
    """Return the label of a range of commit rates."""
    if high is None:
        return f"> {low:g}"
    return f"{low:g} - {high:g}" if high else "0"
