//! The register of an eMMC: its forms, facts and settings; and the sysfs files, with and without the register.

use std::path::{Path, PathBuf};

use emmclab_base::Result;
use emmclab_registers::ext_csd::fields::{self, REGISTER_BYTES};
use emmclab_registers::{RegisterReport, RegisterSource, RegisterValue, is_card_file, is_ext_csd, read};

use crate::support::{fact, forms, has_note, read_one, register, setting, value};

fn with(changes: &[(fields::RegisterField, u64)]) -> RegisterReport {
    let mut bytes = register();
    for (field, value) in changes {
        field.put(&mut bytes, *value);
    }
    read_one(&bytes).unwrap()
}

#[test]
fn the_register_is_known_and_read_the_same_in_each_form() {
    let expected = read_one(&register()).unwrap();
    for (form, text) in forms(&register()) {
        assert!(is_ext_csd(&text), "{form}");
        assert_eq!(read_one(&text).unwrap_or_else(|error| panic!("{form}: {error}")), expected, "{form}");
    }
}

#[test]
fn the_register_of_an_8_gb_device_gives_its_sizes_and_settings() {
    let report = read_one(&register()).unwrap();
    assert_eq!((report.kind, report.standard.as_str(), report.like), ("emmc", "eMMC 5.1", "emmc51-cache"));
    assert_eq!(report.capacity.as_ref().unwrap().bytes, 7456 << 20);
    assert_eq!(report.capacity.as_ref().unwrap().from, "SEC_COUNT [215:212] = 0x00e90000");
    for (topic, text) in [
        ("capacity", "7,456 MB (15,269,888 sectors of 512 bytes)"),
        ("volatile cache", "8 MB, on"),
        ("packed writes", "up to 63 entries"),
        ("command queue", "16 commands"),
        ("reliable writes", "of any length"),
        ("boot partitions", "2 of 4 MB"),
        ("bus modes", "high speed, DDR52, HS200, HS400"),
        ("life used, type A (mostly SLC)", "0 to 10 % of the life used"),
        ("life used, type B (mostly MLC, TLC)", "10 to 20 % of the life used"),
        ("spare blocks", "normal"),
        ("firmware", ""),
    ] {
        assert_eq!(fact(&report, topic), text, "{topic}");
    }
    for (key, text) in [
        ("cache.size_kb", "8192"),
        ("features.packed_writes", "63"),
        ("features.reliable_write", "true"),
        ("features.barrier", "false"),
        ("controller.queue_depth", "16"),
        ("controller.bus_mode", "\"hs400\""),
    ] {
        assert_eq!(setting(&report, key).as_deref(), Some(text), "{key}");
    }
    assert_eq!(value(&report, "CACHE_SIZE"), Some(RegisterValue::Number(65_536)));
    assert_eq!(report.fields.len(), fields::FIELDS.len(), "every field has a row");
}

#[test]
fn the_sentences_of_mmc_utils_give_only_what_they_name() {
    let text = "=====\n  Extended CSD rev 1.8 (MMC 5.1)\n=====\n\n\
                Max Packet Write Cmd [MAX_PACKED_WRITES: 0x3f]\n\
                HPI Features [HPI_FEATURE: 0x01]: implementation based on CMD13\n\
                Cache Size [CACHE_SIZE] is 8192 KiB\n\
                Sector Count [SEC_COUNT: 0x00e90000]\n Device is block-addressed\n\
                Command Queue Support [CMDQ_SUPPORT]: 0x01\n\
                Command Queue Depth [CMDQ_DEPTH]: 16\n\
                eMMC Firmware Version: AB01\n\
                eMMC Life Time Estimation A [EXT_CSD_DEVICE_LIFE_TIME_EST_TYP_A]: 0x0b\n";
    let report = read_one(text.as_bytes()).unwrap();
    assert_eq!(fact(&report, "capacity"), "7,456 MB (15,269,888 sectors of 512 bytes)");
    assert_eq!((fact(&report, "volatile cache"), fact(&report, "command queue")), ("8 MB".into(), "16 commands".into()));
    assert_eq!(fact(&report, "firmware"), "AB01");
    assert_eq!(fact(&report, "life used, type A (mostly SLC)"), "beyond the estimated life");
    assert_eq!(fact(&report, "life used, type B (mostly MLC, TLC)"), "");
    assert_eq!(value(&report, "MAX_PACKED_READS"), None);
    assert_eq!(setting(&report, "features.packed_reads"), None);
    assert!(report.notes.iter().any(|note| note.contains("old versions of mmc-utils")), "{:?}", report.notes);
    assert_eq!(value(&report, "CMDQ_DEPTH"), Some(RegisterValue::Number(15)));
}

