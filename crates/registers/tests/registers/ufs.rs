//! The descriptors of a UFS: as a tree of files, as text, and as ufs-utils prints them.

use std::path::Path;

use emmclab_registers::{RegisterReport, RegisterSource, RegisterValue, is_ufs, read};

use crate::support::{fact, has_note, hex_forms, read_one, setting, value};

/// Files of a UFS 3.1 with two logical units, of which one is for boot, and a shared `WriteBooster` of 4 GB.
const FILES: &[(&str, &str)] = &[
    ("device_descriptor/specification_version", "0x0310"),
    ("device_descriptor/number_of_luns", "0x02"),
    ("device_descriptor/queue_depth", "0x20"),
    ("device_descriptor/ext_feature_sup", "0x00000100"),
    ("device_descriptor/wb_presv_us_en", "0x01"),
    ("device_descriptor/wb_type", "0x01"),
    ("device_descriptor/wb_shared_alloc_units", "0x00000400"),
    ("device_descriptor/ufs_features", "0x81"),
    ("device_descriptor/hpb_version", "0x0200"),
    ("geometry_descriptor/raw_device_capacity", "0x000000000EE64000"),
    ("geometry_descriptor/segment_size", "0x00002000"),
    ("geometry_descriptor/allocation_unit_size", "0x01"),
    ("health_descriptor/eol_info", "0x01"),
    ("health_descriptor/life_time_estimation_a", "0x02"),
    ("health_descriptor/life_time_estimation_b", "0x01"),
    ("string_descriptors/manufacturer_name", "ACME"),
    ("string_descriptors/product_name", "UFS128"),
    ("string_descriptors/product_revision", "0100"),
    ("attributes/wb_avail_buf", "0x0000000A"),
    ("attributes/wb_life_time_est", "0x00000001"),
    ("flags/wb_enable", "true"),
    ("flags/bkops_enable", "false"),
    ("power_info/gear", "HS_GEAR4"),
    ("power_info/lane", "2"),
    ("host0/target0:0:0/0:0:0:0/unit_descriptor/lu_enable", "0x01"),
    ("host0/target0:0:0/0:0:0:0/unit_descriptor/logical_block_size", "0x0C"),
    ("host0/target0:0:0/0:0:0:0/unit_descriptor/logical_block_count", "0x0000000001DC0000"),
    ("host0/target0:0:0/0:0:0:1/unit_descriptor/lu_enable", "0x01"),
    ("host0/target0:0:0/0:0:0:1/unit_descriptor/logical_block_size", "0x0C"),
    ("host0/target0:0:0/0:0:0:1/unit_descriptor/logical_block_count", "0x0000000000000800"),
    ("host0/target0:0:0/0:0:0:49476/unit_descriptor/lu_enable", "0x01"),
    ("host0/target0:0:0/0:0:0:49476/unit_descriptor/logical_block_size", "0x08"),
    ("host0/target0:0:0/0:0:0:49476/unit_descriptor/logical_block_count", "0x0000000000010000"),
];

fn tree(files: &[(&str, &str)]) -> emmclab_base::Result<RegisterReport> {
    let sources: Vec<_> =
        files.iter().map(|(path, text)| RegisterSource { path: Path::new(path), bytes: text.as_bytes() }).collect();
    read(&sources)
}

#[test]
fn a_tree_its_text_and_its_listing_give_the_same() {
    let of_tree = tree(FILES).unwrap();
    let grep: String =
        FILES.iter().map(|(path, text)| format!("/sys/devices/platform/soc/1d84000.ufshc/{path}:{text}\n")).collect();
    let tail: String = FILES.iter().map(|(path, text)| format!("==> {path} <==\n{text}\n\n")).collect();
    for text in [grep, tail] {
        assert!(is_ufs(text.as_bytes()));
        assert_eq!(read_one(text.as_bytes()).unwrap(), of_tree);
    }
}

