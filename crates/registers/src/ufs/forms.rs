//! Reads descriptors of a UFS: sysfs files with their path, the output of ufs-utils, and raw descriptors (JESD220, 14.1.4) as
//! bytes or hexadecimal dump. A raw descriptor begins with its length and type, its fields have the highest byte first, and
//! several descriptors may follow each other.

use std::path::Path;

use emmclab_base::{Error, ErrorClass, Result};

use super::fields::{DescriptorField, DescriptorKind, FIELDS};
use super::{HINT, impossible};
use crate::dump;
use crate::text_of;

/// A descriptor field and its value, as read from one file or line.
pub(super) struct FieldValue {
    pub field: &'static DescriptorField,
    /// The logical unit; `None` if the field belongs to none.
    pub unit: Option<u32>,
    pub value: DescriptorValue,
    /// Number of the line that contains the value, in a text of several lines.
    pub line: Option<u64>,
}

/// The value of a descriptor field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DescriptorValue {
    Number(u64),
    Text(String),
}

/// Reads the field in a sysfs file; `None` if the file is empty or contains none of the known fields.
pub(super) fn of_file(path: &Path, content: &str) -> Result<Option<FieldValue>> {
    let Some((field, unit)) = of_path(&path.to_string_lossy()) else { return Ok(None) };
    Ok(value(field, content.trim())?.map(|value| FieldValue { field, unit, value, line: None }))
}

/// The fields in a text: lines with names of the standard, output of `grep -r .`, and output of `head` or `tail` over sysfs files.
pub(super) fn of_text(text: &str) -> Result<Vec<FieldValue>> {
    let mut values = Vec::new();
    let mut block = CurrentDescriptor::default();
    // Path in the last heading line `==> path <==`, which `head` and `tail` print before each file.
    let mut announced: Option<&str> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if let Some(path) = line.strip_prefix("==> ").and_then(|rest| rest.strip_suffix(" <==")) {
            announced = Some(path);
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let value = match announced.take() {
            Some(path) => value_of_file(path, line),
            None => match of_name(line, &mut block) {
                Ok(None) => of_grep(line),
                value => value,
            },
        };
        if let Some(value) = value.map_err(|error| error.at_line(number))? {
            values.push(FieldValue { line: Some(number), ..value });
        }
    }
    Ok(values)
}

/// Whether the first bytes of a text contain lines in one of the forms that [`of_text`] reads.
pub(super) fn is_text(text: &str) -> bool {
    let is_line = |line: &str| {
        !matches!(of_name(line, &mut CurrentDescriptor::default()), Ok(None))
            || !matches!(of_grep(line), Ok(None))
            || line.strip_prefix("==> ").and_then(|rest| of_path(rest.strip_suffix(" <==")?)).is_some()
    };
    text.lines().map(str::trim).take(500).any(is_line)
}

/// Whether a path is that of a sysfs file with a known descriptor field.
pub(super) fn is_path(path: &Path) -> bool {
    of_path(&path.to_string_lossy()).is_some()
}

fn field_value(field: &'static DescriptorField, unit: Option<u32>, text: &str) -> Result<Option<FieldValue>> {
    Ok(value(field, text)?.map(|value| FieldValue { field, unit, value, line: None }))
}

fn value_of_file(path: &str, text: &str) -> Result<Option<FieldValue>> {
    of_path(path).map_or(Ok(None), |(field, unit)| field_value(field, unit, text))
}

/// Reads a line `path:value`. The path itself contains colons if it names a logical unit.
fn of_grep(line: &str) -> Result<Option<FieldValue>> {
    let Some((part, end)) = DescriptorKind::ALL.iter().find_map(|part| {
        let at = line.find(&format!("{}/", part.folder()))?;
        Some((part, at + part.folder().len()))
    }) else {
        return Ok(None);
    };
    let Some(colon) = line[end..].find(':') else { return Ok(None) };
    let (path, text) = (&line[..end + colon], &line[end + colon + 1..]);
    debug_assert!(path.contains(part.folder()), "the path ends behind its folder");
    value_of_file(path, text.trim())
}

/// Returns the field and the logical unit of a path, which ends in the folder of the unit, a descriptor folder and a file.
fn of_path(path: &str) -> Option<(&'static DescriptorField, Option<u32>)> {
    let mut parts = path.rsplit('/');
    let (file, folder) = (parts.next()?, parts.next()?);
    let part = *DescriptorKind::ALL.iter().find(|part| part.folder() == folder)?;
    let field = DescriptorField::of_sysfs(part, file)?;
    // The folder name of a logical unit consists of the numbers of host, channel, target and unit.
    let unit = parts.next().filter(|name| name.split(':').count() == 4);
    let unit = unit.and_then(|name| name.rsplit(':').next()?.parse().ok());
    Some((field, if part == DescriptorKind::Unit { unit } else { None }))
}

