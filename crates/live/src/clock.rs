//! The clock of simulated time and its relation to the time of the host.

use std::str::FromStr;
use std::time::{Duration, Instant};

use emmclab_base::{Error, ErrorClass, Nanos, Result};

/// How simulated time advances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClockPace {
    /// Requests take no host time (free clock): simulated time jumps to the latest completion, and the next request arrives then.
    Free,
    /// Durations on the host are the simulated durations times this factor: 1 is real time, 0.1 is ten times as fast.
    Scaled(f64),
}

impl ClockPace {
    /// Simulated time advances at the speed of host time.
    pub const REAL: Self = Self::Scaled(1.0);
}

impl FromStr for ClockPace {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let factor = match text {
            "free" => return Ok(Self::Free),
            "real" => return Ok(Self::REAL),
            _ => text.strip_prefix('x').and_then(|factor| factor.parse::<f64>().ok()),
        };
        factor.filter(|factor| (1e-6..=1e6).contains(factor)).map(Self::Scaled).ok_or_else(|| {
            Error::new(ErrorClass::Config, format!("the clock `{text}` is unknown"))
                .hint("use `real`, `free`, or `x` and a factor from 0.000001 to 1000000: with x0.1 the clock is ten times as fast as real time")
        })
    }
}

impl std::fmt::Display for ClockPace {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Free => out.write_str("free"),
            Self::Scaled(1.0) => out.write_str("real"),
            Self::Scaled(factor) => write!(out, "x{factor}"),
        }
    }
}

/// A clock of simulated time; it never goes backwards.
#[derive(Clone, Debug)]
pub(crate) struct LiveClock {
    pace: ClockPace,
    /// With [`ClockPace::Free`]: whether the host time between requests is added to simulated time.
    think: bool,
    /// A time of the host's clock, and the simulated time that corresponds to it.
    origin: (Instant, Nanos),
    latest: Nanos,
}

impl LiveClock {
    pub fn new(pace: ClockPace, think: bool) -> Self {
        Self { pace, think, origin: (Instant::now(), Nanos::ZERO), latest: Nanos::ZERO }
    }

    pub fn pace(&self) -> ClockPace {
        self.pace
    }

    /// Changes the pace from now on.
    pub fn set_pace(&mut self, pace: ClockPace) {
        self.origin = (Instant::now(), self.now());
        self.pace = pace;
    }

    /// The current simulated time.
    pub fn now(&mut self) -> Nanos {
        let (host, simulated) = self.origin;
        let elapsed = host.elapsed().as_nanos() as i64;
        let now = match self.pace {
            ClockPace::Free if self.think => simulated + Nanos(elapsed),
            ClockPace::Free => simulated,
            ClockPace::Scaled(factor) => simulated + Nanos((elapsed as f64 / factor) as i64),
        };
        self.latest = self.latest.max(now);
        self.latest
    }

    /// Advances a free clock ([`ClockPace::Free`]) to `at`, the time of a completion; does nothing on other clocks.
    pub fn advance_free(&mut self, at: Nanos) {
        if self.pace == ClockPace::Free {
            self.latest = self.latest.max(at);
            self.origin = (Instant::now(), self.latest);
        }
    }

    /// Returns the host time that corresponds to a simulated time; `None` on a free clock ([`ClockPace::Free`]).
    pub fn host(&self, at: Nanos) -> Option<Instant> {
        let (host, simulated) = self.origin;
        let ClockPace::Scaled(factor) = self.pace else { return None };
        let after = Duration::from_nanos(((at - simulated).0.max(0) as f64 * factor) as u64);
        host.checked_add(after)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail")]
    use super::*;

    #[test]
    fn a_free_clock_stands_still_between_requests_and_a_real_one_does_not() {
        let mut free = LiveClock::new(ClockPace::Free, false);
        free.advance_free(Nanos(500));
        free.advance_free(Nanos(300));
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(free.now(), Nanos(500));
        free.set_pace(ClockPace::Scaled(0.1));
        std::thread::sleep(Duration::from_millis(1));
        assert!(free.now() >= Nanos(500) + Nanos::from_millis(10));
        let mut thinking = LiveClock::new(ClockPace::Free, true);
        std::thread::sleep(Duration::from_millis(1));
        assert!(thinking.now() >= Nanos::from_millis(1));
    }

    #[test]
    fn a_pace_is_read_as_it_is_written() {
        for text in ["free", "real", "x0.1", "x20"] {
            assert_eq!(text.parse::<ClockPace>().unwrap().to_string(), text);
        }
        for text in ["", "fast", "x", "x0", "x-1", "xNaN", "0.1"] {
            assert!(text.parse::<ClockPace>().is_err(), "{text}");
        }
    }
}