#[test]
fn the_descriptors_of_a_ufs_31_give_its_sizes_and_settings() {
    let report = tree(FILES).unwrap();
    assert_eq!((report.kind, report.standard.as_str(), report.like), ("ufs", "UFS 3.1", "ufs31"));
    let bytes = (0x01dc_0000_u64 + 0x800) << 12;
    assert_eq!(report.capacity.as_ref().unwrap().bytes, bytes);
    assert_eq!(report.slc.as_ref().unwrap().bytes, 4 << 30);
    for (topic, text) in [
        ("product", "ACME UFS128"),
        ("firmware", "0100"),
        ("logical units", "0: 119 GB, 1: 8 MB"),
        ("queue", "32 commands"),
        ("WriteBooster", "4 GB, shared by all logical units, does not reduce the capacity"),
        ("WriteBooster now", "on, 100 % free"),
        ("link in use", "2 lane(s) of HS_GEAR4"),
        ("HPB", "version 2.0"),
        ("life used, type A (mostly SLC)", "10 to 20 % of the life used"),
        ("spare blocks", "normal"),
        ("volatile cache", ""),
    ] {
        assert_eq!(fact(&report, topic), text, "{topic}");
    }
    for (key, text) in [
        ("controller.queue_depth", "32"),
        ("interface.gear", "\"hs_g4\""),
        ("interface.lanes", "2"),
        ("slc.mode", "\"cache\""),
        ("slc.preserve_user_space", "true"),
        ("slc.dedicated_mb", "0"),
    ] {
        assert_eq!(setting(&report, key).as_deref(), Some(text), "{key}");
    }
}

#[test]
fn ufs_utils_gives_the_same_values() {
    let text = "Device Descriptor: [Byte offset 0x0]: bLength = 0x59\n\
                Device Descriptor: [Byte offset 0x10]: wSpecVersion = 0x400\n\
                Device Descriptor: [Byte offset 0x21]: bQueueDepth = 0x40\n\
                Config Device Descriptor: [Byte offset 0x3]: bBootEnable = 0x1\n\
                Unit Descriptor: [Byte offset 0x2]: bUnitIndex = 0x3\n\
                Unit Descriptor: [Byte offset 0x3]: bLUEnable = 0x1\n\
                Unit Descriptor: [Byte offset 0xa]: bLogicalBlockSize = 0xc\n\
                Unit Descriptor: [Byte offset 0xb]: qLogicalBlockCount = 0x3b9000\n\
                Device Health Descriptor: [Byte offset 0x3]: bDeviceLifeTimeEstA = 0x1\n\
                bBackgroundOpStatus        := 0x02\n";
    assert!(is_ufs(text.as_bytes()));
    let report = read_one(text.as_bytes()).unwrap();
    assert_eq!((report.standard.as_str(), report.like), ("UFS 4.0", "ufs40"));
    assert_eq!(report.capacity.as_ref().unwrap().bytes, 0x003b_9000 << 12);
    assert_eq!(fact(&report, "logical units"), "3: 15,248 MB");
    assert_eq!(value(&report, "bBackgroundOpStatus"), Some(RegisterValue::Number(2)));
    assert_eq!(fact(&report, "WriteBooster"), "");
}

#[test]
fn a_device_without_write_booster_has_none_in_its_preset() {
    let report =
        read_one(b"device_descriptor/ext_feature_sup:0x00000000\ndevice_descriptor/specification_version:0x0300\n").unwrap();
    assert_eq!((fact(&report, "WriteBooster").as_str(), report.slc.as_ref()), ("none", None));
    assert_eq!(setting(&report, "slc.mode").as_deref(), Some("\"off\""));
    assert_eq!(report.capacity, None);
}

#[test]
fn a_write_booster_of_one_unit_has_the_size_of_that_unit() {
    let mut files = FILES.to_vec();
    files.retain(|(path, _)| !path.contains("wb_type") && !path.contains("wb_shared"));
    files.push(("device_descriptor/wb_type", "0x00"));
    files.push(("host0/target0:0:0/0:0:0:0/unit_descriptor/wb_buf_alloc_units", "0x00000200"));
    let report = tree(&files).unwrap();
    assert_eq!(report.slc.as_ref().unwrap().bytes, 2 << 30);
    assert_eq!(setting(&report, "slc.dedicated_mb").as_deref(), Some("121856"));
}

