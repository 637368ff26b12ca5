#![no_main]

use std::path::Path;

use emmclab_registers::{HEALTH_FORMATS, RegisterSource, is_ext_csd, is_ufs, read, read_health};
use libfuzzer_sys::fuzz_target;

// Registers of a device in any form: as a file of no special name, and as a file of sysfs; and health reports.
fuzz_target!(|data: &[u8]| {
    std::hint::black_box((is_ext_csd(data), is_ufs(data)));
    for path in ["dump", "0:0:0:0/unit_descriptor/logical_block_count"] {
        let _ = std::hint::black_box(read(&[RegisterSource { path: Path::new(path), bytes: data }]));
    }
    let report = RegisterSource { path: Path::new("report"), bytes: data };
    for format in HEALTH_FORMATS.iter().map(|format| Some(format.name)).chain([None]) {
        let _ = std::hint::black_box(read_health(&report, format));
    }
});
