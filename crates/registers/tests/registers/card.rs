//! The sysfs files of an eMMC, with and without its register.

use std::path::{Path, PathBuf};

use emmclab_base::Result;
use emmclab_registers::{RegisterReport, RegisterSource, RegisterValue, is_card_file, read};

use crate::support::register;

/// CID of a card of 2016 with its checksum, and the sysfs files that the kernel derives from it.
const FILES: [(&str, &str); 12] = [
    ("cid", "45010044463430333201123456788333"),
    ("csd", "d02701320f5903fff6dbffef8e404000"),
    ("manfid", "0x000045"),
    ("oemid", "0x0100"),
    ("name", "DF4032"),
    ("date", "08/2016"),
    ("hwrev", "0x1"),
    ("fwrev", "0x3034353830303031"),
    ("rev", "0x8"),
    ("life_time", "0x03 0x04"),
    ("pre_eol_info", "0x01"),
    ("size", "61071360"),
];

fn read_files(changes: &[(&str, &str)], register: Option<&[u8]>) -> Result<RegisterReport> {
    let path = |file: &str| PathBuf::from(format!("phone.parquet/mmc0:0001/{file}"));
    let text = |file: &str, usual: &'static str| {
        let change = changes.iter().find(|(other, _)| *other == file);
        change.map_or(usual.to_owned(), |(_, text)| (*text).to_owned())
    };
    let mut files: Vec<(PathBuf, Vec<u8>)> =
        FILES.iter().map(|(file, usual)| (path(file), text(file, usual).into_bytes())).collect();
    files.extend(register.map(|bytes| (path("ext_csd"), bytes.to_vec())));
    let sources: Vec<_> = files.iter().map(|(path, bytes)| RegisterSource { path, bytes }).collect();
    read(&sources)
}

fn fact<'a>(report: &'a RegisterReport, topic: &str) -> Option<&'a str> {
    report.facts.iter().find(|fact| fact.topic == topic).and_then(|fact| fact.text.as_deref())
}

#[test]
fn without_its_register_sysfs_says_what_a_device_is_and_how_worn() {
    let report = read_files(&[], None).unwrap();
    assert_eq!((report.kind, &*report.standard), ("emmc", "eMMC 5.1"));
    assert_eq!(fact(&report, "product"), Some("DF4032 (manufacturer 0x000045, OEM 0x0100), made 08/2016"));
    assert_eq!(fact(&report, "firmware"), Some("04580001"));
    assert_eq!(fact(&report, "life used, type A (mostly SLC)"), Some("20 to 30 % of the life used"));
    assert_eq!(report.capacity.as_ref().map(|stated| stated.bytes), Some(61_071_360 * 512));
    assert_eq!((fact(&report, "volatile cache"), &report.notes[..]), (None, &[][..]));
    let cid = report.fields.iter().find(|row| row.name == "PNM").unwrap();
    assert_eq!((&*cid.register, &cid.value), ("CID", &Some(RegisterValue::Text("DF4032".to_owned()))));
}

#[test]
fn the_register_comes_before_what_the_kernel_has_kept() {
    let report = read_files(&[("life_time", "0x07 0x07")], Some(&register())).unwrap();
    assert_eq!(fact(&report, "life used, type A (mostly SLC)"), Some("0 to 10 % of the life used"));
    assert!(fact(&report, "product").is_some() && fact(&report, "volatile cache").is_some());
    assert_eq!(report.capacity.map(|stated| stated.bytes), Some(0x00e9_0000 * 512));
}

#[test]
fn a_wrong_checksum_is_a_note_and_the_register_is_left_out() {
    let report = read_files(&[("cid", "450100444634303332011234567883e5")], None).unwrap();
    assert!(report.notes[0].starts_with("CID = 4501") && report.notes[0].contains("checksum"), "{:?}", report.notes);
    assert_eq!(fact(&report, "product"), None);
    // Many hosts leave the checksum out.
    let report = read_files(&[("cid", "45010044463430333201123456788300")], None).unwrap();
    assert!(report.notes.is_empty() && fact(&report, "product").is_some());
}

#[test]
fn what_no_kernel_prints_is_refused_with_file_field_and_value() {
    for (file, text, word) in [
        ("cid", "4501004446", "has 10 digits"),
        ("cid", "00000000000000000000000000000000", "every byte is 0"),
        ("csd", "ffffffffffffffffffffffffffffffff", "0xff"),
        ("csd", "zz2701320f5903fff6dbffef8e404000", "hexadecimal"),
        ("life_time", "0x03", "1 value(s), not 2"),
        ("life_time", "0x03 0x1ff", "does not fit"),
        ("rev", "eight", "no number"),
        ("rev", "0x4d", "no revision"),
    ] {
        let error = read_files(&[(file, text)], None).expect_err(text);
        assert!(error.to_string().contains(word) && error.hint_text().is_some(), "{error}");
        let names_file = error.to_string().contains("phone.parquet/mmc0:0001/");
        assert!(names_file || word == "no revision", "{error}");
    }
}

#[test]
fn a_file_of_a_card_is_known_by_the_name_of_its_folder() {
    for (path, is) in [
        ("/sys/devices/platform/soc/mmc_host/mmc0/mmc0:0001/name", true),
        ("mmc12:59b4/cid", true),
        ("mmc0:0001/uevent", false),
        ("mmc0:1/name", false),
        ("1d84000.ufshc/name", false),
        ("cid", false),
    ] {
        assert_eq!(is_card_file(Path::new(path)), is, "{path}");
    }
}