#[test]
fn contradictions_and_impossible_values_are_named_with_their_place() {
    for (text, parts) in [
        (
            "device_descriptor/queue_depth:0x20\ndevice_descriptor/queue_depth:0x40\n",
            &["dump:2", "bQueueDepth", "0x40", "0x20", "dump:1"][..],
        ),
        ("device_descriptor/queue_depth:lots\n", &["dump:1", "bQueueDepth", "lots"]),
        ("device_descriptor/queue_depth:0x120\n", &["dump:1", "bQueueDepth", "0x120"]),
        ("device_descriptor/specification_version:0xFFFF\n", &["wSpecVersion", "0xffff"]),
        ("Device Descriptor: [Byte offset 0x20]: bQueueDepth = 0x20\n", &["dump:1", "bQueueDepth", "0x21"]),
        ("0:0:0:0/unit_descriptor/logical_block_size:0x40\n", &["bLogicalBlockSize", "0x40"]),
    ] {
        let error = read_one(text.as_bytes()).expect_err(text);
        assert!(error.hint_text().is_some(), "{error}");
        for part in parts {
            assert!(error.to_string().contains(part), "{error} names {part}");
        }
    }
    let zeros: Vec<_> = FILES.iter().filter(|(_, text)| text.starts_with("0x")).map(|(path, _)| (*path, "0x00")).collect();
    assert!(tree(&zeros).unwrap_err().to_string().contains("every value is 0"));
}

#[test]
fn registers_of_two_devices_are_refused() {
    let dump = crate::support::register();
    let sources = [
        RegisterSource { path: Path::new("ext_csd"), bytes: &dump },
        RegisterSource { path: Path::new("device_descriptor/queue_depth"), bytes: b"0x20\n" },
    ];
    assert!(read(&sources).is_err());
}

#[test]
fn the_name_of_a_field_and_not_its_heading_tells_its_descriptor() {
    let text = "Device Descriptor[Byte offset 0x2]: bPreEOLInfo = 0x3\n\
                Health Descriptor[Byte offset 0x1]: bDescriptionIDN = 0x1\n\
                bDeviceLifeTimeEstA = 0x1 (0 to 10 %)\n\
                Device Descriptor: [Byte offset 0x4]: bDeviceLifeTimeEstB: 0xA\n";
    let report = read_one(text.as_bytes()).unwrap();
    assert!(fact(&report, "spare blocks").starts_with("urgent"));
    assert_eq!(fact(&report, "life used, type A (mostly SLC)"), "0 to 10 % of the life used");
    assert_eq!(fact(&report, "life used, type B (mostly MLC, TLC)"), "90 to 100 % of the life used");
    // The index of a string is not the string, and a configuration descriptor does not describe the device.
    let text = "Device Descriptor: [Byte offset 0x15]: iProductName = 0x1\n\
                Device Descriptor: [Byte offset 0x1]: bDescriptorType = 0x1\n\
                Device Descriptor: [Byte offset 0x3]: bBootEnable = 0x1\n\
                Device Descriptor: [Byte offset 0x0]: bLength = 0x40\n\
                Device Descriptor: [Byte offset 0x10]: wSpecVersion = 0x300\n";
    let report = read_one(text.as_bytes()).unwrap();
    assert_eq!((report.standard.as_str(), fact(&report, "product")), ("UFS 3.0", String::new()));
    assert_eq!(value(&report, "bBootEnable"), None);
}

