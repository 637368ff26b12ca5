//! The contents of a device's registers, for people and for a device preset.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;

/// Everything that is read from the registers of a device.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RegisterReport {
    /// `emmc` or `ufs`.
    pub kind: &'static str,
    /// The standard that it follows, as `eMMC 5.1`.
    pub standard: String,
    /// The preset of the same class, from which a preset of this device takes the settings that no register has.
    pub like: &'static str,
    /// Properties of the device in plain words.
    pub facts: Vec<RegisterFact>,
    /// Every field, by its name in the standard.
    pub fields: Vec<FieldRow>,
    /// Settings of a device that are derived from the registers.
    pub settings: Vec<DerivedSetting>,
    /// The capacity in bytes, if it is known.
    pub capacity: Option<RegisterCapacity>,
    /// Bytes of flash in SLC mode: the enhanced area, or `WriteBooster`.
    pub slc: Option<RegisterCapacity>,
    /// Notes on values that have no setting or were left out, with the reason.
    pub notes: Vec<String>,
}

/// One property of the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RegisterFact {
    /// The name of the property.
    pub topic: &'static str,
    /// The property in words; `None` if it is not known.
    pub text: Option<String>,
    /// The fields from which it was read.
    pub from: Vec<&'static str>,
}

/// A field as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FieldRow {
    /// Its name in the standard.
    pub name: &'static str,
    /// The register or descriptor, with the number of a logical unit.
    pub register: String,
    /// Its place in the register, as `[252:249]` or `0x10`; empty if it has none.
    pub place: String,
    /// Its value; a long number or a text as text; `None` if it is not known.
    pub value: Option<RegisterValue>,
    /// Its meaning.
    pub meaning: &'static str,
}

/// A value of a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum RegisterValue {
    /// A number.
    Number(u64),
    /// A text, or the digits of a value with more than eight bytes.
    Text(String),
}

/// A setting of a device that is derived from a register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DerivedSetting {
    /// Its dotted key.
    pub key: &'static str,
    /// Its value, as TOML.
    pub value: String,
    /// The fields with their values.
    pub from: String,
}

/// An amount in bytes that registers state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RegisterCapacity {
    /// Bytes.
    pub bytes: u64,
    /// The fields with their values.
    pub from: String,
}

pub(crate) struct FactCollector(pub Vec<RegisterFact>);

impl FactCollector {
    pub fn add(&mut self, topic: &'static str, text: Option<String>, from: &[&'static str]) {
        self.0.push(RegisterFact { topic, text, from: from.to_vec() });
    }
}

/// A value as hexadecimal digits with `0x`; `bytes` has the lowest byte first.
pub(crate) fn hex_number(bytes: &[u8]) -> String {
    bytes.iter().rev().fold("0x".to_owned(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

/// A number of bytes in the largest unit that leaves it exact.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TB", 40), ("GB", 30), ("MB", 20), ("KB", 10)];
    for (name, shift) in UNITS {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{} {name}", grouped(bytes >> shift));
        }
    }
    format!("{} B", grouped(bytes))
}

/// A number with commas.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The used part of the estimated life in words, from the step that eMMC and UFS report; `None` for 0, not defined.
pub(crate) fn life_used(step: u64) -> Option<String> {
    match step {
        0 => None,
        1..=10 => Some(format!("{} to {} % of the life used", (step - 1) * 10, step * 10)),
        11 => Some("beyond the estimated life".to_owned()),
        _ => Some(format!("{step:#04x}, a value that the standard reserves")),
    }
}

/// The state of the spare blocks in words; `None` for 0, not defined.
pub(crate) fn end_of_life(state: u64) -> Option<String> {
    match state {
        0 => None,
        1 => Some("normal".to_owned()),
        2 => Some("warning: 80 % of the spare blocks used".to_owned()),
        3 => Some("urgent: 90 % of the spare blocks used".to_owned()),
        _ => Some(format!("{state:#04x}, a value that the standard reserves")),
    }
}

pub(crate) fn yes_or_no(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact() {
        assert_eq!((size(8 << 20), size(7456 << 20)), ("8 MB".to_owned(), "7,456 MB".to_owned()));
        assert_eq!((size(0), size(1_234_567)), ("0 B".to_owned(), "1,234,567 B".to_owned()));
        assert_eq!(life_used(1), Some("0 to 10 % of the life used".to_owned()));
        assert_eq!((life_used(0), end_of_life(0)), (None, None));
    }
}
