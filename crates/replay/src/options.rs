//! Options of a replay, and checks of them before the run, so that errors are reported at once and not in the middle of the run.

use emmclab_device::{DeviceConfig, Geometry};
use emmclab_trace::{
    Batch, ByteCount, Error, ErrorClass, Nanos, Request, Result, SECTOR_BYTES, TraceInput, TraceReader, interrupt,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::precondition::Precondition;

/// How the arrival time of a request is determined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplayMode {
    /// Closed loop ([`ReplayMode::Closed`]) if the trace has the necessary completions, otherwise open loop ([`ReplayMode::Open`]).
    Auto,
    /// A request arrives at its recorded arrival time, regardless of the speed of the device.
    #[default]
    Open,
    /// A request that did not overlap its predecessor in the recording arrives its think time after the simulated completion of the
    /// predecessor. A request that did overlap keeps its distance from the arrival of the predecessor. Every request except the last needs
    /// a recorded completion; a trace without completions is refused before the run.
    Closed,
    /// A request arrives when its predecessor completes, regardless of the recording. This measures the speed with one request at a time.
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
    /// Errors: [`ErrorClass::Config`] outside 0.000001..=1000000.
    pub fn new(factor: f64) -> Result<Self> {
        if !(1e-6..=1e6).contains(&factor) {
            return Err(Error::new(ErrorClass::Config, format!("the factor on the arrival rate cannot be {factor}"))
                .hint("use a factor above 0: 1 keeps the recorded arrival times, 2 halves the times between arrivals"));
        }
        Ok(Self { millionths: (factor * 1e6).round() as u64 })
    }

    /// Scales a recorded duration: divides it by the rate.
    #[inline]
    pub(crate) fn scale(self, recorded: Nanos) -> Nanos {
        if self.millionths == 1_000_000 {
            return recorded;
        }
        let scaled = i128::from(recorded.0) * 1_000_000 / i128::from(self.millionths);
        i64::try_from(scaled).map_or(Nanos::MAX, Nanos)
    }
}

/// Options of a replay. The doc comment of a field is the help text of the option in Python, on the command line, in studies and in the
/// reference. `make generate` writes the declarations for Python from this struct. Fields have these schema attributes:
///
/// - `default`: the default of the Python package, if it differs from the default here.
/// - `option`: the name on the command line, if it differs from the name of the field; null if no command has the option.
/// - `advanced`: whether only `--help-all` lists the option.
/// - `panel`: the panel of the help.
/// - `python`: the type in Python.
/// - `stored`: the place where results repeat the option.
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
    /// Number of writes to the device that the result lists, beginning with the first write; needs layers.
    #[schemars(extend("option" = null, "panel" = "Layers", "stored" = "results"))]
    pub first_writes: u32,
    /// After the last request, let the layers move all deferred data to its final location, and measure the time that this takes.
    #[schemars(extend("advanced" = true, "panel" = "Layers", "stored" = "results"))]
    pub drain: bool,
    /// Data before the run: none, sequential:PCT, random:PCT, steady[:CAPACITIES], used:AGE, a trace, or `WAY then TRACE`.
    #[schemars(with = "String", extend("default" = "none", "metavar" = "WHAT", "stored" = "always"))]
    pub precondition: Precondition,
    /// Wrap addresses beyond the device (modulo its capacity); otherwise, a trace with such addresses is refused.
    #[schemars(extend("advanced" = true, "stored" = "always"))]
    pub wrap_addresses: bool,
    /// Add a flush after this many writes, for traces that record no flushes; 0 adds none.
    #[schemars(extend("advanced" = true, "metavar" = "N"))]
    pub flush_every: u32,
    /// Percentiles of response times to report instead of the default ones, above 0 to 100, for example 50,90,99,99.9; accurate to 0.1 %.
    #[schemars(extend("advanced" = true, "default" = null, "metavar" = "P,P,...", "panel" = null, "python" = "Iterable[float] | str | None", "stored" = "never"))]
    pub percentiles: Vec<f64>,
    /// Add the distribution of response times to the result (`response_distribution`).
    #[schemars(extend("option" = null, "stored" = "never"))]
    pub distribution: bool,
}

