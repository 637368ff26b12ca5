//! Reads the `EXT_CSD` register of an eMMC (JESD84-B51, 7.4) in the forms that programs print: 512 bytes, hexadecimal digits,
//! dumps, and the sentences of mmc-utils.

mod describe;
pub mod fields;
mod sysfs_files;

use emmclab_base::{Error, ErrorClass, Result};
use fields::{FIELDS, REGISTER_BYTES, RegisterField};

use crate::dump::{self, HexDump};
use crate::{RegisterSource, text_of};

pub use sysfs_files::{crc7, is_card_file};

/// The newest revision of `EXT_CSD` whose fields are known: that of eMMC 5.1.
pub(crate) const NEWEST: u8 = 8;
/// The largest plausible revision of `EXT_CSD`. It allows for future revisions; a register with a larger number is rejected.
const MOST: u8 = 20;

/// An `EXT_CSD` register. Some of its bytes may be unknown, because the text output of mmc-utils contains only some fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExtCsdRegister {
    bytes: [u8; REGISTER_BYTES],
    known_bytes: [bool; REGISTER_BYTES],
    /// Values from the device's sysfs files, in addition to the register.
    card: Option<sysfs_files::CardRegisters>,
    /// A note on the order of the register's bytes, if it was not that of the standard.
    order: Option<String>,
}

impl ExtCsdRegister {
    /// Reads the `EXT_CSD` register in one file.
    pub fn read(source: &RegisterSource<'_>) -> Result<Self> {
        Self::of(source.bytes).and_then(Self::validate).map_err(|error| error.in_file(source.path))
    }

