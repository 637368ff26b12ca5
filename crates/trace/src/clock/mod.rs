//! Jumps of the recorder's clock and pauses of the recording, which cannot be distinguished in a trace.
//!
//! Forward jumps: the gaps between arrivals are sorted, longest first. `k` is the largest number up to 64 for which gap `k` is at
//! least an hour and 100 times gap `k + 1`, or at least 24 hours and 10 times gap `k + 1`. The first `k` gaps are jumps.
//! Nights and weekends of a phone in use are not jumps, because its gaps during the day are minutes long.
//!
//! Backward jumps, in the order of the file: 256 consecutive requests, or all remaining ones, arrive a second or more before the
//! latest arrival so far. Fewer such requests are out of order and are sorted.

mod clock_mender;
mod coarse_clock;
mod file_clock;

use serde::{Deserialize, Serialize};

pub(crate) use clock_mender::ClockMender;
pub use clock_mender::MendClock;
pub(crate) use coarse_clock::{CoarseClock, JUDGED};
pub(crate) use file_clock::FileClock;
pub use file_clock::{ArrivalGaps, GapLocation, LargestValues};

/// Maximum number of gaps that may be jumps.
pub const MOST_JUMPS: usize = 64;

/// The direction of a clock jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JumpDirection {
    /// A gap that is too long to be a pause of the application: the clock was set forward, or the recording was paused.
    Forward,
    /// The clock was set back.
    Backward,
}

/// A clock jump or pause of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockJump {
    /// Direction of the jump.
    pub direction: JumpDirection,
    /// Number of the first request after the jump, counted from 1.
    pub request: u64,
    /// Latest arrival before the jump, in nanoseconds after the first arrival of the trace, on the recorded clock.
    pub at_ns: i64,
    /// Time from the latest arrival before the jump to the first arrival after it, in nanoseconds; never negative.
    pub length_ns: u64,
    /// Whether the jump was removed by shifting the times after it (`--mend-clock`).
    pub mended: bool,
}

/// The jumps that a reader detected; stored in the header of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockJumps {
    /// The first [`MOST_JUMPS`] jumps, in the order of the requests.
    pub jumps: Vec<ClockJump>,
    /// If the clock was set back, the time from the first to the last arrival without all jumps, in nanoseconds; otherwise 0.
    pub without_ns: i64,
}

impl ClockJump {
    /// Describes a gap between arrivals as a forward jump of the clock.
    pub fn forward(length_ns: u64, place: GapLocation) -> Self {
        let GapLocation { at_ns, request } = place;
        Self { direction: JumpDirection::Forward, request, at_ns, length_ns, mended: false }
    }
}

impl ClockJumps {
    /// Whether the sorted trace mixes requests from before and after a backward jump.
    pub fn interleaved(&self) -> bool {
        self.jumps.iter().any(|jump| jump.direction == JumpDirection::Backward && !jump.mended)
    }
}
