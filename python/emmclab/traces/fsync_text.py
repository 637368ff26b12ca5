"""Describes how the time of waits for durability (fsync) is divided; the Rust core computes the numbers."""

from collections.abc import Mapping
from typing import Any

from emmclab.runtime.document import TextTable, duration, filled_in, fixed
from emmclab.runtime.field_mapping import FieldMapping
from emmclab.traces.profile_fields import FSYNC_FIELDS, FSYNC_PARTS, FSYNC_SHARED, Field

#: Maximum number of rows in the table of processes, and in the table of the requests of a wait. The JSON output is not
#: limited by them.
_PROCESSES, _REQUESTS = 12, 16
#: What the process waits for in each part of a wait, as text that follows "80 % of it for" in the headline.
_FOR = {
    "data": "its own requests",
    "commit": "the commit of the journal",
    "flush": "flushes and durable writes",
    "queue": "requests of other processes",
    "unexplained": "no recorded cause",
}
#: Reasons why parts of a wait are unknown, with a remedy for each.
_CAUSES = {
    "lost": "events were lost, so that requests may be missing: record again with a larger `--buffer-kb`",
    "left_out": "requests were left out of the trace: read it without `--only` and `--drop-reissued`",
    "clock": "clock jumps were removed from the requests only: read it without `--mend-clock`",
    "coarse_clock": "the clock has steps longer than a usual response: record with the clock `mono`",
    "completions": "the recording has no completions of requests: record block_rq_complete, too",
    "memory": "more than 2,097,152 requests ran during waits",
}


class Fsync(FieldMapping):
    """How the time of waits for durability (fsync) is divided; the field `fsync` of `profile --fsync --json`."""

    def __repr__(self) -> str:
        return f"<Fsync: {self.headline}>"

    @property
    def headline(self) -> str:
        """The process that waits most, and the largest part of its time, in a sentence."""
        rows = self["by_process"]
        if not rows:
            return "No wait for durability ended in this recording."
        most = rows[0]
        calls = "1 call" if most["calls"] == 1 else f"{most['calls']:,} calls"
        start = f"{most['process']} waits longest for durability: {duration(most['total_ms'] / 1e3)} in {calls}"
        shares = {part.name: most[f"{part.name}_pct"] for part in FSYNC_PARTS}
        shares = {name: share for name, share in shares.items() if share is not None}
        if not shares:
            return f"{start}; the cause is unknown."
        part = max(shares, key=lambda name: shares[name])
        cause = _FOR[part]
        if part == "commit" and most["file_system"] == "f2fs":
            cause = "the checkpoint"
        return f"{start}, {shares[part]:.0f} % of it for {cause}."

    def tables(self) -> list[TextTable]:
        """Return the tables for the terminal and for pages; tables without rows are left out."""
        tables = [self._lengths(), self._shares(), self._longest()]
        tables += [self._requests(rank, wait) for rank, wait in enumerate(self["longest"], 1)]
        tables.append(self._unfinished())
        return [table for table in tables if table.rows]

    def remarks(self) -> list[str]:
        """Return remarks on calls and causes that the figures do not contain."""
        remarks = []
        for row in self["unknown"]:
            calls = "1 call" if row["calls"] == 1 else f"{row['calls']:,} calls"
            remarks.append(f"The parts of {calls} are unknown: {_CAUSES[row['cause']]}.")
        if self["stored"] < self["calls"]:
            remarks.append(f"Of {self['calls']:,} calls, the {self['stored']:,} longest are stored and divided.")
        if devices := self["journals_without_thread"]:
            remarks.append(
                f"The thread of the journal of {', '.join(devices)} is not known, so that commits are not "
                "explained: record jbd2_run_stats, or jbd2_start_commit and jbd2_end_commit."
            )
        if devices := self["journals_without_times"]:
            remarks.append(
                f"Start and end of the commits of {', '.join(devices)} were not recorded: time in which the "
                "thread of the journal runs without a request is not explained. Record jbd2_start_commit and "
                "jbd2_end_commit."
            )
        if self["unqueued"]:
            remarks.append(
                f"Of {self['unqueued']:,} requests only the issue was recorded: a thread of the kernel may "
                "have issued them for the process that waits, whose time is then not explained. Record block_bio_queue."
            )
        if len(self["by_process"]) > _PROCESSES:
            remarks.append(f"{len(self['by_process']) - _PROCESSES:,} further processes: see `--json`.")
        return remarks

    def _lengths(self) -> TextTable:
        rows = [
            [row["process"], row["file_system"], *(fixed(row[field.name], field.digits) for field in FSYNC_FIELDS)]
            for row in self["by_process"][:_PROCESSES]
        ]
        headings = ["process", "file system", *(_heading(field) for field in FSYNC_FIELDS)]
        return TextTable("Length of waits for durability", headings, rows, 2)

    def _shares(self) -> TextTable:
        fields = (*FSYNC_PARTS, FSYNC_SHARED)
        rows = [
            [
                row["process"],
                row["file_system"],
                f"{row['split']:,}",
                *(fixed(row[f"{field.name}_pct"], 1) for field in fields),
            ]
            for row in self["by_process"][:_PROCESSES]
        ]
        headings = ["process", "file system", "calls", *(f"{field.label.lower()} %" for field in fields)]
        return TextTable("Where their time goes", headings, rows, 2)

    def _longest(self) -> TextTable:
        fields = (*FSYNC_PARTS, FSYNC_SHARED)
        rows = [
            [
                f"{rank}. {wait['process']}",
                f"{wait['file_system']} {wait['device']}".rstrip(),
                f"{wait['start_s']:,.3f}",
                f"{wait['wait_ms']:,.3f}",
                *(fixed(wait[f"{field.name}_ms"], 3) for field in fields),
            ]
            for rank, wait in enumerate(self["longest"], 1)
        ]
        headings = ["process", "file system", "at s", "ms", *(_heading(field) for field in fields)]
        return TextTable("The longest waits", headings, rows, 2)

    def _requests(self, rank: int, wait: Mapping[str, Any]) -> TextTable:
        requests = wait["requests"]
        left_out = wait["requests_left_out"] + max(0, len(requests) - _REQUESTS)
        # If there are too many requests, the longest ones are shown, first those on which the wait depends.
        longest = sorted(requests, key=lambda row: (row["part"] == "other", row["at_ms"] - row["end_ms"]))
        columns = {
            "at ms": "{at_ms:,.3f}",
            "process": "{process}",
            "request": "{what}",
            "part": "{part}",
            "sector": "{sector}",
            "sectors": "{sectors:,}",
            "queued ms": "{queued_ms:,.3f}",
            "service ms": "{service_ms:,.3f}",
            "end ms": "{end_ms:,.3f}",
        }
        rows = sorted(longest[:_REQUESTS], key=lambda row: (row["at_ms"], row["end_ms"]))
        title = f"Requests of {'the longest wait' if rank == 1 else f'wait {rank}'}, of {wait['process']}"
        if left_out:
            title += f" ({left_out:,} more are left out)"
        return filled_in(title, columns, rows, words=4)

    def _unfinished(self) -> TextTable:
        columns = {"process": "{process}", "file system": "{file_system} {device}", "since s": "{start_s:,.3f}"}
        title = f"Waits that had not ended at the end of the recording: {len(self['unfinished']):,}"
        return filled_in(title, columns, self["unfinished"][:_PROCESSES], words=2)


def _heading(field: Field) -> str:
    """Return the heading of a column of a text table."""
    return f"{field.label.lower()} {field.unit}".rstrip()