    /// Adds the values of the device's sysfs files, which may also replace a register that could not be read. If the register and sysfs
    /// both have a field, the register takes precedence: sysfs has the values from the time when the kernel detected the device.
    pub fn with_files(mut self, sources: &[&RegisterSource<'_>]) -> Result<Self> {
        let Some(first) = sources.first() else { return Ok(self) };
        let card = sysfs_files::CardRegisters::read(sources)?;
        for (field, bytes) in &card.fields {
            if self.bytes_of(*field).is_none() {
                self.bytes[field.range()].copy_from_slice(bytes);
                self.known_bytes[field.range()].fill(true);
            }
        }
        if card.has_values() {
            self.card = Some(card);
        }
        self.validate().map_err(|error| error.in_file(first.path))
    }

    /// A register without any known byte.
    pub const fn unknown_register() -> Self {
        Self { bytes: [0; REGISTER_BYTES], known_bytes: [false; REGISTER_BYTES], card: None, order: None }
    }

    fn of(bytes: &[u8]) -> Result<Self> {
        let Some(text) = text_of(bytes) else { return Self::raw(bytes) };
        let lines = read_sentences(&text)?;
        let dumped = match register_in_dump(&text) {
            Ok(dumped) => dumped,
            Err(_) if !lines.is_empty() => None,
            Err(error) => return Err(error),
        };
        let mut register = match dumped {
            Some(bytes) => Self::of_bytes(&bytes)?,
            None if lines.is_empty() => return Err(Self::unknown(&text)),
            None => Self::unknown_register(),
        };
        for FieldLine { field, value, line } in lines {
            register.add(field, &value).map_err(|error| error.at_line(line))?;
        }
        Ok(register)
    }

    fn raw(bytes: &[u8]) -> Result<Self> {
        let Ok(register) = <[u8; REGISTER_BYTES]>::try_from(bytes) else {
            let kind = if bytes.len() < REGISTER_BYTES { ErrorClass::Truncated } else { ErrorClass::Syntax };
            let problem = format!("these are {} bytes, and an EXT_CSD register has {REGISTER_BYTES}", bytes.len());
            return Err(Error::new(kind, problem).at_offset(bytes.len().min(REGISTER_BYTES) as u64).hint(HINT));
        };
        Self::of_bytes(&register)
    }

    /// Reads a whole register, whose bytes may be in any of the known orders.
    fn of_bytes(bytes: &[u8; REGISTER_BYTES]) -> Result<Self> {
        check_answer(bytes)?;
        let (bytes, order) = in_order(bytes)?;
        Ok(Self { bytes, known_bytes: [true; REGISTER_BYTES], card: None, order })
    }

    fn unknown(text: &str) -> Error {
        let of_u_boot = ["Manufacturer ID:", "Bus Speed:", "High Capacity:"];
        if text.trim().is_empty() {
            Error::new(ErrorClass::Empty, "the file is empty").hint(HINT)
        } else if of_u_boot.iter().all(|mark| text.contains(mark)) {
            Error::new(ErrorClass::Unsupported, "this is `mmc info` of U-Boot, a summary with a rounded capacity")
                .hint("give the EXT_CSD register itself: `mmc reg read extcsd all`, or a dump by `md`")
        } else {
            let problem = "there is no EXT_CSD register in this text, and no descriptor of a UFS";
            Error::new(ErrorClass::UnknownFormat, problem).hint(format!("{HINT}; for a UFS device, give its folder in sysfs"))
        }
    }

    /// Adds the value of a field. Returns an error if it contradicts a value that was added before.
    fn add(&mut self, field: RegisterField, value: &[u8]) -> Result<()> {
        let range = field.range();
        let is_known = self.known_bytes[range.clone()].iter().all(|known| *known);
        if is_known && self.bytes[range.clone()] != *value {
            let other = crate::report::hex_number(&self.bytes[range]);
            return Err(Error::new(ErrorClass::Value, format!("the value contradicts {other} elsewhere in the text"))
                .of_field(field.name, 0, crate::report::hex_number(value).as_bytes())
                .hint("give the text of exactly one register of one device"));
        }
        self.bytes[range.clone()].copy_from_slice(value);
        self.known_bytes[range].fill(true);
        Ok(())
    }

    /// Checks that the values of the fields are possible in a register.
    fn validate(self) -> Result<Self> {
        for (field, most, what) in [
            (fields::EXT_CSD_REV, MOST, "no revision of the register"),
            (fields::CSD_STRUCTURE, 3, "no version of the CSD register"),
            (fields::S_CMD_SET, 31, "no set of command sets"),
        ] {
            if let Some(value) = self.number(field).filter(|value| *value > u64::from(most)) {
                let problem = format!("this is {what} (at most {most}); the bytes are damaged, or not those of a register");
                return Err(Error::new(ErrorClass::Value, problem)
                    .at_offset(field.byte.into())
                    .of_field(field.name, 0, format!("{value:#04x}").as_bytes())
                    .hint(HINT));
            }
        }
        if self.number(fields::EXT_CSD_REV).is_none() && !self.has_any() && self.card.is_none() {
            return Err(Error::new(ErrorClass::Empty, "the text names no field of the EXT_CSD register").hint(HINT));
        }
        Ok(self)
    }

    /// Whether every byte of the register is known, as after a dump; the sentences of mmc-utils contain only some fields.
    fn is_whole(&self) -> bool {
        self.known_bytes.iter().all(|known| *known)
    }

    fn has_any(&self) -> bool {
        self.known_bytes.iter().any(|known| *known)
    }

    /// The value of a field; `None` if it is unknown.
    pub fn number(&self, field: RegisterField) -> Option<u64> {
        self.bytes_of(field).map(|_| field.get(&self.bytes))
    }

    /// The bytes of a field; `None` if they are unknown.
    pub fn bytes_of(&self, field: RegisterField) -> Option<&[u8]> {
        let range = field.range();
        self.known_bytes[range.clone()].iter().all(|known| *known).then(|| &self.bytes[range])
    }

    /// The revision of the register; `None` if it is unknown.
    pub fn revision(&self) -> Option<u8> {
        self.number(fields::EXT_CSD_REV).map(|revision| revision as u8)
    }

    /// The value of a field; `None` if it is unknown, or if this revision of the register does not have the field.
    pub fn supported_value(&self, field: RegisterField) -> Option<u64> {
        let has = self.revision().is_none_or(|revision| revision >= field.since);
        self.number(field).filter(|_| has)
    }
}

/// Reads the register in a hexadecimal dump; `None` if no line of the text is a row of digits.
fn register_in_dump(text: &str) -> Result<Option<[u8; REGISTER_BYTES]>> {
    dump::read(text, REGISTER_BYTES)?.map(register_of).transpose()
}

/// Converts the bytes of a dump into a register. The last row of a table with ten columns may be short or padded.
fn register_of(HexDump { mut bytes, end }: HexDump<'_>) -> Result<[u8; REGISTER_BYTES]> {
    let count = bytes.len();
    bytes.truncate(REGISTER_BYTES);
    if let Ok(register) = <[u8; REGISTER_BYTES]>::try_from(bytes)
        && count < REGISTER_BYTES + dump::MOST_IN_ROW
    {
        return Ok(register);
    }
    let problem = format!("the dump has {count} bytes, and the register {REGISTER_BYTES}");
    let hint = "dump the whole register again";
    Err(match end {
        Some((line, content)) => {
            Error::new(ErrorClass::Syntax, format!("the line is not a row of hexadecimal digits; {problem}"))
                .at_line(line)
                .of_field("row", 0, content.as_bytes())
        }
        None if count < REGISTER_BYTES => Error::new(ErrorClass::Truncated, problem).at_offset(count as u64),
        None => Error::new(ErrorClass::Syntax, problem),
    }
    .hint(hint))
}

/// Rejects register bytes that did not come from a device.
fn check_answer(bytes: &[u8; REGISTER_BYTES]) -> Result<()> {
    for (value, problem) in
        [(0, "every byte is 0: nothing was read from the device"), (0xff, "every byte is 0xff: nothing answered on the bus")]
    {
        if bytes.iter().all(|byte| *byte == value) {
            return Err(Error::new(ErrorClass::Value, problem).at_offset(0).hint(HINT));
        }
    }
    if bytes.ends_with(&[0x55, 0xaa]) {
        return Err(Error::new(ErrorClass::Value, "this is a boot sector: it ends in 55 aa").at_offset(510).hint(HINT));
    }
    Ok(())
}

/// Hint on how to obtain the register.
const HINT: &str =
    "take /sys/kernel/debug/mmc0/mmc0:0001/ext_csd, `mmc extcsd read /dev/mmcblk0` or `mmc reg read extcsd all` of U-Boot";

/// Whether the first bytes of a file are an `EXT_CSD` register in one of the known forms.
pub fn is_ext_csd(head: &[u8]) -> bool {
    let Some(text) = text_of(head) else {
        return <[u8; REGISTER_BYTES]>::try_from(head).is_ok_and(|bytes| is_register(&bytes));
    };
    has_sentences(&text) || matches!(register_in_dump(&text), Ok(Some(bytes)) if is_register(&bytes))
}

/// Returns the error for the first bytes of a file if they look like a damaged register: a truncated or damaged dump, or 512 equal bytes.
/// `None` for a valid register and for other files.
pub fn fault_of_ext_csd(head: &[u8]) -> Option<Error> {
    /// Minimum number of bytes of a dump that is reported as a damaged register. A shorter dump may be something else.
    const LEAST: usize = 64;
    let seems = match text_of(head) {
        Some(text) => dump::is_dump(&text, LEAST),
        None => head.len() == REGISTER_BYTES && head.iter().all(|byte| *byte == head[0]),
    };
    if seems { ExtCsdRegister::of(head).and_then(ExtCsdRegister::validate).err() } else { None }
}

/// Whether these bytes may be an `EXT_CSD`, in any byte order: some fields have few possible values, and the first bytes are reserved.
fn is_register(bytes: &[u8; REGISTER_BYTES]) -> bool {
    let Ok((bytes, _)) = check_answer(bytes).and_then(|()| in_order(bytes)) else { return false };
    let [revision, structure, sets, sectors] =
        [fields::EXT_CSD_REV, fields::CSD_STRUCTURE, fields::S_CMD_SET, fields::SEC_COUNT].map(|field| field.get(&bytes));
    matches!(revision, 1..=9)
        && matches!(structure, 0..=2)
        && matches!(sets, 1..=31)
        && sectors != 0
        && bytes[..14].iter().all(|byte| *byte == 0)
}

/// Orders in which programs print a register: the number of bytes that are reversed together, and a description.
const ORDERS: [(usize, &str); 3] = [
    (REGISTER_BYTES, "byte 511 is first, as kernels up to 3.1 print it"),
    (4, "the bytes of each word of 4 are swapped"),
    (2, "the bytes of each word of 2 are swapped"),
];
/// Returns the register in the byte order of the standard, with a note if bytes were reversed.
fn in_order(bytes: &[u8; REGISTER_BYTES]) -> Result<([u8; REGISTER_BYTES], Option<String>)> {
    let signs = order_signs(bytes);
    if signs.is_empty() {
        return Ok((*bytes, None));
    }
    let shown = signs.join(", ");
    for (size, order) in ORDERS {
        let mut turned = *bytes;
        turned.chunks_mut(size).for_each(<[u8]>::reverse);
        if order_signs(&turned).is_empty() && fields::EXT_CSD_REV.get(&turned) > 0 {
            return Ok((turned, Some(format!("{order} ({shown} as printed): they were put into the order of the standard"))));
        }
    }
    // A single contradiction may be a peculiarity of the device, so the bytes are accepted with a remark.
    if let [sign] = &*signs {
        return Ok((*bytes, Some(format!("{sign}: the dump may be damaged"))));
    }
    Err(Error::new(ErrorClass::Value, format!("{shown}: the bytes are damaged, in another order, or not those of a register"))
        .at_offset(0)
        .hint(HINT))
}

/// Lists what contradicts the assumption that these bytes are a register in the byte order of the standard.
fn order_signs(bytes: &[u8; REGISTER_BYTES]) -> Vec<String> {
    let [revision, structure, sets, sectors] =
        [fields::EXT_CSD_REV, fields::CSD_STRUCTURE, fields::S_CMD_SET, fields::SEC_COUNT].map(|field| field.get(bytes));
    let is_reserved = |at| !FIELDS.iter().any(|field| field.range().contains(&at));
    let reserved = bytes.iter().enumerate().find(|(at, byte)| **byte != 0 && is_reserved(*at));
    let signs = [
        reserved.map(|(at, byte)| format!("reserved byte {at} is {byte:#04x}")),
        // Every device supports the standard eMMC command set, which is bit 0 of `S_CMD_SET`.
        (sets & 1 == 0 || sets > 31).then(|| format!("S_CMD_SET is {sets:#04x}")),
        (sectors == 0).then(|| "SEC_COUNT is 0".to_owned()),
        (revision > MOST.into()).then(|| format!("EXT_CSD_REV is {revision:#04x}")),
        (structure > 3).then(|| format!("CSD_STRUCTURE is {structure:#04x}")),
    ];
    signs.into_iter().flatten().collect()
}

struct FieldLine {
    pub field: RegisterField,
    pub value: Vec<u8>,
    pub line: u64,
}

/// Reads the fields in the sentences that mmc-utils prints; empty if the text has no such sentence.
fn read_sentences(text: &str) -> Result<Vec<FieldLine>> {
    let mut fields = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        if let Some(field) = sentence(content.trim()).map_err(|error| error.at_line(line))? {
            fields.push(FieldLine { line, ..field });
        }
    }
    Ok(fields)
}

