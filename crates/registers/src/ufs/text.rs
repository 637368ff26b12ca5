//! Reads texts with descriptors of a UFS: files of sysfs with their path, and the output of ufs-utils.

use std::path::Path;

use emmclab_base::{Error, Kind, Result};

use super::fields::{Field, Part};

/// A field with a value that was found in one place.
pub(super) struct Found {
    pub field: &'static Field,
    /// The logical unit, if the field belongs to one.
    pub unit: Option<u32>,
    pub value: Given,
    /// The line, if the text may have several.
    pub line: Option<u64>,
}

/// A value as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    Number(u64),
    Text(String),
}

/// The field in a file of sysfs; `None` if the file has none that is read, or is empty.
pub(super) fn of_file(path: &Path, content: &str) -> Result<Option<Found>> {
    let Some((field, unit)) = of_path(&path.to_string_lossy()) else { return Ok(None) };
    Ok(value(field, content.trim())?.map(|value| Found { field, unit, value, line: None }))
}

/// The fields in a text: lines of ufs-utils, of `grep -r .` and of `head` or `tail` over files of sysfs.
pub(super) fn of_text(text: &str) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    let mut unit = None;
    // The file that the last line `==> path <==` named.
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
        let one = match announced.take() {
            Some(path) => named_file(path, line),
            None if line.contains("[Byte offset") => of_ufs_utils(line, &mut unit),
            None => match line.split_once(":=") {
                Some((name, text)) => {
                    let field = Field::of_standard(None, name.trim());
                    field.map_or(Ok(None), |field| found_in(field, None, text.trim()))
                }
                None => of_grep(line),
            },
        };
        if let Some(one) = one.map_err(|error| error.at_line(number))? {
            found.push(Found { line: Some(number), ..one });
        }
    }
    Ok(found)
}

/// Whether the first bytes of a text hold such lines.
pub(super) fn is(text: &str) -> bool {
    let is_line = |line: &str| {
        line.contains("Descriptor") && line.contains("[Byte offset")
            || !matches!(of_grep(line), Ok(None))
            || line.strip_prefix("==> ").and_then(|rest| of_path(rest.strip_suffix(" <==")?)).is_some()
    };
    text.lines().map(str::trim).take(500).any(is_line)
}

/// Whether a path is that of a file of sysfs which is read.
pub(super) fn is_path(path: &Path) -> bool {
    of_path(&path.to_string_lossy()).is_some()
}

fn found_in(field: &'static Field, unit: Option<u32>, text: &str) -> Result<Option<Found>> {
    Ok(value(field, text)?.map(|value| Found { field, unit, value, line: None }))
}

fn named_file(path: &str, text: &str) -> Result<Option<Found>> {
    of_path(path).map_or(Ok(None), |(field, unit)| found_in(field, unit, text))
}

/// Reads a line `path:value`. The path itself contains colons if it names a logical unit.
fn of_grep(line: &str) -> Result<Option<Found>> {
    let Some((part, end)) = Part::ALL.iter().find_map(|part| {
        let at = line.find(&format!("{}/", part.folder()))?;
        Some((part, at + part.folder().len()))
    }) else {
        return Ok(None);
    };
    let Some(colon) = line[end..].find(':') else { return Ok(None) };
    let (path, text) = (&line[..end + colon], &line[end + colon + 1..]);
    debug_assert!(path.contains(part.folder()), "the path ends behind its folder");
    named_file(path, text.trim())
}

/// The field of a path that ends in a folder of descriptors and a file, and the logical unit of the folder before.
fn of_path(path: &str) -> Option<(&'static Field, Option<u32>)> {
    let mut parts = path.rsplit('/');
    let (file, folder) = (parts.next()?, parts.next()?);
    let part = *Part::ALL.iter().find(|part| part.folder() == folder)?;
    let field = Field::of_sysfs(part, file)?;
    // A logical unit is a folder with the numbers of host, channel, target and unit.
    let unit = parts.next().filter(|name| name.split(':').count() == 4);
    let unit = unit.and_then(|name| name.rsplit(':').next()?.parse().ok());
    Some((field, if part == Part::Unit { unit } else { None }))
}

/// Reads a line of ufs-utils: `Device Descriptor: [Byte offset 0x21]: bQueueDepth = 0x20`.
fn of_ufs_utils(line: &str, unit: &mut Option<u32>) -> Result<Option<Found>> {
    let Some((heading, rest)) = line.split_once("[Byte offset") else { return Ok(None) };
    let heading = heading.trim().trim_end_matches(':').trim();
    let Some((offset, assigned)) = rest.split_once(']') else { return Ok(None) };
    let Some((name, text)) = assigned.trim_start_matches(':').split_once('=') else { return Ok(None) };
    let (name, text) = (name.trim(), text.trim());
    let part = match heading {
        "Device Descriptor" => Part::Device,
        "Geometry Descriptor" => Part::Geometry,
        "Interconnect Descriptor" => Part::Interconnect,
        "Device Health Descriptor" | "Health Descriptor" => Part::Health,
        heading if heading.ends_with("Unit Descriptor") && !heading.starts_with("Config") => Part::Unit,
        // Configuration descriptors state what is to be configured, not the properties of the device.
        _ => return Ok(None),
    };
    if part == Part::Unit && name == "bUnitIndex" {
        *unit = Some(number(text).ok_or_else(|| unreadable("bUnitIndex", text))? as u32);
        return Ok(None);
    }
    let name = if name == "ManufacturerID" { "wManufacturerID" } else { name };
    let Some(field) = Field::of_standard(Some(part), name) else { return Ok(None) };
    let at = number(offset.trim());
    if field.offset.map(u64::from) != at {
        let expected = field.offset.unwrap_or_default();
        return Err(Error::new(Kind::Value, format!("the standard has this field at {expected:#x}"))
            .of_field(field.name, 0, offset.trim().as_bytes())
            .hint("take the output of `ufs-utils desc` as it was printed"));
    }
    let of_unit = if part == Part::Unit { *unit } else { None };
    found_in(field, of_unit, text)
}

/// The value of a field; `None` if the kernel could not read it.
fn value(field: &'static Field, text: &str) -> Result<Option<Given>> {
    if text.is_empty() {
        return Ok(None);
    }
    if field.bytes == 0 {
        return Ok(Some(Given::Text(text.chars().filter(|letter| !letter.is_control()).take(64).collect())));
    }
    let value = match text {
        "true" => 1,
        "false" => 0,
        text => number(text).ok_or_else(|| unreadable(field.name, text))?,
    };
    if field.bytes < 8 && value >> (8 * field.bytes) != 0 {
        return Err(Error::new(
            Kind::Value,
            format!("does not fit into the {} byte(s) of the field", field.bytes),
        )
        .of_field(field.name, 0, text.as_bytes())
        .hint("read the descriptor again"));
    }
    Ok(Some(Given::Number(value)))
}

/// A number in hexadecimal digits with `0x`, or in decimal ones.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn unreadable(name: &str, text: &str) -> Error {
    Error::new(Kind::Syntax, "is no number")
        .of_field(name, 0, text.as_bytes())
        .hint("a value is written as 0x20; read the descriptor again")
}
