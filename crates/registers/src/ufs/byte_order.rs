//! The order of the bytes of fields. A descriptor has the highest byte first; the debugfs of Qualcomm's kernels prints fields of several
//! bytes as a little-endian processor loads them.

use std::collections::BTreeMap;

use super::fields::FIELDS;
use super::text::DescriptorValue;
use super::{Key, format_value};

/// Versions of the standard, as `wSpecVersion` has them.
const VERSIONS: [u64; 10] = [0x0100, 0x0110, 0x0200, 0x0210, 0x0220, 0x0300, 0x0310, 0x0400, 0x0410, 0x0500];
/// Versions that may follow.
const LATER: std::ops::RangeInclusive<u64> = 0x0501..=0x0990;
/// The largest capacity of a device that is believed, in units of 512 bytes: 16 TB.
const MOST_SECTORS: u64 = 1 << 35;

/// Whether a number is a version of the standard, or may be one that follows: two decimal digits between 0 and 0.
pub(super) fn is_version(version: u64) -> bool {
    let is_decimal = [version >> 8 & 0xf, version >> 4 & 0xf].iter().all(|digit| *digit <= 9);
    VERSIONS.contains(&version) || LATER.contains(&version) && is_decimal && version.is_multiple_of(0x10)
}

/// Whether a device may have this capacity, in units of 512 bytes; 0 is not stated.
pub(super) const fn is_capacity(sectors: u64) -> bool {
    sectors <= MOST_SECTORS
}

/// Turns all fields of several bytes if those whose value is known to be possible are so only then; returns a note on it.
pub(super) fn reverse_bytes(values: &mut BTreeMap<Key, DescriptorValue>) -> Option<String> {
    let judged = |key: &Key, given: &DescriptorValue| match (FIELDS[key.0].name, given) {
        ("wSpecVersion", DescriptorValue::Number(version)) => Some(is_version(*version)),
        ("qTotalRawDeviceCapacity" | "qLogicalBlockCount", DescriptorValue::Number(count)) => Some(is_capacity(*count)),
        _ => None,
    };
    let (key, odd) = values.iter().find(|(key, given)| judged(key, given) == Some(false))?;
    let (key, odd) = (*key, format_value(odd));
    let mut turned = values.clone();
    for (key, given) in &mut turned {
        let field = &FIELDS[key.0];
        // Attributes are numbers in every form; only descriptors are arrays of bytes.
        if let DescriptorValue::Number(value) = given
            && field.offset.is_some()
        {
            *value = value.swap_bytes() >> (64 - 8 * u32::from(field.bytes));
        }
    }
    if turned.iter().any(|(key, given)| judged(key, given) == Some(false)) {
        return None;
    }
    let note = format!(
        "{} = {odd} has its lowest byte first, as Qualcomm's kernels print it: all fields of several bytes were turned, and it is {}",
        FIELDS[key.0].name,
        format_value(&turned[&key])
    );
    *values = turned;
    Some(note)
}
