//! When each request arrives: at its recorded time, scaled, or relative to its predecessor.

use emmclab_trace::{Error, ErrorClass, Nanos, Request, Result};

use crate::options::{ReplayMode, ReplayOptions};

/// Calculates arrival times, one request after the other.
#[derive(Debug)]
pub(crate) struct ArrivalPacer {
    mode: ReplayMode,
    /// Whether the mode was chosen automatically, so that a missing completion is no error.
    lenient: bool,
    rate: crate::RateFactor,
    start: Nanos,
    first: Option<Nanos>,
    previous: Option<PreviousRequest>,
}

#[derive(Clone, Copy, Debug)]
struct PreviousRequest {
    /// Recorded arrival.
    arrival: Nanos,
    complete: Option<Nanos>,
    /// Simulated arrival.
    at: Nanos,
}

impl ArrivalPacer {
    pub fn new(options: &ReplayOptions) -> Self {
        Self {
            mode: options.mode,
            lenient: options.mode == ReplayMode::Auto || options.mode_reason.is_some(),
            rate: options.rate,
            start: options.start_offset,
            first: None,
            previous: None,
        }
    }

    /// The mode.
    pub fn mode(&self) -> ReplayMode {
        self.mode
    }

    /// Chooses a mode if it is [`ReplayMode::Auto`]; `completions` tells whether the trace records completions.
    pub fn settle(&mut self, completions: bool) {
        if self.mode == ReplayMode::Auto {
            self.mode = if completions { ReplayMode::Closed } else { ReplayMode::Open };
        }
    }

    /// Whether no request waits for another.
    pub fn is_open(&self) -> bool {
        self.mode == ReplayMode::Open
    }

    /// Whether the request waits for the completion of its predecessor.
    pub fn needs_completion(&self, request: &Request) -> bool {
        let Some(previous) = self.previous else { return false };
        match self.mode {
            ReplayMode::Open | ReplayMode::Auto => false,
            ReplayMode::Closed => previous.complete.is_some_and(|end| request.arrival >= end),
            ReplayMode::BackToBack => true,
        }
    }

    /// The simulated arrival of a request that does not wait for another one.
    #[inline]
    pub fn open_arrival(&mut self, recorded: Nanos) -> Nanos {
        let first = *self.first.get_or_insert(recorded);
        self.start.saturating_add(self.rate.scale(recorded.saturating_sub(first)))
    }

    /// The simulated arrival; `completed` is the simulated completion of the predecessor.
    pub fn arrival(&mut self, request: &Request, completed: Nanos) -> Result<Nanos> {
        let recorded = request.arrival;
        if self.is_open() {
            return Ok(self.open_arrival(recorded));
        }
        let at = match self.previous {
            None => self.start,
            Some(_) if self.mode == ReplayMode::BackToBack => completed,
            Some(PreviousRequest { complete: None, .. }) if !self.lenient => return Err(no_completions()),
            Some(PreviousRequest { complete: Some(end), .. }) if recorded >= end => {
                completed.saturating_add(self.rate.scale(recorded.saturating_sub(end)))
            }
            Some(previous) => previous.at.saturating_add(self.rate.scale(recorded.saturating_sub(previous.arrival))),
        };
        self.previous = Some(PreviousRequest { arrival: recorded, complete: request.complete, at });
        Ok(at)
    }
}

#[cold]
fn no_completions() -> Error {
    Error::new(ErrorClass::Config, "closed-loop replay needs the recorded completion of every request")
        .hint("use the open loop (--mode open), which needs arrivals only")
}
