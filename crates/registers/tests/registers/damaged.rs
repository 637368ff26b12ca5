//! Damaged registers are rejected with the place of the damage, and no input makes the reader panic.

use std::path::Path;

use emmclab_base::ErrorClass;
use emmclab_registers::ext_csd::fields;
use emmclab_registers::{RegisterSource, is_ext_csd, is_ufs, read};
use proptest::prelude::*;

use crate::support::{forms, read_one, register};

fn refused(bytes: &[u8]) -> String {
    let error = read_one(bytes).expect_err("refused");
    assert!(error.hint_text().is_some(), "{error} has a hint");
    assert!(error.to_string().starts_with("dump"), "{error} names the file");
    error.to_string()
}

#[test]
fn what_nothing_answered_is_no_register() {
    assert!(refused(&[0; 512]).contains("every byte is 0"));
    assert!(refused(&[0xff; 512]).contains("0xff"));
    assert!(refused(b"").contains("empty"));
    let digits = "f".repeat(1024);
    assert!(refused(digits.as_bytes()).contains("0xff"));
}

#[test]
fn an_impossible_value_is_named_with_its_byte_and_field() {
    let mut bytes = register();
    fields::EXT_CSD_REV.put(&mut bytes, 77);
    let message = refused(&bytes);
    for part in ["byte 192", "EXT_CSD_REV", "0x4d"] {
        assert!(message.contains(part), "{message}");
    }
    let mut sector = register();
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    assert!(refused(&sector).contains("boot sector"));
}

#[test]
fn a_truncated_register_is_refused_in_each_form() {
    for (form, text) in forms(&register()) {
        let half = &text[..text.len() / 2];
        let error = read_one(half).expect_err(form);
        assert!(matches!(error.kind(), ErrorClass::Truncated | ErrorClass::Syntax), "{form}: {error}");
    }
}

#[test]
fn a_damaged_row_is_named_with_its_line() {
    for (form, text) in forms(&register()) {
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<_> = text.lines().collect();
        if lines.len() < 16 || form.starts_with("debugfs") {
            continue;
        }
        let mut damaged = lines.clone();
        let bad = lines[12].replacen("00", "zz", 1);
        damaged[12] = if bad == lines[12] { "zz zz" } else { &bad };
        let error = read_one(damaged.join("\n").as_bytes()).expect_err(form);
        assert_eq!(error.line(), Some(13), "{form}: {error}");
        // Without the row before a star, its bytes are not known.
        if lines[12].contains(':') {
            let mut missing = lines.clone();
            missing.remove(12);
            let error = read_one(missing.join("\n").as_bytes()).expect_err(form);
            assert!(error.line().is_some(), "{form}: {error}");
        }
    }
}

#[test]
fn sentences_that_contradict_each_other_are_refused_with_their_line() {
    let message = refused(
        b"  Extended CSD rev 1.8 (MMC 5.1)\nSector Count [SEC_COUNT: 0x00e90000]\nSector Count [SEC_COUNT: 0x00e90001]\n",
    );
    assert!(message.contains("dump:3") && message.contains("SEC_COUNT") && message.contains("0x00e90000"), "{message}");
    let wide = refused(b"  Extended CSD rev 1.8 (MMC 5.1)\nBackground operations support [BKOPS_SUPPORT: 0x101]\n");
    assert!(wide.contains("dump:2") && wide.contains("BKOPS_SUPPORT"), "{wide}");
    let words = refused(b"  Extended CSD rev 1.8 (MMC 5.1)\nBackground operations support [BKOPS_SUPPORT: 0xzz]\n");
    assert!(words.contains("dump:2") && words.contains("BKOPS_SUPPORT"), "{words}");
}

#[test]
fn the_summary_of_u_boot_is_refused_by_name() {
    let message = refused(b"Device: FSL_SDHC\nManufacturer ID: 15\nBus Speed: 52000000\nHigh Capacity: Yes\nCapacity: 7.3 GiB\n");
    assert!(message.contains("mmc info"), "{message}");
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = read_one(&bytes);
        let _ = (is_ext_csd(&bytes), is_ufs(&bytes));
    }

    #[test]
    fn no_register_makes_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 512)) {
        let _ = read_one(&bytes);
    }

    #[test]
    fn no_text_makes_the_reader_panic(lines in proptest::collection::vec(line(), 0..40), file in "[a-z_/:0-9]{0,40}") {
        let text = lines.join("\n");
        let _ = read_one(text.as_bytes());
        let _ = read(&[RegisterSource { path: Path::new(&file), bytes: text.as_bytes() }]);
    }

    #[test]
    fn a_damaged_form_is_refused_or_read(form in 0_usize..12, at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let (_, mut text) = forms(&register()).swap_remove(form);
        let at = at.index(text.len());
        text[at] = byte;
        let _ = read_one(&text);
    }
}

/// A line like those that tools print, or any other line.
fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,60}",
        "[0-9a-f]{3,8}: ([0-9a-f]{2} ){0,18}",
        "[0-9a-f]{6,8} ([0-9a-f]{4} ?){0,9}",
        "[0-9a-fx]{0,40}",
        "\\*",
        "[A-Za-z ]{0,10}\\[(SEC_COUNT|CMDQ_DEPTH|CACHE_SIZE|EXT_CSD_REV)[]:]? ?(0x[0-9a-f]{0,18})?\\]?(: [0-9]{0,3}| is [0-9]{0,22} KiB)?",
        "(0:0:0:[0-9]{1,6}/)?(unit|geometry|device)_descriptor/(logical_block_count|logical_block_size|wb_buf_alloc_units|segment_size|\
         allocation_unit_size|specification_version|wb_type):(0x[0-9A-F]{0,17}|[a-z]{0,5})",
        "(Device|Unit|Geometry) Descriptor: \\[Byte offset 0x[0-9a-f]{1,3}\\]: (bUnitIndex|qLogicalBlockCount|wSpecVersion) = 0x[0-9a-f]{0,17}",
    ]
}
