//! Reads the sysfs files of an eMMC: the registers CID and CSD (JESD84-B51, 7.2 and 7.3), parts of them, and some fields of `EXT_CSD`
//! (`Documentation/driver-api/mmc/mmc-dev-attrs.rst`). The files can be read even if `EXT_CSD` itself cannot.

use std::path::Path;

use emmclab_base::{Error, ErrorClass, Result};

use super::fields::{self, RegisterField};
use crate::report::{FieldRow, RegisterValue};
use crate::{RegisterSource, text_of};

/// A sysfs file that contains a part of the registers CID or CSD.
struct CardFile {
    file: &'static str,
    /// The register that contains the value.
    register: &'static str,
    /// Name of the value in the standard. `place` is its bits in the register.
    name: &'static str,
    place: &'static str,
    meaning: &'static str,
}

const fn part(
    file: &'static str, register: &'static str, name: &'static str, place: &'static str, meaning: &'static str,
) -> CardFile {
    CardFile { file, register, name, place, meaning }
}

const PARTS: [CardFile; 7] = [
    part("cid", "CID", "CID", "[127:0]", "whole register, with the serial number"),
    part("csd", "CSD", "CSD", "[127:0]", "whole register"),
    part("manfid", "CID", "MID", "[127:120]", "number of the manufacturer"),
    part("oemid", "CID", "OID", "[111:104]", "number of the OEM"),
    part("name", "CID", "PNM", "[103:56]", "name of the product"),
    part("hwrev", "CID", "PRV", "[55:48]", "revision of the product"),
    part("date", "CID", "MDT", "[15:8]", "month and year of manufacture"),
];

/// sysfs files that contain fields of `EXT_CSD`. The file `size` is the length of the disk in sectors.
const OF_EXT_CSD: [&str; 7] = ["rev", "life_time", "pre_eol_info", "fwrev", "raw_rpmb_size_mult", "rel_sectors", "size"];

const HINT: &str = "read the files of /sys/block/mmcblk0/device again";

/// Whether a path is that of a sysfs file of an eMMC: its folder is named like a card, for example `mmc0:0001`.
pub fn is_card_file(path: &Path) -> bool {
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let (Some(file), Some(folder)) = (name(path), path.parent().and_then(name)) else { return false };
    let is_card = folder.strip_prefix("mmc").and_then(|rest| rest.split_once(':')).is_some_and(|(host, card)| {
        !host.is_empty()
            && host.bytes().all(|byte| byte.is_ascii_digit())
            && card.len() == 4
            && card.bytes().all(|byte| byte.is_ascii_hexdigit())
    });
    is_card && (OF_EXT_CSD.contains(&&*file) || PARTS.iter().any(|part| part.file == file))
}

/// Values that were read from sysfs files of an eMMC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CardRegisters {
    /// Values of parts of CID and CSD, each with the index of the part in [`PARTS`].
    parts: Vec<(usize, String)>,
    /// Fields of `EXT_CSD` that sysfs contains, with their bytes.
    pub fields: Vec<(RegisterField, Vec<u8>)>,
    /// Notes on values that were omitted, with the reason.
    pub notes: Vec<String>,
}

