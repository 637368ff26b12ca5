//! A register in every form, and helpers.

use std::fmt::Write;
use std::path::Path;

use emmclab_registers::ext_csd::fields::{self, REGISTER_BYTES};
use emmclab_registers::{RegisterReport, RegisterSource, RegisterValue, read};

/// The register of an 8 GB eMMC 5.1 with a cache of 8 MB and a queue of 16.
pub fn register() -> [u8; REGISTER_BYTES] {
    let mut bytes = [0; REGISTER_BYTES];
    for (field, value) in [
        (fields::EXT_CSD_REV, 8),
        (fields::CSD_STRUCTURE, 2),
        (fields::S_CMD_SET, 1),
        (fields::SEC_COUNT, 0x00e9_0000),
        (fields::CACHE_SIZE, 0x0001_0000),
        (fields::CACHE_CTRL, 1),
        (fields::CMDQ_SUPPORT, 1),
        (fields::CMDQ_DEPTH, 15),
        (fields::MAX_PACKED_WRITES, 63),
        (fields::MAX_PACKED_READS, 63),
        (fields::WR_REL_PARAM, 0x14),
        (fields::DEVICE_TYPE, 0x57),
        (fields::BOOT_SIZE_MULT, 32),
        (fields::DEVICE_LIFE_TIME_EST_TYP_A, 1),
        (fields::DEVICE_LIFE_TIME_EST_TYP_B, 2),
        (fields::PRE_EOL_INFO, 1),
    ] {
        field.put(&mut bytes, value);
    }
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn columns(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| hex(&[*byte])).collect::<Vec<_>>().join(" ")
}

fn words(bytes: &[u8], size: usize) -> String {
    let word = |word: &[u8]| hex(&word.iter().rev().copied().collect::<Vec<_>>());
    bytes.chunks(size).map(word).collect::<Vec<_>>().join(" ")
}

/// Rows of 16 bytes, in which a star replaces rows that equal the row before.
fn starred(bytes: &[u8], offset: impl Fn(usize) -> String, row: impl Fn(&[u8]) -> String) -> String {
    let mut out = String::new();
    for (number, part) in bytes.chunks(16).enumerate() {
        if number > 0 && part == &bytes[number * 16 - 16..number * 16] {
            if !out.ends_with("*\n") {
                out += "*\n";
            }
        } else {
            let _ = writeln!(out, "{} {}", offset(number * 16), row(part));
        }
    }
    out + &offset(bytes.len()) + "\n"
}

/// The register in the form that each program prints.
pub fn forms(bytes: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let rows = |size: usize| bytes.chunks(size).enumerate().map(move |(row, part)| (row * size, part));
    let u_boot: String = rows(10).map(|(at, part)| format!("{at:03}: {}\n", columns(part))).collect();
    let md: String = rows(16).map(|(at, part)| format!("{:08x}: {}    ab..\n", 0x4000_0000 + at, words(part, 4))).collect();
    let esp: String = rows(32).map(|(_, part)| words(part, 4) + "\n").collect();
    let xxd: String = rows(16)
        .map(|(at, part)| {
            let pairs: Vec<_> = part.chunks(2).map(hex).collect();
            format!("{at:08x}: {}  .......ab cd....\n", pairs.join(" "))
        })
        .collect();
    let hexdump_c = starred(bytes, |at| format!("{at:08x}"), |part| format!(" {}  |.ab.|", columns(part)));
    let folded: String = hex(bytes).as_bytes().chunks(80).map(|part| String::from_utf8_lossy(part) + "\n").collect();
    let array: String =
        rows(8).map(|(_, part)| part.iter().map(|byte| format!("0x{byte:02x}, ")).collect::<String>() + "\n").collect();
    [
        ("raw", bytes.to_vec()),
        ("debugfs", (hex(bytes) + "\n").into_bytes()),
        ("debugfs, folded", folded.into_bytes()),
        (
            "U-Boot",
            format!("=> mmc dev 1\nManufacturer ID: 15\nOEM: 100\n=> mmc reg read extcsd all\n{u_boot}=> \n").into_bytes(),
        ),
        ("U-Boot md", format!("=> md 0x40000000 80\n{md}").into_bytes()),
        ("esp-idf", esp.into_bytes()),
        ("xxd", xxd.into_bytes()),
        ("hexdump -C", hexdump_c.into_bytes()),
        ("hexdump", starred(bytes, |at| format!("{at:07x}"), |part| words(part, 2)).into_bytes()),
        ("od -t x1", starred(bytes, |at| format!("{at:07o}"), columns).into_bytes()),
        ("od -A x -t x4", starred(bytes, |at| format!("{at:06x}"), |part| words(part, 4)).into_bytes()),
        ("an array of C", array.into_bytes()),
    ]
    .into()
}

pub fn read_one(bytes: &[u8]) -> emmclab_base::Result<RegisterReport> {
    read(&[RegisterSource { path: Path::new("dump"), bytes }])
}

/// The fact on a topic; empty if it is not known.
pub fn fact(report: &RegisterReport, topic: &str) -> String {
    let result = report.facts.iter().find(|fact| fact.topic == topic).unwrap_or_else(|| panic!("no {topic}"));
    result.text.clone().unwrap_or_default()
}

pub fn setting(report: &RegisterReport, key: &str) -> Option<String> {
    report.settings.iter().find(|setting| setting.key == key).map(|setting| setting.value.clone())
}

pub fn value(report: &RegisterReport, name: &str) -> Option<RegisterValue> {
    report.fields.iter().find(|field| field.name == name).and_then(|field| field.value.clone())
}

pub fn has_note(report: &RegisterReport, part: &str) -> bool {
    report.notes.iter().any(|note| note.contains(part))
}

/// The forms that contain all bytes.
pub fn hex_forms(bytes: &[u8]) -> [(&'static str, Vec<u8>); 4] {
    let rows: String = bytes.chunks(16).enumerate().map(|(row, part)| format!("{:04x}: {}\n", 16 * row, columns(part))).collect();
    [
        ("raw", bytes.to_vec()),
        ("a run of digits", (hex(bytes) + "\n").into_bytes()),
        ("columns", (columns(bytes) + "\n").into_bytes()),
        ("rows with a heading", format!("Descriptor:\n{rows}").into_bytes()),
    ]
}
