//! Writes runs as traces in Perfetto's format, which <https://ui.perfetto.dev> shows: tracks with slices and counters.
//!
//! [`TrackWriter`] writes packets as soon as they are complete, in constant memory. A [`SliceRow`] draws slices that overlap: it
//! distributes them over several tracks, so that no slice is nested in another. [`RequestTracks`] draws requests.
//!
//! Times are absolute and never decrease within a track. Perfetto sorts the packets of all tracks by time and keeps the file's order for
//! equal times. All packets belong to one sequence, whose first packet clears the state. Source: `protos/perfetto/trace/trace_packet.proto`
//! and `track_event/*.proto` of Perfetto.

mod messages;
mod requests;
mod slice_row;
#[cfg(test)]
mod tests;
mod tracks;

pub use requests::{DrawnRequest, RequestTracks, StepCounter, ThroughputCounter};
pub use slice_row::{MOST_LANES, SliceRow, TrackSlice};
pub use tracks::{Argument, ArgumentValue, CounterTrack, TrackId, TrackWriter};