/// Whether a text contains sentences that mmc-utils prints.
fn has_sentences(text: &str) -> bool {
    ["Extended CSD rev", "[EXT_CSD_", "[S_CMD_SET:", "[CACHE_SIZE", "[SEC_COUNT:"].iter().any(|mark| text.contains(mark))
}

/// The field that mmc-utils prints under this name.
fn field_by_name(name: &str) -> Option<RegisterField> {
    let field = match name {
        "BOOT_SIZE_MULTI" => fields::BOOT_SIZE_MULT,
        "CARD_TYPE" => fields::DEVICE_TYPE,
        "HPI_FEATURE" => fields::HPI_FEATURES,
        // mmc-utils uses other voltages than the standard in the names of some fields.
        "PWR_CL_200_360" => fields::PWR_CL_200_195,
        "PWR_CL_200_195" => fields::PWR_CL_200_130,
        _ => RegisterField::by_name(name).or_else(|| RegisterField::by_name(name.strip_prefix("EXT_CSD_")?))?,
    };
    Some(field)
}

fn sentence(content: &str) -> Result<Option<FieldLine>> {
    let of = |field: RegisterField, value: u64| number(field, value).map(|value| Some(FieldLine { field, value, line: 0 }));
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
    let Some((_, (inside, behind))) = content.split_once('[').and_then(|(before, rest)| Some((before, rest.split_once(']')?)))
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
        // CMDQ_DEPTH is the only field that mmc-utils prints as a decimal number of commands. The register contains this number minus 1.
        None if field == fields::CMDQ_DEPTH => {
            let depth: u64 = digits.parse().map_err(|_| unreadable(field, value))?;
            of(field, depth.saturating_sub(1))
        }
        // The line mentions the field without a value.
        None => Ok(None),
    }
}

fn number(field: RegisterField, value: u64) -> Result<Vec<u8>> {
    let bytes = value.to_le_bytes();
    let (taken, rest) = bytes.split_at(usize::from(field.bytes).min(8));
    if rest.iter().any(|byte| *byte != 0) {
        let problem = format!("the field's {} byte(s) cannot hold the value", field.bytes);
        return Err(Error::new(ErrorClass::Value, problem)
            .of_field(field.name, 0, format!("{value:#x}").as_bytes())
            .hint("give the unchanged output of `mmc extcsd read`"));
    }
    Ok(taken.to_vec())
}

fn unreadable(field: RegisterField, value: &str) -> Error {
    Error::new(ErrorClass::Syntax, "the value does not have the format in which mmc-utils prints this field")
        .of_field(field.name, 0, value.as_bytes())
        .hint("give the unchanged output of `mmc extcsd read`")
}
