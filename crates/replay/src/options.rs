//! Options of a replay.

use emmclab_trace::{Error, ErrorClass, Nanos, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::precondition::Precondition;

/// When a request arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplayMode {
    /// [`ReplayMode::Closed`] if the trace has the completions that it needs, else [`ReplayMode::Open`].
    Auto,
    /// At its recorded arrival time, however slow the device is.
    #[default]
    Open,
    /// A request that did not overlap its predecessor in the recording keeps its think time after the predecessor's simulated completion. A
    /// request that did overlap it keeps its distance from the predecessor's arrival. Every request but the last needs a recorded
    /// completion; a trace without them is refused before the run.
    Closed,
    /// At the completion of its predecessor, whatever was recorded. This measures the speed of the device with one request at a time.
    BackToBack,
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

/// Options of a replay. The doc comment of a field is the help of the option, everywhere: in Python, on the command line, in studies and in
/// the reference. The package has other defaults where `default` says so. `option` is the name on the command line if it is not that of the
/// field (null: no command has it), an `advanced` one is in `--help-all` alone, `panel` the panel of its help, `python` the type in Python, and `stored` says where results repeat it.
/// `make generate` writes the declarations for Python from this struct.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct ReplayOptions {
    /// Open loop keeps arrival times, closed loop keeps think times, back to back has no pauses; auto: closed if completions are recorded,
    /// otherwise open.
    #[schemars(extend("advanced" = true, "default" = "auto", "python" = "str | None", "stored" = "results"))]
    pub mode: ReplayMode,
    /// Why the mode was chosen, if it was chosen automatically.
    #[schemars(skip)]
    pub mode_reason: Option<String>,
    /// Factor on the rate of arrivals, above 0; 2 halves the times between them.
    #[schemars(with = "f64", range(min = 0.000_001, max = 1_000_000), extend("advanced" = true, "metavar" = "FACTOR", "stored" = "always"))]
    pub rate: RateFactor,
    /// Time of the first arrival on the simulated clock, in ns.
    #[serde(rename = "start_offset_ns")]
    #[schemars(with = "i64", range(min = 0), extend("option" = null, "stored" = "results"))]
    pub start_offset: Nanos,
    /// Seed of all random choices: preconditioning, wake-up times, victims of garbage collection.
    #[schemars(extend("advanced" = true, "default" = 1, "metavar" = "N", "stored" = "results"))]
    pub seed: u64,
    /// Check all invariants and contents against a reference model (slow).
    #[schemars(extend("advanced" = true, "stored" = "results"))]
    pub check: bool,
    /// Number of writes to the device, from the first, that the result lists; needs layers.
    #[schemars(extend("option" = null, "panel" = "Layers", "stored" = "results"))]
    pub first_writes: u32,
    /// After the last request, let the layers move all deferred data to its place, and measure this.
    #[schemars(extend("advanced" = true, "panel" = "Layers", "stored" = "results"))]
    pub drain: bool,
    /// Data before the run: none, sequential:PCT, random:PCT, steady[:CAPACITIES], used:AGE, or a trace.
    #[schemars(with = "String", extend("default" = "none", "metavar" = "WHAT", "stored" = "always"))]
    pub precondition: Precondition,
    /// Wrap addresses beyond the device (modulo its capacity); else such a trace is refused.
    #[schemars(extend("advanced" = true, "stored" = "always"))]
    pub wrap_addresses: bool,
    /// Writes between two flushes that are added to those of the trace, for traces that record none; 0 adds no flush.
    #[schemars(extend("advanced" = true, "metavar" = "N"))]
    pub flush_every: u32,
    /// Percentiles of response times instead of the usual ones, above 0 to 100, for example 50,90,99,99.9; within 0.1 %.
    #[schemars(extend("advanced" = true, "default" = null, "metavar" = "P,P,...", "panel" = null, "python" = "Iterable[float] | str | None", "stored" = "never"))]
    pub percentiles: Vec<f64>,
    /// Add the distribution of response times to the result (`response_distribution`).
    #[schemars(extend("option" = null, "stored" = "never"))]
    pub distribution: bool,
}
