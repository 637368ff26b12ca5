#![no_main]

use std::sync::LazyLock;

use emmclab_fuzz::read_as;
use emmclab_trace::formats;
use libfuzzer_sys::fuzz_target;

/// Formats that have a target of their own.
const OTHERS: [&str; 9] = ["parquet", "blktrace", "perfetto", "lcs", "oracle-general", "vscsi", "systrace", "ftrace", "blkparse"];

static FORMATS: LazyLock<Vec<&str>> =
    LazyLock::new(|| formats::FORMATS.iter().map(|format| format.name).filter(|name| !OTHERS.contains(name)).collect());

fuzz_target!(|data: &[u8]| read_as(&FORMATS, data));
