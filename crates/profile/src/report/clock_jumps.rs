//! Clock jumps, and the figures that are distorted by them.

use schemars::JsonSchema;
use serde::Serialize;

/// A clock jump or pause of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ClockJumpRow {
    /// `forward` or `backward`.
    pub direction: &'static str,
    /// Time of the last arrival before it in the recording, seconds after the first one.
    pub time_s: f64,
    /// Number of the first request after it, from 1.
    pub request: u64,
    /// Seconds between the two arrivals, in either direction.
    pub length_s: f64,
    /// Whether the jump was removed by reading.
    pub mended: bool,
}

/// Figures that are distorted by a clock jump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct KeyFigures {
    /// First arrival to last completion (or arrival), seconds.
    pub duration_s: f64,
    /// Reads and writes per second of the duration.
    pub arrival_rate_per_s: Option<f64>,
    /// KB per second of the duration.
    pub access_rate_kb_per_s: Option<f64>,
    /// Mean time between the arrivals of consecutive reads or writes, ms.
    pub mean_inter_arrival_ms: Option<f64>,
    /// Share of the duration in which at least one request is unfinished, percent; `None` without completion times.
    pub busy_pct: Option<f64>,
    /// Percentage of the duration in which no request is unfinished, between the first and the last request.
    pub idle_pct: Option<f64>,
}
