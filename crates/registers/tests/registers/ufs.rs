//! The descriptors of a UFS: as a tree, as text, and as ufs-utils prints them.

use std::path::Path;

use emmclab_registers::{Report, Source, Value, is_ufs, read};

use crate::support::{fact, read_one, setting, value};

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

fn tree(files: &[(&str, &str)]) -> emmclab_base::Result<Report> {
    let sources: Vec<_> =
        files.iter().map(|(path, text)| Source { path: Path::new(path), bytes: text.as_bytes() }).collect();
    read(&sources)
}

#[test]
fn a_tree_its_text_and_its_listing_give_the_same() {
    let of_tree = tree(FILES).unwrap();
    let grep: String = FILES
        .iter()
        .map(|(path, text)| format!("/sys/devices/platform/soc/1d84000.ufshc/{path}:{text}\n"))
        .collect();
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
    assert_eq!(value(&report, "bBackgroundOpStatus"), Some(Value::Number(2)));
    assert_eq!(fact(&report, "WriteBooster"), "");
}

#[test]
fn a_device_without_write_booster_has_none_in_its_preset() {
    let report = read_one(
        b"device_descriptor/ext_feature_sup:0x00000000\ndevice_descriptor/specification_version:0x0300\n",
    )
    .unwrap();
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
    let zeros: Vec<_> =
        FILES.iter().filter(|(_, text)| text.starts_with("0x")).map(|(path, _)| (*path, "0x00")).collect();
    assert!(tree(&zeros).unwrap_err().to_string().contains("every value is 0"));
}

#[test]
fn registers_of_two_devices_are_refused() {
    let dump = crate::support::register();
    let sources = [
        Source { path: Path::new("ext_csd"), bytes: &dump },
        Source { path: Path::new("device_descriptor/queue_depth"), bytes: b"0x20\n" },
    ];
    assert!(read(&sources).is_err());
}
