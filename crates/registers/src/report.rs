//! The contents of a device's registers, for users and for a device preset.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;

/// Report on all that the registers of a device contain.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RegisterReport {
    /// `emmc` or `ufs`.
    pub kind: &'static str,
    /// The standard that the device follows, such as `eMMC 5.1`.
    pub standard: String,
    /// The bundled preset that is most similar to the device. It provides the settings that no register contains.
    pub like: &'static str,
    /// Properties of the device in words.
    pub facts: Vec<RegisterFact>,
    /// All register fields, by their names in the standard.
    pub fields: Vec<FieldRow>,
    /// Settings of a device preset that are derived from the registers.
    pub settings: Vec<DerivedSetting>,
    /// Capacity of the user area or of all logical units; `None` if it is not known.
    pub capacity: Option<RegisterCapacity>,
    /// Flash in SLC mode: the enhanced area, or `WriteBooster`; `None` if there is none.
    pub slc: Option<RegisterCapacity>,
    /// Notes on register values that were omitted or for which there is no setting, with the reason.
    pub notes: Vec<String>,
}

/// A property of the device in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RegisterFact {
    /// The name of the property.
    pub topic: &'static str,
    /// The property in words; `None` if it is not known.
    pub text: Option<String>,
    /// The register fields from which this property was derived.
    pub from: Vec<&'static str>,
}

/// A register field and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FieldRow {
    /// Name of the field in the standard.
    pub name: &'static str,
    /// Name of the register or descriptor, with the number of the logical unit if it belongs to one.
    pub register: String,
    /// Place of the field in the register, such as `[252:249]` or `0x10`; empty if the field has no place.
    pub place: String,
    /// The value; `None` if it is not known.
    pub value: Option<RegisterValue>,
    /// Meaning of the field, with its unit.
    pub meaning: &'static str,
}

/// A value of a register field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum RegisterValue {
    /// A number of up to eight bytes.
    Number(u64),
    /// A text, or the digits of a value longer than eight bytes.
    Text(String),
}

/// A setting of a device preset that is derived from registers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DerivedSetting {
    /// Dotted key of the setting.
    pub key: &'static str,
    /// Value as TOML.
    pub value: String,
    /// The register fields, with their values, from which this setting was derived.
    pub from: String,
}

/// A capacity that registers report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RegisterCapacity {
    /// The capacity in bytes.
    pub bytes: u64,
    /// The register fields, with their values, from which this capacity was derived.
    pub from: String,
}

pub(crate) struct FactCollector(pub Vec<RegisterFact>);

impl FactCollector {
    pub fn add(&mut self, topic: &'static str, text: Option<String>, from: &[&'static str]) {
        self.0.push(RegisterFact { topic, text, from: from.to_vec() });
    }
}

/// A value as hexadecimal digits after `0x`; `bytes` has the lowest byte first.
pub(crate) fn hex_number(bytes: &[u8]) -> String {
    bytes.iter().rev().fold("0x".to_owned(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

/// A number of bytes in the largest unit in which it is a whole number.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TB", 40), ("GB", 30), ("MB", 20), ("KB", 10)];
    for (name, shift) in UNITS {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{} {name}", grouped(bytes >> shift));
        }
    }
    format!("{} B", grouped(bytes))
}

/// A number with commas between thousands.
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

/// The used share of the estimated life in words, from the step that eMMC and UFS report; `None` for step 0 ("not defined").
pub(crate) fn life_used(step: u64) -> Option<String> {
    match step {
        0 => None,
        1..=10 => Some(format!("{} to {} % of the life used", (step - 1) * 10, step * 10)),
        11 => Some("beyond the estimated life".to_owned()),
        _ => Some(format!("{step:#04x}, a value that the standard reserves")),
    }
}

/// The state of the spare blocks in words; `None` for state 0 ("not defined").
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
