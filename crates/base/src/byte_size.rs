//! Sizes in settings: `256MiB`, `"32 KB"` or a number of bytes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::SECTOR_BYTES;

/// A size in bytes. KB, MB and GB are powers of 1,024, as everywhere in this project; KiB, MiB and GiB are the same.
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
    /// Whole KB.
    pub const fn kb(kb: u64) -> Self {
        Self(kb << 10)
    }

    /// Whole MB.
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
    fn try_from(given: SizeInput) -> Result<Self, String> {
        match given {
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
    fn sizes_are_read_and_written_the_same() {
        for (text, bytes) in [("256MiB", 256 << 20), ("32 KB", 32 << 10), ("12GB", 12 << 30), ("4097", 4097), ("0", 0)]
        {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!(size.0, bytes);
            assert_eq!(size.to_string().parse::<ByteSize>().unwrap(), size);
        }
        for text in ["", "MiB", "-1", "1.5GB", "3 apples", "99999999999GB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }
}
