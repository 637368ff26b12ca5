//! Recognises registers of devices, which `emmclab-registers` reads: the `EXT_CSD` register of an eMMC and the descriptors of a UFS.

use emmclab_registers::{fault_of_ext_csd, is_ext_csd, is_ufs};

use super::{FileHead, ForeignFileKind};
use crate::{Error, ErrorClass};

pub(super) static KINDS: &[ForeignFileKind] = &[
    ForeignFileKind {
        noun_phrase: "an EXT_CSD register, which describes an eMMC and its features",
        matches: |head: &FileHead| is_ext_csd(head.bytes),
        hint: "`emmclab explain FILE` explains it, and `emmclab preset --ext-csd FILE` makes a device preset of it; for its \
               I/O record with `emmclab record`, blktrace or trace-cmd",
    },
    ForeignFileKind {
        noun_phrase: "descriptors of a UFS, which describe it and its features",
        matches: |head: &FileHead| is_ufs(head.bytes),
        hint: "`emmclab explain FILE` explains them, and `emmclab preset --ufs FILE` makes a device preset of them; for its \
               I/O record with `emmclab record`, blktrace or trace-cmd",
    },
];

/// The error for a file that looks like a damaged register; `None` for other files.
pub(super) fn damaged(head: &[u8]) -> Option<Error> {
    let fault = fault_of_ext_csd(head)?;
    let problem = format!("this is no trace; it looks like an EXT_CSD register, but is not valid: {fault}");
    Some(Error::new(ErrorClass::UnknownFormat, problem).hint(fault.hint_text().unwrap_or_default()))
}
