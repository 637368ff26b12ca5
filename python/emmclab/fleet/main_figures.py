"""The main figures of a recording, by which a fleet is summarised and compared."""

from emmclab.traces.profile_fields import RESPONSE_P99, TABLE_FIELDS, Field

#: The extent of a recording: shown, but not a property of the workload, so not compared between fleets.
EXTENTS = tuple(TABLE_FIELDS[name] for name in ("data_size_kb", "duration_s"))

#: Totals of a recording: what a change of software saves, if the recordings are of the same activity.
TOTALS = (
    TABLE_FIELDS["requests"],
    Field("write_data_kb", "Data written", "KB", 0, "bytes written"),
    Field("fsyncs", "Fsyncs", "", 0, "calls of fsync, fdatasync and sync that were recorded"),
)

#: Figures by which two fleets are compared.
COMPARED = (
    TABLE_FIELDS["mean_response_ms"],
    RESPONSE_P99,
    TABLE_FIELDS["mean_service_ms"],
    TABLE_FIELDS["no_wait_pct"],
    TABLE_FIELDS["arrival_rate_per_s"],
    TABLE_FIELDS["access_rate_kb_per_s"],
    TABLE_FIELDS["mean_read_kb"],
    TABLE_FIELDS["mean_write_kb"],
    TABLE_FIELDS["write_requests_pct"],
    TABLE_FIELDS["written_bytes_pct"],
    TABLE_FIELDS["spatial_locality_pct"],
    TABLE_FIELDS["temporal_locality_pct"],
    *TOTALS,
)

#: All main figures.
FIGURES = (*EXTENTS, *COMPARED)
