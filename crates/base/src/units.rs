//! Types for times, addresses and sizes.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes in a sector, the unit of addresses and sizes in the block layer.
pub const SECTOR_BYTES: u64 = 512;

/// A point in time or a duration in integer nanoseconds. A point in time is relative to the origin of the trace's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Nanos(pub i64);

impl Nanos {
    /// A duration of 0 ns.
    pub const ZERO: Self = Self(0);
    /// Earlier than every real time. Calculating a difference to it overflows.
    pub const MIN: Self = Self(i64::MIN);
    /// Later than every real time. Adding to it overflows.
    pub const MAX: Self = Self(i64::MAX);

    /// A duration of whole microseconds.
    #[inline]
    pub const fn from_micros(us: i64) -> Self {
        Self(us * 1_000)
    }

    /// A duration of whole milliseconds.
    #[inline]
    pub const fn from_millis(ms: i64) -> Self {
        Self(ms * 1_000_000)
    }

    /// A duration of whole seconds.
    #[inline]
    pub const fn from_secs(s: i64) -> Self {
        Self(s * 1_000_000_000)
    }

    /// The sum of two times; [`Nanos::MAX`] on overflow.
    #[inline]
    #[must_use]
    pub const fn saturating_add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }

    /// The difference of two times; [`Nanos::MIN`] or [`Nanos::MAX`] on overflow.
    #[inline]
    #[must_use]
    pub const fn saturating_sub(self, rhs: Self) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }

    /// The time in milliseconds, for output and statistics only. Events are ordered by the integer value.
    #[inline]
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The time in seconds, for output and statistics only. Events are ordered by the integer value.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ByteCount(pub u64);

impl ByteCount {
    /// The size in KB of 1,024 bytes.
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

/// A size in bytes. KB, MB and GB are powers of 1,024 everywhere in this project, like KiB, MiB and GiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "SizeInput", into = "String")]
pub struct ByteSize(pub u64);

#[derive(Deserialize)]
#[serde(untagged)]
enum SizeInput {
    Bytes(u64),
    Text(String),
}

impl schemars::JsonSchema for ByteSize {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["string", "integer"], "unit": "B, KB, MB, GB" })
    }
}

const UNITS: [(&str, u32); 5] = [("TB", 40), ("GB", 30), ("MB", 20), ("KB", 10), ("B", 0)];

impl ByteSize {
    /// A size of whole KB.
    pub const fn kb(kb: u64) -> Self {
        Self(kb << 10)
    }

    /// A size of whole MB.
    pub const fn mb(mb: u64) -> Self {
        Self(mb << 20)
    }

    /// The size in sectors, rounded down.
    pub const fn sectors(self) -> u64 {
        self.0 / SECTOR_BYTES
    }
}

impl TryFrom<SizeInput> for ByteSize {
    type Error = String;
    fn try_from(input: SizeInput) -> Result<Self, String> {
        match input {
            SizeInput::Bytes(bytes) => Ok(Self(bytes)),
            SizeInput::Text(text) => {
                text.parse().map_err(|problem| format!("{problem}; write it as 256MiB, 32KB or a number of bytes"))
            }
        }
    }
}

impl std::str::FromStr for ByteSize {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let none = || format!("`{text}` is not a size");
        let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let number: u64 = text[..split].parse().map_err(|_| none())?;
        let unit = text[split..].trim().to_ascii_uppercase().replace("IB", "B");
        let unit = if unit.is_empty() { "B" } else { &unit };
        let (_, shift) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(none)?;
        let bytes = number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is 2^64 bytes or more"))?;
        Ok(Self(bytes))
    }
}

impl From<ByteSize> for String {
    fn from(size: ByteSize) -> Self {
        size.to_string()
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |shift: &u32| self.0 >= 1 << shift && self.0.is_multiple_of(1 << shift);
        let (name, shift) = UNITS.iter().find(|(_, shift)| fits(shift)).unwrap_or(&("B", 0));
        write!(f, "{}{name}", self.0 >> shift)
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

    #[test]
    fn sizes_are_read_and_written_the_same() {
        for (text, bytes) in [("256MiB", 256 << 20), ("32 KB", 32 << 10), ("12GB", 12 << 30), ("4097", 4097), ("0", 0)] {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!(size.0, bytes);
            assert_eq!(size.to_string().parse::<ByteSize>().unwrap(), size);
        }
        for text in ["", "MiB", "-1", "1.5GB", "3 apples", "99999999999GB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }
}