#[test]
fn the_base_preset_follows_from_revision_and_cache() {
    for (revision, cache, like) in [
        (8, 65_536, "emmc51-cache"),
        (8, 0, "emmc51-tlc"),
        (7, 4096, "emmc50-cache"),
        (6, 0, "emmc50-write-through"),
        (5, 0, "emmc50-write-through"),
    ] {
        let report = with(&[(fields::EXT_CSD_REV, revision), (fields::CACHE_SIZE, cache)]);
        assert_eq!(report.like, like, "{revision} {cache}");
    }
}

#[test]
fn fields_that_a_revision_does_not_have_are_named_and_left_out() {
    let report = with(&[(fields::EXT_CSD_REV, 5)]);
    assert_eq!((fact(&report, "volatile cache"), setting(&report, "cache.size_kb")), (String::new(), None));
    assert!(report.notes.iter().any(|note| note.contains("CACHE_SIZE") && note.contains("revision 5")), "{:?}", report.notes);
    assert_eq!(setting(&report, "controller.queue_depth").as_deref(), Some("1"));
}

#[test]
fn a_newer_revision_is_read_with_a_named_gap() {
    let report = with(&[(fields::EXT_CSD_REV, 9)]);
    assert!(report.notes.iter().any(|note| note.contains("revision 9: fields beyond")), "{:?}", report.notes);
    assert_eq!(fact(&report, "command queue"), "16 commands");
}

#[test]
fn the_enhanced_area_is_flash_in_slc_mode() {
    let set = [
        (fields::HC_WP_GRP_SIZE, 16),
        (fields::HC_ERASE_GRP_SIZE, 1),
        (fields::ENH_SIZE_MULT, 128),
        (fields::PARTITIONS_ATTRIBUTE, 1),
    ];
    let unfinished = with(&set);
    assert_eq!((fact(&unfinished, "enhanced area (SLC)"), unfinished.slc), ("none".to_owned(), None));
    let mut set = set.to_vec();
    set.push((fields::PARTITION_SETTING_COMPLETED, 1));
    let report = with(&set);
    assert_eq!(fact(&report, "enhanced area (SLC)"), "1 GB of the user area");
    assert_eq!(report.slc.as_ref().unwrap().bytes, 1 << 30);
    assert_eq!(setting(&report, "slc.mode").as_deref(), Some("\"region\""));
}

#[test]
fn a_register_may_stand_behind_other_output_and_before_it() {
    for (form, text) in forms(&register()) {
        if form.starts_with("U-Boot") || form == "xxd" {
            let mut log = b"U-Boot 2024.01 (Jan 08 2024)\nMMC:   FSL_SDHC: 0\n".to_vec();
            log.extend(text);
            log.extend(b"=> reset\n");
            assert!(read_one(&log).is_ok(), "{form}");
        }
    }
    assert_eq!(register().len(), REGISTER_BYTES);
}

#[test]
fn a_register_in_another_order_of_its_bytes_is_turned_with_a_note() {
    let expected = read_one(&register()).unwrap();
    for size in [REGISTER_BYTES, 4, 2] {
        let mut turned = register();
        turned.chunks_mut(size).for_each(<[u8]>::reverse);
        for (form, text) in forms(&turned) {
            assert!(is_ext_csd(&text), "{form} in words of {size}");
            let report = read_one(&text).unwrap();
            assert_eq!((&report.facts, &report.fields), (&expected.facts, &expected.fields), "{form} in words of {size}");
            assert!(has_note(&report, "put into the order of the standard"), "{form} in words of {size}: {:?}", report.notes);
        }
    }
}

