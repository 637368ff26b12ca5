//! Reads the registers of a device: the `EXT_CSD` register of an eMMC (JESD84-B51, 7.4) or the descriptors of a UFS (JESD220, 14), in the
//! forms that tools print. Describes the registers in words, and derives settings of a device preset from them. Also reads health reports
//! of vendors, which count erases.
//!
//! The fields of `EXT_CSD` are declared in [`ext_csd::fields`], which the code that writes the register uses too.

mod dump;
pub mod ext_csd;
mod health;
mod report;
mod ufs;

use std::path::Path;

use emmclab_base::{Error, ErrorClass, Result};

pub use ext_csd::{crc7, fault_of_ext_csd, is_card_file, is_ext_csd};
pub use health::{EraseCounts, FORMATS as HEALTH_FORMATS, HealthCommand, HealthField, HealthFormat, HealthReport, read_health};
pub use report::{DerivedSetting, FieldRow, RegisterCapacity, RegisterFact, RegisterReport, RegisterValue};
pub use ufs::{is_ufs, is_ufs_file};

/// Reads the registers of one device from one file, or from the files of a folder tree.
/// Errors: if the files have none of the known forms, are damaged, do not belong to a device, or contradict each other.
pub fn read(sources: &[RegisterSource<'_>]) -> Result<RegisterReport> {
    let is_register =
        |source: &&RegisterSource<'_>| source.path.file_name().is_some_and(|name| name == "ext_csd") || is_ext_csd(source.bytes);
    let of_ufs = sources.iter().any(|source| is_ufs_file(source.path) || is_ufs(source.bytes));
    let mut registers = sources.iter().filter(is_register).peekable();
    let files: Vec<_> = sources.iter().filter(|source| is_card_file(source.path)).collect();
    match (registers.peek(), of_ufs, sources) {
        (Some(first), true, _) => Err(Error::new(ErrorClass::Config, "the input has both an EXT_CSD and UFS descriptors")
            .in_file(first.path)
            .hint("give the registers of only one device")),
        (_, true, _) => ufs::UfsDescriptors::read(sources).map(|registers| registers.report()),
        (Some(_), false, _) => {
            let register = common_register(registers)?;
            register.with_files(&files).map(|registers| registers.report())
        }
        (None, false, _) if !files.is_empty() => {
            ext_csd::ExtCsdRegister::unknown_register().with_files(&files).map(|registers| registers.report())
        }
        (None, false, [only]) if ufs::may_be_raw(only.bytes) => {
            ufs::UfsDescriptors::read(sources).map(|registers| registers.report())
        }
        // A single file that was not recognised may be a damaged register. The reader of EXT_CSD reports what is wrong.
        (None, false, [only]) => ext_csd::ExtCsdRegister::read(only).map(|registers| registers.report()),
        (None, false, _) => Err(Error::new(ErrorClass::UnknownFormat, "there is no EXT_CSD register and no UFS descriptor")
            .hint("name the file ext_csd of debugfs, or the folder of a UFS in sysfs")),
    }
}

/// Returns the register that all these files contain; an error if the files differ.
fn common_register<'a>(mut sources: impl Iterator<Item = &'a RegisterSource<'a>>) -> Result<ext_csd::ExtCsdRegister> {
    let Some(first) = sources.next() else {
        return Err(Error::new(ErrorClass::Empty, "the input has no EXT_CSD register"));
    };
    let register = ext_csd::ExtCsdRegister::read(first)?;
    for other in sources {
        if ext_csd::ExtCsdRegister::read(other)? != register {
            return Err(Error::new(ErrorClass::Value, format!("the register differs from that in {}", first.path.display()))
                .in_file(other.path)
                .hint("give the register of only one device"));
        }
    }
    Ok(register)
}

/// A file with registers of a device.
#[derive(Clone, Copy, Debug)]
pub struct RegisterSource<'a> {
    /// Path of the file, for messages. In a folder tree it includes the folders that identify the device and the kind of the file.
    pub path: &'a Path,
    /// Contents of the file.
    pub bytes: &'a [u8],
}

/// Returns the bytes as text; `None` for binary data. Data is binary if it contains control characters other than those for lines and
/// colours, or if it is mostly invalid UTF-8.
pub(crate) fn text_of(bytes: &[u8]) -> Option<String> {
    let is_text = |byte: u8| byte >= b' ' || matches!(byte, b'\n' | b'\r' | b'\t' | 0x0c | 0x1b);
    // In a tar archive, a sysfs file is padded with zeros to the size that the file system reported.
    let end = bytes.iter().rposition(|byte| *byte != 0).map(|last| last + 1);
    let bytes = bytes.get(..end.unwrap_or(usize::from(!bytes.is_empty())))?;
    if !bytes.iter().all(|byte| is_text(*byte)) || is_mostly_foreign(bytes) {
        return None;
    }
    Some(String::from_utf8_lossy(bytes).into_owned())
}

/// Whether the bytes are invalid UTF-8 and many of them are not ASCII, as in a raw register.
fn is_mostly_foreign(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err() && bytes.iter().filter(|byte| **byte >= 0x80).count() * 8 > bytes.len()
}
