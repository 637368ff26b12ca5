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

#[cfg(test)]
mod tests {
    use super::super::tests::named;

    #[test]
    fn a_register_that_is_cut_short_or_empty_is_named_with_its_fault() {
        for (bytes, fault) in [
            ("ab".repeat(350).into_bytes(), "350 bytes, and the register 512"),
            ("00".repeat(512).into_bytes(), "every byte is 0"),
            (vec![0; 512], "every byte is 0"),
            (vec![0xff; 512], "every byte is 0xff"),
        ] {
            let name = named(&bytes);
            assert!(name.contains("EXT_CSD") && name.contains(fault), "{name}");
        }
        assert_eq!(named("ab".repeat(20).as_bytes()), "unknown");
    }

    #[test]
    fn registers_are_named() {
        let sentences = "=====\n  Extended CSD rev 1.8 (MMC 5.1)\n=====\n\nCard Supported Command sets [S_CMD_SET: 0x01]\n";
        assert!(named(sentences.as_bytes()).contains("EXT_CSD"));
        for text in ["device_descriptor/queue_depth:0x20\n", "Device Descriptor: [Byte offset 0x21]: bQueueDepth = 0x20\n"] {
            assert!(named(text.as_bytes()).contains("UFS"), "{text}");
        }
        assert_eq!(named(b"00000000: 7f 45 4c 46\n"), "unknown");
    }
}