#[test]
fn a_register_of_which_no_order_is_possible_is_refused_and_a_single_sign_is_named() {
    let mut shifted = register();
    shifted.rotate_left(1);
    for bytes in [&shifted, &{
        let mut bytes = register();
        bytes[3] = 7;
        fields::S_CMD_SET.put(&mut bytes, 0);
        bytes
    }] {
        let error = read_one(bytes).expect_err("refused").to_string();
        assert!(error.contains("S_CMD_SET") || error.contains("reserved byte"), "{error}");
        assert!(!is_ext_csd(bytes));
    }
    let mut odd = register();
    odd[3] = 7;
    assert!(has_note(&read_one(&odd).unwrap(), "reserved byte 3 is 0x07"));
}

#[test]
fn a_count_of_sectors_with_all_bits_set_is_no_capacity() {
    let report = with(&[(fields::SEC_COUNT, 0xffff_ffff)]);
    assert_eq!((report.capacity.clone(), fact(&report, "capacity")), (None, String::new()));
    assert!(has_note(&report, "SEC_COUNT [215:212] = 0xffffffff"), "{:?}", report.notes);
    assert_eq!(with(&[(fields::SEC_COUNT, 0)]).capacity, None);
}

/// The CID of a card of 2016 with its checksum, and the sysfs files that the kernel derives from it.
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

#[test]
fn without_its_register_sysfs_says_what_a_device_is_and_how_worn() {
    let report = read_files(&[], None).unwrap();
    assert_eq!((report.kind, &*report.standard), ("emmc", "eMMC 5.1"));
    assert_eq!(fact(&report, "product"), "DF4032 (manufacturer 0x000045, OEM 0x0100), made 08/2016");
    assert_eq!(fact(&report, "firmware"), "04580001");
    assert_eq!(fact(&report, "life used, type A (mostly SLC)"), "20 to 30 % of the life used");
    assert_eq!(report.capacity.as_ref().map(|stated| stated.bytes), Some(61_071_360 * 512));
    assert_eq!((fact(&report, "volatile cache"), report.notes.len()), (String::new(), 0));
    let cid = report.fields.iter().find(|row| row.name == "PNM").unwrap();
    assert_eq!((&*cid.register, &cid.value), ("CID", &Some(RegisterValue::Text("DF4032".to_owned()))));
}

#[test]
fn the_register_comes_before_what_the_kernel_has_kept() {
    let report = read_files(&[("life_time", "0x07 0x07")], Some(&register())).unwrap();
    assert_eq!(fact(&report, "life used, type A (mostly SLC)"), "0 to 10 % of the life used");
    assert!(!fact(&report, "product").is_empty() && !fact(&report, "volatile cache").is_empty());
    assert_eq!(report.capacity.map(|stated| stated.bytes), Some(0x00e9_0000 * 512));
}

#[test]
fn a_wrong_checksum_is_a_note_and_the_register_is_left_out() {
    let report = read_files(&[("cid", "450100444634303332011234567883e5")], None).unwrap();
    assert!(report.notes[0].starts_with("CID = 4501") && report.notes[0].contains("checksum"), "{:?}", report.notes);
    assert_eq!(fact(&report, "product"), "");
    // Many hosts omit the checksum.
    let report = read_files(&[("cid", "45010044463430333201123456788300")], None).unwrap();
    assert!(report.notes.is_empty() && !fact(&report, "product").is_empty());
}

#[test]
fn what_no_kernel_prints_is_refused_with_file_field_and_value() {
    for (file, text, word) in [
        ("cid", "4501004446", "found 10 digits"),
        ("cid", "00000000000000000000000000000000", "every byte is 0"),
        ("csd", "ffffffffffffffffffffffffffffffff", "0xff"),
        ("csd", "zz2701320f5903fff6dbffef8e404000", "hexadecimal"),
        ("life_time", "0x03", "1 value(s), not 2"),
        ("life_time", "0x03 0x1ff", "does not fit"),
        ("rev", "eight", "not a number"),
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
