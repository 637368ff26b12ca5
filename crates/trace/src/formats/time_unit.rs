//! Units of times in trace files.

use crate::{Error, ErrorClass, Result};

/// The unit in which a file states its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Windows FILETIME ticks of 100 ns.
    Ticks,
    /// Nanoseconds.
    Nanos,
}

impl TimeUnit {
    /// The power of ten of nanoseconds in this unit.
    pub(crate) const fn digits(self) -> u32 {
        match self {
            TimeUnit::Seconds => 9,
            TimeUnit::Millis => 6,
            TimeUnit::Micros => 3,
            TimeUnit::Ticks => 2,
            TimeUnit::Nanos => 0,
        }
    }

    /// The name for `--time-unit`; ticks cannot be chosen.
    pub const fn name(self) -> &'static str {
        match self {
            TimeUnit::Seconds => "s",
            TimeUnit::Millis => "ms",
            TimeUnit::Micros => "us",
            TimeUnit::Ticks => "100 ns",
            TimeUnit::Nanos => "ns",
        }
    }

    /// The units that can be chosen, the coarsest first.
    pub(crate) const CHOICES: [TimeUnit; 4] = [TimeUnit::Seconds, TimeUnit::Millis, TimeUnit::Micros, TimeUnit::Nanos];

    /// The unit of this name.
    pub(crate) fn by_name(name: &str) -> Result<TimeUnit> {
        TimeUnit::CHOICES.into_iter().find(|unit| unit.name() == name).ok_or_else(|| {
            Error::new(ErrorClass::Config, "is not a unit of time")
                .of_field("--time-unit", 0, name.as_bytes())
                .hint("choose one of: s, ms, us, ns; `none` if a table has no times")
        })
    }
}
