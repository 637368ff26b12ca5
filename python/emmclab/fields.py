"""The columns of Tables III and IV: names, labels, units and meaning, said once for every output."""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """A column of a published table; `name` is its field in JSON, Parquet and Python."""

    name: str
    label: str
    unit: str
    digits: int
    about: str

    @property
    def heading(self) -> str:
        """The label with its unit."""
        return f"{self.label}, {self.unit}" if self.unit else self.label

    def text(self, value: float | None) -> str:
        """Print a value with the column's digits; a missing one is a dash.

        >>> SIZE_FIELDS[0].text(63668.0), SIZE_FIELDS[4].text(None)
        ('63,668', '–')
        """
        return "–" if value is None else f"{value:,.{self.digits}f}"


#: Table III (IISWC 2015, section III-B).
SIZE_FIELDS = (
    Field("data_size_kb", "Data", "KB", 0, "bytes read and written"),
    Field("requests", "Requests", "", 0, "reads and writes"),
    Field("max_size_kb", "Max size", "KB", 0, "the largest request"),
    Field(
        "mean_size_kb",
        "Mean size",
        "KB",
        2,
        "bytes of a request, mean; the paper rounds down to a multiple of 0.5",
    ),
    Field("mean_read_kb", "Mean read", "KB", 2, "bytes of a read, mean"),
    Field("mean_write_kb", "Mean write", "KB", 2, "bytes of a write, mean"),
    Field("write_requests_pct", "Write requests", "%", 2, "writes among requests"),
    Field("written_bytes_pct", "Written bytes", "%", 2, "bytes written among all bytes"),
)

#: Table IV (IISWC 2015, section III-C).
TIMING_FIELDS = (
    Field("duration_s", "Duration", "s", 0, "first arrival to last completion"),
    Field("arrival_rate_per_s", "Arrivals", "1/s", 2, "requests per second of the duration"),
    Field("access_rate_kb_per_s", "Access rate", "KB/s", 2, "bytes per second of the duration"),
    Field("no_wait_pct", "No-wait", "%", 2, "requests that arrive when no earlier one is unfinished"),
    Field("mean_service_ms", "Mean service", "ms", 2, "complete - start"),
    Field("mean_response_ms", "Mean response", "ms", 2, "complete - arrival"),
    Field(
        "spatial_locality_pct",
        "Spatial locality",
        "%",
        2,
        "requests that start where their predecessor ended",
    ),
    Field(
        "temporal_locality_pct",
        "Temporal locality",
        "%",
        2,
        "requests whose start address has been seen before",
    ),
)

#: Meaning of the counts of a ledger, by field.
LEDGER_MEANINGS = {
    "seen": "records of the input: lines, rows or events",
    "paired": "requests whose arrival and completion events were matched",
    "kept": "requests in the trace",
    "skipped": "bad records left out under `--lenient`, and records of a kind that is no request",
    "split": "requests that the block layer split",
    "merged": "requests that the block layer merged into another",
    "requeued": "requests that the driver gave back and issued again",
    "reordered": "requests that stood before one of earlier arrival, and were sorted",
    "headers_stripped": "header blocks of packed commands, subtracted from the size of a request",
    "ambiguous": "requests whose events match in more than one way",
    "unpaired": "requests without a completion, or the reverse, at the edges of a recording",
    "lost": "records that the recorder reports as lost",
    "folded": "requests whose address was wrapped into a smaller device",
}

#: Both tables with their titles.
TABLES = (("Table III: sizes", SIZE_FIELDS), ("Table IV: timing and locality", TIMING_FIELDS))
