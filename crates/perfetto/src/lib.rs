//! Pictures of runs in Perfetto's trace format, which <https://ui.perfetto.dev> shows: tracks with slices and counters.
//!
//! [`Tracks`] writes packets as they come, in constant memory. A [`Row`] takes slices that overlap: it has as many tracks as
//! slices overlap at most, so that none nests in another. [`RequestTracks`] draws requests, however they were made.
//!
//! Order: times are absolute, and the times of each track never go back; Perfetto sorts the packets of all tracks by time and
//! keeps the order of the file among equal ones. Sequence: all packets are of one, which begins with the state cleared.
//! Source: `protos/perfetto/trace/trace_packet.proto` and `track_event/*.proto` of Perfetto.

mod counters;
mod messages;
mod requests;
mod row;
#[cfg(test)]
mod tests;
mod tracks;

pub use counters::{Steps, Throughput};
pub use requests::{DrawnRequest, RequestTracks};
pub use row::{MOST_LANES, Row, Slice};
pub use tracks::{Argument, Counter, TrackId, Tracks, Value};
