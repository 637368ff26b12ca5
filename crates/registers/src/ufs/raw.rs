//! Raw descriptors of a UFS (JESD220, 14.1.4), as bytes or in a dump of hexadecimal digits: each begins with its length and its type,
//! and its fields have their highest byte first. Several may follow each other.

use emmclab_base::{Error, ErrorClass, Result};

use super::fields::{DescriptorKind, FIELDS};
use super::text::{DescriptorValue, FieldValue};
use super::{HINT, impossible};
use crate::dump;
use crate::source::text_of;

/// Maximum number of bytes of all descriptors of a device.
const MOST_BYTES: usize = 64 << 10;
/// Bytes of the header: length and type.
const HEADER: usize = 2;
/// Types of descriptors that are read, and the lengths that the versions of the standard give them.
const TYPES: [(u8, DescriptorKind, &[u8]); 5] = [
    (0x00, DescriptorKind::Device, &[0x1f, 0x40, 0x59]),
    (0x02, DescriptorKind::Unit, &[0x23, 0x2d]),
    (0x04, DescriptorKind::Interconnect, &[0x06]),
    (0x07, DescriptorKind::Geometry, &[0x44, 0x48, 0x57]),
    (0x09, DescriptorKind::Health, &[0x25, 0x2d]),
];
/// Types that are not read: configuration, strings, power.
const OTHERS: [u8; 3] = [0x01, 0x05, 0x08];
/// Fields that have a plausible value on every device; raw descriptors are recognised by them.
const MARKS: [&str; 4] = ["wSpecVersion", "qTotalRawDeviceCapacity", "bLUEnable", "bDeviceLifeTimeEstA"];

/// The bytes of a file with raw descriptors; `None` if it does not begin like one.
fn bytes_of(content: &[u8]) -> Option<Vec<u8>> {
    let Some(text) = text_of(content) else {
        return begins(content).then(|| content.to_vec());
    };
    let mut bytes = Vec::new();
    let mut rest = &*text;
    // Dumps of several descriptors may have headings between them.
    while let Ok(Some(found)) = dump::read(rest, MOST_BYTES) {
        bytes.extend(found.bytes);
        let Some((line, _)) = found.end else { break };
        rest = rest.splitn(usize::try_from(line).unwrap_or(usize::MAX), '\n').last().unwrap_or_default();
        if bytes.len() > MOST_BYTES {
            return None;
        }
    }
    begins(&bytes).then_some(bytes)
}

/// Whether bytes begin with the header of a descriptor that is read.
fn begins(bytes: &[u8]) -> bool {
    matches!(bytes, [length, kind, ..] if TYPES.iter().any(|(other, _, lengths)| kind == other && lengths.contains(length)))
}

/// The fields of raw descriptors; `None` if these are none.
///
/// # Errors
/// If a descriptor ends before its length, or has a type that no descriptor has.
pub(super) fn read(content: &[u8]) -> Result<Option<Vec<FieldValue>>> {
    bytes_of(content).map(|bytes| fields_of(&bytes)).transpose()
}

/// Whether a file begins like raw descriptors.
pub(super) fn may_be(content: &[u8]) -> bool {
    bytes_of(content).is_some()
}

/// Whether a file is raw descriptors as a whole, with a field that no other file has at its place.
pub(super) fn is(content: &[u8]) -> bool {
    let is_mark = |found: &FieldValue| {
        MARKS.contains(&found.field.name)
            && matches!(found.value, DescriptorValue::Number(value) if value > 0 && impossible(found.field.name, value).is_none())
    };
    matches!(read(content), Ok(Some(found)) if found.iter().any(is_mark))
}

fn fields_of(bytes: &[u8]) -> Result<Vec<FieldValue>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some([length, kind]) = bytes.get(at..at + HEADER) {
        // The rest of a buffer that is longer than its descriptor.
        if bytes[at..].iter().all(|byte| *byte == 0) {
            break;
        }
        let part = TYPES.iter().find(|(other, ..)| other == kind).map(|(_, part, _)| *part);
        if part.is_none() && !OTHERS.contains(kind) || usize::from(*length) < HEADER {
            return Err(Error::new(ErrorClass::Value, "is no type of a descriptor with this length")
                .at_offset(at as u64)
                .of_field("bDescriptorType", 0, format!("{kind:#04x}, length {length:#04x}").as_bytes())
                .hint(HINT));
        }
        let Some(descriptor) = bytes.get(at..at + usize::from(*length)) else {
            let left = bytes.len() - at;
            return Err(Error::new(ErrorClass::Truncated, format!("the descriptor has {left} of {length} bytes"))
                .at_offset(bytes.len() as u64)
                .of_field("bLength", 0, format!("{length:#04x}").as_bytes())
                .hint("read the descriptor again, as a whole"));
        };
        found.extend(part.into_iter().flat_map(|part| fields(descriptor, part)));
        at += usize::from(*length);
    }
    Ok(found)
}

/// The fields of one descriptor. A device of an older version has a shorter descriptor, without the fields at its end.
fn fields(descriptor: &[u8], part: DescriptorKind) -> impl Iterator<Item = FieldValue> + '_ {
    let unit = (part == DescriptorKind::Unit).then(|| u32::from(descriptor[HEADER]));
    FIELDS.iter().filter(move |field| field.part == part).filter_map(move |field| {
        let begin = usize::from(field.offset?);
        let bytes = descriptor.get(begin..begin + usize::from(field.bytes))?;
        let value = bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        Some(FieldValue { field, unit, value: DescriptorValue::Number(value), line: None })
    })
}
