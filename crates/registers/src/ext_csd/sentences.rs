//! The sentences in which `mmc extcsd read` of mmc-utils prints the register: a name in brackets with its value, inside of the
//! brackets or after them.

use emmclab_base::{Error, ErrorClass, Result};

use super::fields::{self, RegisterField};

/// A value of a field, and its line.
pub(super) struct FieldLine {
    pub field: RegisterField,
    pub value: Vec<u8>,
    pub line: u64,
}

/// The fields that the sentences name; empty if the text has no such sentences.
///
/// # Errors
/// If a value is no number, or does not fit into its field.
pub(super) fn read(text: &str) -> Result<Vec<FieldLine>> {
    let mut found = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        if let Some(one) = sentence(content.trim()).map_err(|error| error.at_line(line))? {
            found.push(FieldLine { line, ..one });
        }
    }
    Ok(found)
}

/// Whether a text has the sentences of mmc-utils.
pub(super) fn is(text: &str) -> bool {
    ["Extended CSD rev", "[EXT_CSD_", "[S_CMD_SET:", "[CACHE_SIZE", "[SEC_COUNT:"]
        .iter()
        .any(|mark| text.contains(mark))
}

/// The field that has this name in mmc-utils.
fn field_by_name(name: &str) -> Option<RegisterField> {
    let field = match name {
        "BOOT_SIZE_MULTI" => fields::BOOT_SIZE_MULT,
        "CARD_TYPE" => fields::DEVICE_TYPE,
        "HPI_FEATURE" => fields::HPI_FEATURES,
        // The names in mmc-utils have other voltages than those in the standard.
        "PWR_CL_200_360" => fields::PWR_CL_200_195,
        "PWR_CL_200_195" => fields::PWR_CL_200_130,
        _ => RegisterField::by_name(name).or_else(|| RegisterField::by_name(name.strip_prefix("EXT_CSD_")?))?,
    };
    Some(field)
}

fn sentence(content: &str) -> Result<Option<FieldLine>> {
    let of =
        |field: RegisterField, value: u64| number(field, value).map(|value| Some(FieldLine { field, value, line: 0 }));
    if let Some(rest) = content.strip_prefix("Extended CSD rev 1.") {
        let digits = rest.split_whitespace().next().unwrap_or_default();
        let revision = digits.parse().map_err(|_| unreadable(fields::EXT_CSD_REV, digits))?;
        return of(fields::EXT_CSD_REV, revision);
    }
    if let Some((before, version)) = content.split_once("Firmware Version:") {
        let is_field = before.trim_end().ends_with("eMMC");
        let width = usize::from(fields::FIRMWARE_VERSION.bytes);
        let mut value: Vec<_> = version.trim().bytes().take(width).collect();
        value.resize(width, 0);
        return Ok(is_field.then_some(FieldLine { field: fields::FIRMWARE_VERSION, value, line: 0 }));
    }
    let Some((_, (inside, behind))) =
        content.split_once('[').and_then(|(before, rest)| Some((before, rest.split_once(']')?)))
    else {
        return Ok(None);
    };
    let (name, value) = inside.split_once(':').unwrap_or((inside, behind));
    let Some(field) = field_by_name(name.trim()) else { return Ok(None) };
    let value = value.trim().trim_start_matches(':').trim();
    if field == fields::CACHE_SIZE
        && let Some(kib) = value.strip_prefix("is ").and_then(|rest| rest.strip_suffix("KiB"))
    {
        let kib: u64 = kib.trim().parse().map_err(|_| unreadable(field, value))?;
        return of(field, kib.saturating_mul(8));
    }
    let digits = value.split_whitespace().next().unwrap_or_default();
    match digits.strip_prefix("0x") {
        Some(digits) => of(field, u64::from_str_radix(digits, 16).map_err(|_| unreadable(field, value))?),
        // The depth of the queue is the only one that is printed as a decimal, as the number of commands.
        None if field == fields::CMDQ_DEPTH => {
            let depth: u64 = digits.parse().map_err(|_| unreadable(field, value))?;
            of(field, depth.saturating_sub(1))
        }
        // A sentence that only mentions the field.
        None => Ok(None),
    }
}

fn number(field: RegisterField, value: u64) -> Result<Vec<u8>> {
    let bytes = value.to_le_bytes();
    let (taken, rest) = bytes.split_at(usize::from(field.bytes).min(8));
    if rest.iter().any(|byte| *byte != 0) {
        let problem = format!("does not fit into the {} byte(s) of the field", field.bytes);
        return Err(Error::new(ErrorClass::Value, problem)
            .of_field(field.name, 0, format!("{value:#x}").as_bytes())
            .hint("take the output of `mmc extcsd read` as it was printed"));
    }
    Ok(taken.to_vec())
}

fn unreadable(field: RegisterField, value: &str) -> Error {
    Error::new(ErrorClass::Syntax, "is not the number that mmc-utils prints there")
        .of_field(field.name, 0, value.as_bytes())
        .hint("take the output of `mmc extcsd read` as it was printed")
}