impl CardRegisters {
    /// Reads the values in these sysfs files.
    pub fn read(sources: &[&RegisterSource<'_>]) -> Result<Self> {
        let mut card = Self::default();
        for source in sources {
            let file = source.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let text = text_of(source.bytes).unwrap_or_default();
            card.add(file, text.trim()).map_err(|error| error.in_file(source.path))?;
        }
        if card.notes.iter().any(|note| note.starts_with("CID")) {
            card.parts.retain(|(at, _)| PARTS[*at].register != "CID");
        }
        Ok(card)
    }

    fn add(&mut self, file: &str, text: &str) -> Result<()> {
        if let Some(at) = PARTS.iter().position(|part| part.file == file) {
            let name = PARTS[at].name;
            if matches!(file, "cid" | "csd") && !self.is_whole(name, text)? {
                return Ok(());
            }
            let shown: String = text.chars().filter(|letter| !letter.is_control()).take(64).collect();
            self.parts.push((at, shown));
            return Ok(());
        }
        let words: Vec<_> = text.split_whitespace().collect();
        let fields: &[RegisterField] = match file {
            "rev" => &[fields::EXT_CSD_REV],
            "life_time" => &[fields::DEVICE_LIFE_TIME_EST_TYP_A, fields::DEVICE_LIFE_TIME_EST_TYP_B],
            "pre_eol_info" => &[fields::PRE_EOL_INFO],
            "raw_rpmb_size_mult" => &[fields::RPMB_SIZE_MULT],
            "rel_sectors" => &[fields::REL_WR_SEC_C],
            "size" => &[fields::SEC_COUNT],
            // FIRMWARE_VERSION exists since eMMC 5.0 and has 18 characters. Before, the firmware version is a part of the CID.
            "fwrev" if text.len() == 18 => return self.firmware(text),
            _ => return Ok(()),
        };
        if words.len() != fields.len() {
            return Err(unreadable(file, text, &format!("the file has {} value(s), not {}", words.len(), fields.len())));
        }
        for (field, word) in fields.iter().zip(words) {
            let value = number(word).ok_or_else(|| unreadable(file, word, "this is not a number"))?;
            if value >> (8 * field.bytes) != 0 {
                return Err(unreadable(field.name, word, "the value does not fit into the field"));
            }
            self.fields.push((*field, value.to_le_bytes()[..usize::from(field.bytes)].to_vec()));
        }
        Ok(())
    }

    fn firmware(&mut self, text: &str) -> Result<()> {
        let bytes = bytes_of(text.trim_start_matches("0x")).ok_or_else(|| unreadable("fwrev", text, "this is not a number"))?;
        self.fields.push((fields::FIRMWARE_VERSION, bytes));
        Ok(())
    }

    /// Whether the digits are a valid register: its checksum is correct, or 0 because the host has removed it. Otherwise adds a note.
    fn is_whole(&mut self, name: &'static str, text: &str) -> Result<bool> {
        if text.len() != 32 {
            return Err(Error::new(ErrorClass::Truncated, format!("found {} digits, but a register has 32", text.len()))
                .of_field(name, 0, text.as_bytes())
                .hint(HINT));
        }
        let bytes = bytes_of(text).ok_or_else(|| unreadable(name, text, "the register must be a row of hexadecimal digits"))?;
        for (value, problem) in
            [(0, "every byte is 0: nothing was read from the device"), (0xff, "every byte is 0xff: nothing answered on the bus")]
        {
            if bytes.iter().all(|byte| *byte == value) {
                return Err(unreadable(name, text, problem));
            }
        }
        let (data, sum) = (&bytes[..15], bytes[15]);
        if sum != 0 && sum >> 1 != crc7(data) {
            self.notes.push(format!(
                "{name} = {text} is left out: its checksum is {:#04x}, and that of its bytes {:#04x}",
                sum >> 1,
                crc7(data)
            ));
            return Ok(false);
        }
        Ok(true)
    }

    fn text(&self, file: &str) -> Option<&str> {
        self.parts.iter().find(|(at, _)| PARTS[*at].file == file).map(|(_, text)| text.as_str())
    }

    /// Whether the sysfs files contain values that are not fields of `EXT_CSD`, or there are notes on such values.
    pub fn has_values(&self) -> bool {
        !self.parts.is_empty() || !self.notes.is_empty()
    }

    /// Name, manufacturer and date of the product.
    pub fn product(&self) -> Option<String> {
        let numbers = [("manufacturer", "manfid"), ("OEM", "oemid")];
        let numbers: Vec<_> =
            numbers.iter().filter_map(|(word, file)| self.text(file).map(|text| format!("{word} {text}"))).collect();
        let numbers = if numbers.is_empty() { String::new() } else { format!("({})", numbers.join(", ")) };
        let name = [self.text("name").unwrap_or_default(), &numbers];
        let name = name.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        let date = self.text("date").map_or_else(String::new, |date| format!("made {date}"));
        let product = [name, date].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
        (!product.is_empty()).then_some(product)
    }

    /// Rows for all known parts of the registers CID and CSD.
    pub fn rows(&self) -> impl Iterator<Item = FieldRow> {
        self.parts.iter().map(|(at, text)| FieldRow {
            name: PARTS[*at].name,
            register: PARTS[*at].register.to_owned(),
            place: PARTS[*at].place.to_owned(),
            value: Some(RegisterValue::Text(text.clone())),
            meaning: PARTS[*at].meaning,
        })
    }
}

/// The checksum of commands and registers, CRC7: x^7 + x^3 + 1 (JESD84-B51, 8.2).
pub fn crc7(bytes: &[u8]) -> u8 {
    let bits = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    bits.fold(0, |sum, bit| {
        let carry = sum >> 6 & 1 ^ bit;
        ((sum << 1) ^ (carry * 0x09)) & 0x7f
    })
}

fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let is_whole = digits.len().is_multiple_of(2) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    is_whole.then(|| (0..digits.len()).step_by(2).map_while(byte).collect())
}

fn unreadable(name: &str, text: &str, problem: &str) -> Error {
    Error::new(ErrorClass::Value, problem).of_field(name, 0, text.as_bytes()).hint(HINT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        // Examples of the eMMC standard: CMD0 and CMD17 with argument 0.
        assert_eq!(crc7(&[0x40, 0, 0, 0, 0]), 0b100_1010);
        assert_eq!(crc7(&[0x51, 0, 0, 0, 0]), 0b010_1010);
        assert_eq!(crc7(&[0x11, 0, 0, 9, 0]), 0x33);
    }
}
