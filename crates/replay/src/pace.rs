//! When each request comes: its recorded time, scaled, or after its predecessor.

use emmclab_trace::{Error, Kind, Request, Result};

use crate::options::{Mode, ReplayOptions};

/// Works out arrivals, one request after the other.
#[derive(Debug)]
pub(crate) struct Pace {
    mode: Mode,
    rate: crate::Rate,
    start: i64,
    first: Option<i64>,
    previous: Option<Previous>,
}

#[derive(Clone, Copy, Debug)]
struct Previous {
    /// Recorded.
    arrival: i64,
    complete: Option<i64>,
    /// Simulated.
    at: i64,
}

impl Pace {
    pub fn new(options: &ReplayOptions) -> Self {
        Self {
            mode: options.mode,
            rate: options.rate,
            start: options.start_offset.0,
            first: None,
            previous: None,
        }
    }

    /// Whether no request waits for another.
    pub fn is_open(&self) -> bool {
        self.mode == Mode::Open
    }

    /// Whether the request waits for the completion of its predecessor.
    pub fn waits(&self, request: &Request) -> bool {
        let Some(previous) = self.previous else { return false };
        match self.mode {
            Mode::Open => false,
            Mode::Closed => previous.complete.is_some_and(|end| request.arrival.0 >= end),
            Mode::BackToBack => true,
        }
    }

    /// The arrival in simulated time of a request that waits for no other.
    #[inline]
    pub fn open_arrival(&mut self, recorded: i64) -> i64 {
        let first = *self.first.get_or_insert(recorded);
        let since = recorded.checked_sub(first).unwrap_or(i64::MAX);
        self.start.checked_add(self.rate.scale(since)).unwrap_or(i64::MAX)
    }

    /// The arrival in simulated time; `completed` is the simulated completion of the predecessor.
    pub fn arrival(&mut self, request: &Request, completed: i64) -> Result<i64> {
        let recorded = request.arrival.0;
        if self.is_open() {
            return Ok(self.open_arrival(recorded));
        }
        let at = match self.previous {
            None => self.start,
            Some(_) if self.mode == Mode::BackToBack => completed,
            Some(Previous { complete: None, .. }) => return Err(no_completions()),
            Some(Previous { complete: Some(end), .. }) if recorded >= end => {
                completed.saturating_add(self.rate.scale(recorded.saturating_sub(end)))
            }
            Some(previous) => {
                previous.at.saturating_add(self.rate.scale(recorded.saturating_sub(previous.arrival)))
            }
        };
        self.previous =
            Some(Previous { arrival: recorded, complete: request.complete.map(|complete| complete.0), at });
        Ok(at)
    }
}

#[cold]
fn no_completions() -> Error {
    Error::new(Kind::Config, "closed-loop replay needs the recorded completion of every request")
        .hint("this trace has arrivals only; use the open loop (--mode open)")
}
