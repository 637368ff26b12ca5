"""The main figures of a recording: those that a fleet is summed up and compared by."""

from __future__ import annotations

from emmclab.traces.profile_fields import SIZE_FIELDS, TIMING_FIELDS, Field

_KNOWN = {field.name: field for field in (*SIZE_FIELDS, *TIMING_FIELDS)}

#: How much was recorded: shown, but no property of the workload that two fleets are compared by.
EXTENTS = tuple(_KNOWN[name] for name in ("data_size_kb", "duration_s"))

#: Totals of a recording: what a change of software saves, where recordings are of the same activity.
TOTALS = (
    _KNOWN["requests"],
    Field("write_data_kb", "Data written", "KB", 0, "bytes written"),
    Field("fsyncs", "Fsyncs", "", 0, "calls of fsync, fdatasync and sync that were recorded"),
)

#: Figures that two fleets are compared by.
COMPARED = (
    _KNOWN["mean_response_ms"],
    Field("all_response_p99_ms", "p99 response", "ms", 2, "99th percentile of complete - arrival"),
    _KNOWN["mean_service_ms"],
    _KNOWN["no_wait_pct"],
    _KNOWN["arrival_rate_per_s"],
    _KNOWN["access_rate_kb_per_s"],
    _KNOWN["mean_read_kb"],
    _KNOWN["mean_write_kb"],
    _KNOWN["write_requests_pct"],
    _KNOWN["written_bytes_pct"],
    _KNOWN["spatial_locality_pct"],
    _KNOWN["temporal_locality_pct"],
    *TOTALS,
)

#: All main figures.
FIGURES = (*EXTENTS, *COMPARED)