#[test]
fn words_that_are_printed_as_the_processor_loads_them_are_turned_together() {
    let text = "Device Descriptor[Byte offset 0x10]: wSpecVersion = 0x1002\n\
                Device Descriptor[Byte offset 0x18]: wManufactureID = 0xce01\n\
                Device Descriptor[Byte offset 0x21]: bQueueDepth = 0x20\n\
                Geometry Descriptor[Byte offset 0x4]: qTotalRawDeviceCapacity = 0x40e60e0000000000\n\
                Geometry Descriptor[Byte offset 0xd]: dSegmentSize = 0x200000\n";
    let report = read_one(text.as_bytes()).unwrap();
    assert_eq!((report.standard.as_str(), report.like), ("UFS 2.1", "ufs22"));
    assert_eq!(fact(&report, "manufacturer"), "0x01ce, Samsung");
    assert_eq!(report.capacity.as_ref().unwrap().bytes, 0x000e_e640_u64 << 9);
    assert_eq!(value(&report, "dSegmentSize"), Some(RegisterValue::Number(0x2000)));
    assert!(has_note(&report, "wSpecVersion = 0x1002 has its lowest byte first"), "{:?}", report.notes);
    for text in ["wSpecVersion = 0x1299\n", "wSpecVersion = 0x310\nqTotalRawDeviceCapacity = 0x40e60e0000000000\n"] {
        assert!(read_one(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn every_version_of_the_standard_is_read_in_both_orders_and_no_other_is() {
    let known = [0x100, 0x110, 0x200, 0x210, 0x220, 0x300, 0x310, 0x400, 0x410, 0x500_u16];
    let standard = |version: u16| read_one(format!("wSpecVersion = {version:#x}\n").as_bytes()).map(|report| report.standard);
    for version in known {
        let expected = format!("UFS {}.{}", version >> 8, version >> 4 & 0xf);
        assert_eq!(standard(version).unwrap(), expected);
        assert_eq!(standard(version.swap_bytes()).unwrap(), expected);
    }
    let is_known = |version: u16| known.contains(&version) || known.contains(&version.swap_bytes());
    for version in (1..0x500).filter(|version| !is_known(*version)) {
        // A number that is not a version may be a later version with swapped bytes.
        assert!(standard(version).is_err() || version.swap_bytes() > 0x500, "{version:#x}");
    }
}

/// A descriptor of this length and type, with values in big-endian order.
fn raw(length: u8, kind: u8, values: &[(usize, &[u8])]) -> Vec<u8> {
    let mut out = vec![0; usize::from(length)];
    (out[0], out[1]) = (length, kind);
    for (at, bytes) in values {
        out[*at..*at + bytes.len()].copy_from_slice(bytes);
    }
    out
}

#[test]
fn raw_descriptors_are_read_in_each_form() {
    let device = raw(0x59, 0, &[(0x10, &[0x03, 0x10]), (0x18, &[0x01, 0xad]), (0x21, &[32]), (0x4f, &[0, 0, 1, 0])]);
    let geometry = raw(0x57, 7, &[(4, &[0, 0, 0, 0, 0x0e, 0xe6, 0x40, 0])]);
    let health = raw(0x25, 9, &[(2, &[1, 2, 11])]);
    let unit = raw(0x2d, 2, &[(2, &[3]), (3, &[1]), (0x0a, &[12]), (0x0b, &[0, 0, 0, 0, 0, 0x3b, 0x90, 0])]);
    let string = [6, 5, 0, b'A', 0, b'B'];
    let all = [&device[..], &string, &geometry, &unit, &health].concat();
    for (form, text) in hex_forms(&all) {
        assert!(is_ufs(&text), "{form}");
        let report = read_one(&text).unwrap_or_else(|error| panic!("{form}: {error}"));
        assert_eq!((report.standard.as_str(), report.capacity.as_ref().unwrap().bytes), ("UFS 3.1", 0x003b_9000 << 12), "{form}");
        assert_eq!(fact(&report, "manufacturer"), "0x01ad, SK hynix");
        assert_eq!(fact(&report, "life used, type B (mostly MLC, TLC)"), "beyond the estimated life");
        assert_eq!(value(&report, "qTotalRawDeviceCapacity"), Some(RegisterValue::Number(0x0ee6_4000)));
    }
    for (form, text) in hex_forms(&health) {
        assert!(is_ufs(&text), "{form}");
        assert_eq!(fact(&read_one(&text).unwrap(), "life used, type A (mostly SLC)"), "10 to 20 % of the life used");
        let cut = read_one(&text[..text.len() / 4 * 2]).expect_err(form).to_string();
        assert!(cut.contains("of 37 bytes"), "{form}: {cut}");
    }
    // A buffer of 255 bytes, and two dumps with headings.
    let mut buffer = health.clone();
    buffer.resize(255, 0);
    assert!(read_one(&buffer).is_ok() && is_ufs(&buffer));
    let [.., (_, first)] = hex_forms(&device);
    let [.., (_, second)] = hex_forms(&health);
    let report = read_one(&[first, second].concat()).unwrap();
    assert_eq!((report.standard.as_str(), fact(&report, "spare blocks").as_str()), ("UFS 3.1", "normal"));
}