/// Refuses traces that are not possible with the device or the mode, and chooses the mode if it is [`ReplayMode::Auto`].
///
/// It refuses requests beyond the last sector, unless addresses are wrapped. In closed loop it refuses requests without a recorded
/// completion, except the last request. If an input must contain a single device, a trace of several devices is an error.
///
/// Often the footer of a Parquet file is sufficient; other files are read completely. Inputs that can be read only once (pipes) are checked
/// during the run, which also chooses their mode.
/// Errors: [`ErrorClass::Config`] with all errors of all traces, and errors in the files.
pub fn preflight(config: &DeviceConfig, options: &ReplayOptions, inputs: &[TraceInput]) -> Result<ModeChoice> {
    let capacity = Geometry::new(config.settings()).capacity();
    preflight_on(&format!("{capacity} device"), capacity, options, inputs)
}

/// Checks traces as [`preflight`], for a device of `capacity`, which errors call `device`.
/// Errors: as [`preflight`].
pub fn preflight_on(device: &str, capacity: ByteCount, options: &ReplayOptions, inputs: &[TraceInput]) -> Result<ModeChoice> {
    let need = TraceRequirements {
        capacity: capacity.0 / SECTOR_BYTES,
        addresses: !options.wrap_addresses,
        completions: matches!(options.mode, ReplayMode::Closed | ReplayMode::Auto),
        all_complete: options.mode == ReplayMode::Closed,
        single_trace: inputs.len() == 1,
    };
    let requested = ModeChoice { mode: options.mode, reason: options.mode_reason.clone() };
    if !need.addresses && !need.completions {
        return Ok(requested);
    }
    let (mut faults, mut hints) = (Vec::new(), Vec::new());
    let (mut missing, mut all_read) = (None, !inputs.is_empty());
    for input in inputs {
        if !std::fs::metadata(&input.path).is_ok_and(|meta| meta.is_file()) {
            all_read = false;
            continue;
        }
        let trace = TraceFaults::of(input, &need)?;
        let name = input.path.display();
        if trace.beyond_end > 0 {
            faults.push(format!(
                "{name}: {} of {} requests end after the last sector of the {device}, the furthest at {}",
                trace.beyond_end,
                trace.requests,
                ByteCount(trace.largest_end.saturating_mul(SECTOR_BYTES)),
            ));
            hints.push("use a larger device, or wrap the addresses around at its capacity (--wrap-addresses)");
        }
        let why_open = match &trace.coarse_clock {
            _ if need.all_complete => None,
            Some(step) if need.completions => {
                Some(format!("the clock has steps of {step}, too coarse to tell which requests waited"))
            }
            _ => (trace.incomplete > 0).then(|| trace.incomplete_words()),
        };
        if let Some(words) = why_open {
            missing.get_or_insert_with(|| ModeChoice::open(&if need.single_trace { words } else { format!("{name}: {words}") }));
        } else if trace.incomplete > 0 {
            faults.push(format!(
                "{name}: {} of {} requests have no recorded completion (complete_ns), which closed-loop replay needs",
                trace.incomplete, trace.requests,
            ));
            hints.push("replay at the recorded arrivals (--mode open)");
        }
    }
    hints.sort_unstable();
    hints.dedup();
    let problem = match faults.as_slice() {
        [] if options.mode == ReplayMode::Auto && (all_read || missing.is_some()) => {
            return Ok(missing.unwrap_or_else(ModeChoice::closed));
        }
        [] => return Ok(requested),
        [single] => single.clone(),
        many => format!("there are {} faults:\n  - {}", many.len(), many.join("\n  - ")),
    };
    Err(Error::new(ErrorClass::Config, problem).hint(hints.join("; ")))
}

/// The replay mode of a run, and the reason if the mode was chosen automatically.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModeChoice {
    /// The replay mode; [`ReplayMode::Auto`] if it can only be determined during the run.
    pub mode: ReplayMode,
    /// The reason for this replay mode.
    pub reason: Option<String>,
}

impl ModeChoice {
    fn closed() -> Self {
        Self { mode: ReplayMode::Closed, reason: Some("completions are recorded".to_owned()) }
    }

    fn open(reason: &str) -> Self {
        Self { mode: ReplayMode::Open, reason: Some(reason.to_owned()) }
    }

