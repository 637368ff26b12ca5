//! Options of a replay.

use emmclab_trace::{Error, ErrorClass, Nanos, Result};
use serde::{Deserialize, Serialize};

use crate::precondition::Precondition;

/// When a request arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayMode {
    /// At its recorded arrival time, however slow the device is.
    #[default]
    Open,
    /// A request that did not overlap its predecessor in the recording keeps its think time after the predecessor's simulated completion. A
    /// request that did overlap it keeps its distance from the predecessor's arrival. Every request but the last needs a recorded
    /// completion; a trace without them is refused before the run.
    Closed,
    /// At the completion of its predecessor, whatever was recorded. This measures the speed of the device with one request at a time.
    BackToBack,
    /// [`ReplayMode::Closed`] if the trace has the completions that it needs, else [`ReplayMode::Open`].
    Auto,
}

/// A factor on the rate of arrivals, with a resolution of one millionth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct RateFactor {
    millionths: u64,
}

impl Default for RateFactor {
    fn default() -> Self {
        Self { millionths: 1_000_000 }
    }
}

impl TryFrom<f64> for RateFactor {
    type Error = Error;
    fn try_from(factor: f64) -> Result<Self> {
        Self::new(factor)
    }
}

impl From<RateFactor> for f64 {
    fn from(rate: RateFactor) -> Self {
        rate.millionths as f64 / 1e6
    }
}

impl RateFactor {
    /// Creates a rate; for example, 2 halves the time between requests.
    ///
    /// # Errors
    /// [`ErrorClass::Config`] outside 0.000001..=1000000.
    pub fn new(factor: f64) -> Result<Self> {
        if !(1e-6..=1e6).contains(&factor) {
            return Err(Error::new(ErrorClass::Config, format!("a rate of {factor} is impossible"))
                .hint("give a number above 0: 1 keeps the recorded times, 2 halves them"));
        }
        Ok(Self { millionths: (factor * 1e6).round() as u64 })
    }

    /// Converts a recorded duration to this rate.
    #[inline]
    pub(crate) fn scale(self, recorded: Nanos) -> Nanos {
        if self.millionths == 1_000_000 {
            return recorded;
        }
        let scaled = i128::from(recorded.0) * 1_000_000 / i128::from(self.millionths);
        i64::try_from(scaled).map_or(Nanos::MAX, Nanos)
    }
}

/// Options of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct ReplayOptions {
    /// Open or closed loop.
    pub mode: ReplayMode,
    /// Why the mode was chosen, if it was chosen automatically.
    pub mode_reason: Option<String>,
    /// Factor on the rate of arrivals.
    pub rate: RateFactor,
    /// Time of the first arrival on the simulated clock.
    #[serde(rename = "start_offset_ns")]
    pub start_offset: Nanos,
    /// Wrap addresses into a device that is smaller than the trace; otherwise such a trace is refused.
    pub wrap_addresses: bool,
    /// The contents of the device before the run.
    pub precondition: Precondition,
    /// Seed of random preconditioning.
    pub seed: u64,
    /// Number of the first writes from layers to the device that are kept, for a plot of their pattern.
    pub first_writes: u32,
    /// A flush follows every so many writes, in addition to those of the trace; 0 for none.
    pub flush_every: u32,
    /// After the last request, make the layers move all data that they hold in temporary places to its final place, and measure how long
    /// that takes.
    pub drain: bool,
    /// Percentiles of response times to report in addition to the usual ones: percent, ascending.
    pub percentiles: Vec<f64>,
    /// Report the distribution of response times.
    pub distribution: bool,
    /// Check the device's invariants and contents after every request.
    pub check: bool,
}
