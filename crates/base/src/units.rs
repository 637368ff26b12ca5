//! Units as types, so that every number has a unit.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// Bytes in a sector, the block layer's unit of address and size.
pub const SECTOR_BYTES: u64 = 512;

/// A point in time or a duration in integer nanoseconds. The epoch of a point is the trace's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub i64);

impl Nanos {
    /// Zero nanoseconds.
    pub const ZERO: Self = Self(0);
    /// Before every time that occurs. Differences to it overflow.
    pub const MIN: Self = Self(i64::MIN);
    /// After every time that occurs. Sums with it overflow.
    pub const MAX: Self = Self(i64::MAX);

    /// Whole microseconds.
    #[inline]
    pub const fn from_micros(us: i64) -> Self {
        Self(us * 1_000)
    }

    /// Whole milliseconds.
    #[inline]
    pub const fn from_millis(ms: i64) -> Self {
        Self(ms * 1_000_000)
    }

    /// Whole seconds.
    #[inline]
    pub const fn from_secs(s: i64) -> Self {
        Self(s * 1_000_000_000)
    }

    /// The sum, or [`Nanos::MAX`] if it would overflow.
    #[inline]
    #[must_use]
    pub const fn saturating_add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }

    /// The difference, or [`Nanos::MIN`] or [`Nanos::MAX`] if it would overflow.
    #[inline]
    #[must_use]
    pub const fn saturating_sub(self, rhs: Self) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }

    /// The time in milliseconds, for display and statistics only: events are never ordered by floating-point times.
    #[inline]
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The time in seconds, for display and statistics only: events are never ordered by floating-point times.
    #[inline]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Nanos {
    type Output = Self;
    #[inline]
    fn add(self, rhs: Self) -> Self {
        Self(self.0 + rhs.0)
    }
}

impl AddAssign for Nanos {
    #[inline]
    fn add_assign(&mut self, rhs: Self) {
        self.0 += rhs.0;
    }
}

impl Sub for Nanos {
    type Output = Self;
    #[inline]
    fn sub(self, rhs: Self) -> Self {
        Self(self.0 - rhs.0)
    }
}

impl Sum for Nanos {
    #[inline]
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.unsigned_abs();
        match ns {
            0..1_000 => write!(f, "{} ns", self.0),
            1_000..1_000_000 => write!(f, "{:.1} us", self.0 as f64 / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.2} ms", self.as_millis_f64()),
            1_000_000_000..120_000_000_000 => write!(f, "{:.2} s", self.as_secs_f64()),
            120_000_000_000..7_200_000_000_000 => write!(f, "{:.2} min", self.as_secs_f64() / 60.0),
            7_200_000_000_000..172_800_000_000_000 => write!(f, "{:.2} h", self.as_secs_f64() / 3_600.0),
            _ => write!(f, "{:.2} d", self.as_secs_f64() / 86_400.0),
        }
    }
}

/// An address in 512-byte sectors from the start of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sector(pub u64);

impl Sector {
    /// The address in bytes; saturates at `u64::MAX`.
    #[inline]
    pub const fn bytes(self) -> ByteCount {
        ByteCount(self.0.saturating_mul(SECTOR_BYTES))
    }
}

impl fmt::Display for Sector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sector {}", self.0)
    }
}

/// A size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByteCount(pub u64);

impl ByteCount {
    /// The size in KB, which in the papers is 1,024 bytes.
    #[inline]
    pub fn as_kb_f64(self) -> f64 {
        self.0 as f64 / 1024.0
    }
}

impl Add for ByteCount {
    type Output = Self;
    #[inline]
    fn add(self, rhs: Self) -> Self {
        Self(self.0 + rhs.0)
    }
}

impl AddAssign for ByteCount {
    #[inline]
    fn add_assign(&mut self, rhs: Self) {
        self.0 += rhs.0;
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1_024 => write!(f, "{} B", self.0),
            1_024..1_048_576 => write!(f, "{:.1} KB", self.as_kb_f64()),
            1_048_576..1_073_741_824 => write!(f, "{:.1} MB", self.0 as f64 / 1_048_576.0),
            1_073_741_824..1_099_511_627_776 => write!(f, "{:.2} GB", self.0 as f64 / 1_073_741_824.0),
            _ => write!(f, "{:.2} TB", self.0 as f64 / 1_099_511_627_776.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_the_unit_that_suits_it() {
        for (ns, text) in [
            (35, "35 ns"),
            (1_500, "1.5 us"),
            (2_000_000, "2.00 ms"),
            (99_500_000_000, "99.50 s"),
            (600_000_000_000, "10.00 min"),
            (35_700_000_000_000, "9.92 h"),
            (-259_200_000_000_000, "-3.00 d"),
        ] {
            assert_eq!(Nanos(ns).to_string(), text);
        }
    }
}