    /// Returns the options with this mode set.
    #[must_use]
    pub fn apply(self, options: &ReplayOptions) -> ReplayOptions {
        ReplayOptions { mode: self.mode, mode_reason: self.reason, ..options.clone() }
    }
}

/// Reason for open loop if no completion was recorded.
const NO_COMPLETIONS: &str = "no completions are recorded";

/// Chooses the replay mode from the first batch of a trace, when the rest of the trace is not known.
pub(crate) fn by_first_batch(batch: &Batch) -> ModeChoice {
    let missing = batch.iter().filter(is_incomplete).count();
    // The last request of the batch may be the last one of the trace, so it is not counted as incomplete.
    let incomplete = missing - usize::from(batch.iter().last().is_some_and(|last| is_incomplete(&last)));
    if incomplete == 0 && missing < batch.len() {
        return ModeChoice::closed();
    }
    if missing == batch.len() {
        return ModeChoice::open(NO_COMPLETIONS);
    }
    ModeChoice::open(&format!("{missing} of the first {} requests have no recorded completion", batch.len()))
}

fn is_incomplete(request: &Request) -> bool {
    request.complete.is_none()
}

/// Requirements that the traces of a run must meet.
#[expect(clippy::struct_excessive_bools, reason = "each is a demand of its own")]
struct TraceRequirements {
    capacity: u64,
    addresses: bool,
    /// Whether the completions of requests matter.
    completions: bool,
    /// Whether a request without a recorded completion is an error.
    all_complete: bool,
    /// Whether the run has only one trace. The last request of the trace then needs no recorded completion, because no request waits for
    /// it.
    single_trace: bool,
}

/// The problems found in one trace.
#[derive(Debug, Default)]
struct TraceFaults {
    requests: u64,
    beyond_end: u64,
    largest_end: u64,
    incomplete: u64,
    /// Whether reading stopped early because the rest could not change the result.
    stopped_early: bool,
    coarse_clock: Option<String>,
}

impl TraceFaults {
    /// Explains why a trace with missing completions is not replayed in closed loop.
    fn incomplete_words(&self) -> String {
        match self.requests {
            0 => format!("{} requests have no recorded completion", self.incomplete),
            // No request has a completion. The last request of the trace may not be counted in `incomplete`, hence the addition of 1.
            read if self.incomplete + 1 >= read => NO_COMPLETIONS.to_owned(),
            read if self.stopped_early => {
                format!("{} of the first {read} requests have no recorded completion", self.incomplete)
            }
            read => format!("{} of {read} requests have no recorded completion", self.incomplete),
        }
    }

    fn of(input: &TraceInput, need: &TraceRequirements) -> Result<Self> {
        let mut reader = TraceReader::open(&input.path, &input.options)?;
        let known = reader.extent().is_some_and(|extent| {
            (!need.addresses || extent.end.0 <= need.capacity)
                && (!need.completions || extent.without_completion == 0)
                && (!input.options.one_device || extent.one_device)
        });
        let mut faults = Self { coarse_clock: reader.header().coarse_clock, ..Self::default() };
        if known {
            return Ok(faults);
        }
        let gaps = reader.extent().map_or(0, |extent| extent.without_completion);
        let addresses_fit = reader.extent().is_some_and(|extent| extent.end.0 <= need.capacity);
        if !need.all_complete && gaps > 1 && (!need.addresses || addresses_fit) {
            faults.incomplete = gaps;
            return Ok(faults);
        }
        let mut last_incomplete = 0;
        while let Some(batch) = reader.next_batch()? {
            interrupt::check()?;
            for request in &batch {
                let end = request.end().0;
                faults.requests += 1;
                if need.addresses && end > need.capacity {
                    faults.beyond_end += 1;
                    faults.largest_end = faults.largest_end.max(end);
                }
                last_incomplete = u64::from(need.completions && is_incomplete(&request));
                faults.incomplete += last_incomplete;
            }
            if !need.all_complete && !need.addresses && faults.incomplete > last_incomplete {
                faults.stopped_early = true;
                return Ok(faults);
            }
        }
        if need.all_complete || need.single_trace {
            faults.incomplete -= last_incomplete;
        }
        faults.coarse_clock = reader.header().coarse_clock;
        Ok(faults)
    }
}
