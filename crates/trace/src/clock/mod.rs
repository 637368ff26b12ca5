//! Jumps of the recorder's clock, and pauses of the recording, which look the same in a trace.
//!
//! Forward: the gaps between arrivals, sorted. The largest `k` up to 64 counts for which gap `k` is at least an hour and
//! 100 times gap `k + 1`, or at least 24 hours and 10 times gap `k + 1`; these `k` gaps are jumps. Nights and weekends
//! of a phone in use are none, because the gaps of its days reach minutes.
//!
//! Backward, in the order of the file: 256 successive requests, or all that remain, arrive a second or more before the
//! latest arrival so far. Fewer stand out of order and are sorted.

mod file_clock;
mod file_order;
mod gaps;
mod largest;
mod mend;

pub(crate) use file_clock::FileClock;
pub use gaps::{Gaps, Place};
pub use largest::Largest;
pub use mend::MendClock;
pub(crate) use mend::Mender;

use serde::{Deserialize, Serialize};

/// Gaps that may be jumps, at most.
pub const MOST_JUMPS: usize = 64;

/// Whether the clock went on too far or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// A gap that is no pause of the application: the clock was set on, or the recording paused.
    Forward,
    /// The clock was set back.
    Backward,
}

/// A clock jump or pause of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockJump {
    /// Direction of the jump.
    pub direction: Direction,
    /// Number of the first request after it, from 1.
    pub request: u64,
    /// Latest arrival before the jump, nanoseconds after the first arrival of the trace, on the clock as recorded.
    pub at_ns: i64,
    /// Nanoseconds from there to the first arrival after it, in either direction.
    pub length_ns: u64,
    /// Whether the times after it were shifted (`--mend-clock`).
    pub mended: bool,
}

/// Jumps that a reader found; stored in a trace's header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockJumps {
    /// The first [`MOST_JUMPS`] of them, in the order of the requests.
    pub jumps: Vec<ClockJump>,
    /// Time from the first to the last arrival without all jumps, nanoseconds, where the clock was set back; else 0.
    pub without_ns: i64,
}

impl ClockJump {
    /// The jump in a gap.
    pub fn forward(length_ns: u64, place: Place) -> Self {
        let Place { at_ns, request } = place;
        Self { direction: Direction::Forward, request, at_ns, length_ns, mended: false }
    }
}

impl ClockJumps {
    /// Whether requests after a backward jump stand among those before it.
    pub fn interleaved(&self) -> bool {
        self.jumps.iter().any(|jump| jump.direction == Direction::Backward && !jump.mended)
    }
}