/// The descriptor to which the lines of text that are being read belong.
#[derive(Default)]
struct CurrentDescriptor {
    /// `bDescriptorType`; `None` if no line has contained it.
    kind: Option<u64>,
    /// `bUnitIndex`; `None` if no line has contained it.
    unit: Option<u32>,
}

/// `bDescriptorType` of a configuration descriptor.
const CONFIGURATION: u64 = 1;

/// Reads a line with a field name of the standard: `Device Descriptor: [Byte offset 0x21]: bQueueDepth = 0x20` of ufs-utils and of vendors'
/// debugfs, or `bBackgroundOpStatus := 0x02`. The name of the field determines the descriptor, because headings differ between programs.
fn of_name(line: &str, block: &mut CurrentDescriptor) -> Result<Option<FieldValue>> {
    let (heading, offset, assigned) = match line.split_once("[Byte offset") {
        Some((heading, rest)) => match rest.split_once(']') {
            Some((offset, assigned)) => (heading, Some(offset.trim()), assigned),
            None => return Ok(None),
        },
        None => ("", None, line),
    };
    let assigned = assigned.trim_start_matches(':').trim_start();
    let Some((name, text)) = assigned.split_once([':', '=']) else { return Ok(None) };
    // Some programs print the meaning of a value after its number.
    let text = text.trim_start_matches('=').split_whitespace().next().unwrap_or_default();
    let name = name.trim();
    let name = match name {
        "bLength" => {
            block.kind = None;
            return Ok(None);
        }
        "bDescriptorType" | "bDescriptorIDN" => {
            block.kind = number(text);
            return Ok(None);
        }
        "bUnitIndex" => {
            block.unit = Some(number(text).ok_or_else(|| unreadable(name, text))? as u32);
            return Ok(None);
        }
        "ManufacturerID" | "wManufactureID" => "wManufacturerID",
        name => name,
    };
    let Some(field) = DescriptorField::of_standard(name).filter(|field| field.bytes > 0) else {
        return Ok(None);
    };
    // A configuration descriptor has fields with the same names as other descriptors. They contain the requested configuration, not the
    // properties of the device.
    if heading.trim_start().starts_with("Config") || block.kind == Some(CONFIGURATION) {
        return Ok(None);
    }
    if let Some(offset) = offset
        && let Some(place) = field.offset
        && Some(u64::from(place)) != number(offset)
    {
        return Err(Error::new(ErrorClass::Value, format!("the UFS standard has this field at offset {place:#x}"))
            .of_field(field.name, 0, offset.as_bytes())
            .hint("give the unchanged output of the program that read the descriptors"));
    }
    let unit = if field.part == DescriptorKind::Unit { block.unit } else { None };
    field_value(field, unit, text)
}

/// The value of a field; `None` if the kernel could not read it.
fn value(field: &'static DescriptorField, text: &str) -> Result<Option<DescriptorValue>> {
    if text.is_empty() {
        return Ok(None);
    }
    if field.bytes == 0 {
        return Ok(Some(DescriptorValue::Text(text.chars().filter(|letter| !letter.is_control()).take(64).collect())));
    }
    let value = match text {
        "true" => 1,
        "false" => 0,
        text => number(text).ok_or_else(|| unreadable(field.name, text))?,
    };
    if field.bytes < 8 && value >> (8 * field.bytes) != 0 {
        return Err(Error::new(ErrorClass::Value, format!("the field's {} byte(s) cannot hold the value", field.bytes))
            .of_field(field.name, 0, text.as_bytes())
            .hint("read the UFS descriptor again"));
    }
    Ok(Some(DescriptorValue::Number(value)))
}

/// Parses a number: hexadecimal digits after `0x`, or decimal digits.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn unreadable(name: &str, text: &str) -> Error {
    Error::new(ErrorClass::Syntax, "the value of the descriptor field must be a number")
        .of_field(name, 0, text.as_bytes())
        .hint("read the UFS descriptor again: its values must be numbers such as 0x20 or 32")
}

