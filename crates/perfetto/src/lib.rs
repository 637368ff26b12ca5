//! Pictures of runs in Perfetto's trace format, which <https://ui.perfetto.dev> shows: tracks with slices and counters.
//!
//! [`TrackWriter`] writes packets as they are made, in constant memory. A [`SliceRow`] shows slices that overlap: it has as many
//! tracks as the maximum number of slices that overlap, so that none nests in another. [`RequestTracks`] draws requests of
//! any origin.
//!
//! Order: times are absolute, and the times of each track never go back; Perfetto sorts the packets of all tracks by time and
//! keeps the order of the file among equal ones. Sequence: all packets belong to one sequence, which begins with the state
//! cleared. Source: `protos/perfetto/trace/trace_packet.proto` and `track_event/*.proto` of Perfetto.

mod messages;
mod requests;
mod slice_row;
#[cfg(test)]
mod tests;
mod tracks;

pub use requests::{DrawnRequest, RequestTracks, StepCounter, ThroughputCounter};
pub use slice_row::{MOST_LANES, SliceRow, TrackSlice};
pub use tracks::{Argument, ArgumentValue, CounterTrack, TrackId, TrackWriter};