/// Maximum total size of all descriptors of a device, in bytes.
const MOST_BYTES: usize = 64 << 10;
/// Size of a descriptor's header, in bytes: length and type.
const HEADER: usize = 2;
/// Types of descriptors that are read, with the possible lengths of each type in the versions of the standard.
const TYPES: [(u8, DescriptorKind, &[u8]); 5] = [
    (0x00, DescriptorKind::Device, &[0x1f, 0x40, 0x59]),
    (0x02, DescriptorKind::Unit, &[0x23, 0x2d]),
    (0x04, DescriptorKind::Interconnect, &[0x06]),
    (0x07, DescriptorKind::Geometry, &[0x44, 0x48, 0x57]),
    (0x09, DescriptorKind::Health, &[0x25, 0x2d]),
];
/// Types of descriptors that are skipped: configuration, strings, power.
const OTHERS: [u8; 3] = [0x01, 0x05, 0x08];
/// Fields that have a plausible value on every device. Raw descriptors are recognised by them.
const MARKS: [&str; 4] = ["wSpecVersion", "qTotalRawDeviceCapacity", "bLUEnable", "bDeviceLifeTimeEstA"];

/// Returns the bytes of a file with raw descriptors; `None` if the file does not begin with a raw descriptor.
fn bytes_of(content: &[u8]) -> Option<Vec<u8>> {
    let Some(text) = text_of(content) else {
        return begins(content).then(|| content.to_vec());
    };
    let mut bytes = Vec::new();
    let mut rest = &*text;
    // Dumps of several descriptors may be separated by headings.
    while let Ok(Some(dump)) = dump::read(rest, MOST_BYTES) {
        bytes.extend(dump.bytes);
        let Some((line, _)) = dump.end else { break };
        rest = rest.splitn(usize::try_from(line).unwrap_or(usize::MAX), '\n').last().unwrap_or_default();
        if bytes.len() > MOST_BYTES {
            return None;
        }
    }
    begins(&bytes).then_some(bytes)
}

/// Whether the bytes begin with the header of a descriptor of a known type.
fn begins(bytes: &[u8]) -> bool {
    matches!(bytes, [length, kind, ..] if TYPES.iter().any(|(other, _, lengths)| kind == other && lengths.contains(length)))
}

/// The fields of raw descriptors; `None` if the content is something else.
pub(super) fn read_raw(content: &[u8]) -> Result<Option<Vec<FieldValue>>> {
    bytes_of(content).map(|bytes| fields_of(&bytes)).transpose()
}

/// Whether a file begins with the header of a raw descriptor.
pub(crate) fn may_be_raw(content: &[u8]) -> bool {
    bytes_of(content).is_some()
}

/// Whether a whole file consists of raw descriptors, with a plausible value in at least one of the fields `MARKS`.
pub(super) fn is_raw(content: &[u8]) -> bool {
    let is_mark = |entry: &FieldValue| {
        MARKS.contains(&entry.field.name)
            && matches!(entry.value, DescriptorValue::Number(value) if value > 0 && impossible(entry.field.name, value).is_none())
    };
    matches!(read_raw(content), Ok(Some(values)) if values.iter().any(is_mark))
}

fn fields_of(bytes: &[u8]) -> Result<Vec<FieldValue>> {
    let mut values = Vec::new();
    let mut at = 0;
    while let Some([length, kind]) = bytes.get(at..at + HEADER) {
        // A buffer may be longer than its descriptor. The rest contains zeros.
        if bytes[at..].iter().all(|byte| *byte == 0) {
            break;
        }
        let part = TYPES.iter().find(|(other, ..)| other == kind).map(|(_, part, _)| *part);
        if part.is_none() && !OTHERS.contains(kind) || usize::from(*length) < HEADER {
            return Err(Error::new(ErrorClass::Value, "no UFS descriptor has this type and length")
                .at_offset(at as u64)
                .of_field("bDescriptorType", 0, format!("{kind:#04x}, length {length:#04x}").as_bytes())
                .hint(HINT));
        }
        let Some(descriptor) = bytes.get(at..at + usize::from(*length)) else {
            let left = bytes.len() - at;
            return Err(Error::new(ErrorClass::Truncated, format!("the UFS descriptor has only {left} of {length} bytes"))
                .at_offset(bytes.len() as u64)
                .of_field("bLength", 0, format!("{length:#04x}").as_bytes())
                .hint("read the whole UFS descriptor again"));
        };
        values.extend(part.into_iter().flat_map(|part| fields(descriptor, part)));
        at += usize::from(*length);
    }
    Ok(values)
}

/// The fields of a descriptor. A device of an older version has a shorter descriptor, without the last fields.
fn fields(descriptor: &[u8], part: DescriptorKind) -> impl Iterator<Item = FieldValue> + '_ {
    let unit = (part == DescriptorKind::Unit).then(|| u32::from(descriptor[HEADER]));
    FIELDS.iter().filter(move |field| field.part == part).filter_map(move |field| {
        let begin = usize::from(field.offset?);
        let bytes = descriptor.get(begin..begin + usize::from(field.bytes))?;
        let value = bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        Some(FieldValue { field, unit, value: DescriptorValue::Number(value), line: None })
    })
}
