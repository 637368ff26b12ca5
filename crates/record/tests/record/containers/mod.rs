//! What was recorded once, in the files of several tools.
#![allow(clippy::unwrap_used, clippy::panic, dead_code, reason = "a test may, and each uses a part of it")]

pub mod perfetto;
pub mod trace_dat;

use std::path::Path;

use emmclab_record::{Files, HelperFrame, HelperStream};

/// A kept file of the fixtures, unpacked.
pub fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    zstd::decode_all(std::fs::File::open(path).unwrap()).unwrap()
}

/// A kept stream of the helper: the texts before, the pages of each CPU, the texts after.
pub fn capture(name: &str) -> (Files, Vec<Vec<u8>>, Files) {
    let bytes = fixture(name);
    let mut stream = HelperStream::new(&bytes[..]);
    let files = stream.texts("ready").unwrap();
    stream.texts("stream").unwrap();
    let mut cpus = vec![Vec::new(); 2];
    loop {
        match stream.frame().unwrap() {
            HelperFrame::Pages { cpu, count } => {
                for _ in 0..count {
                    let mut page = vec![0; trace_dat::PAGE];
                    stream.page(&mut page).unwrap();
                    cpus[cpu].extend(page);
                }
            }
            HelperFrame::Round => {}
            HelperFrame::End => return (files, cpus, stream.texts("end").unwrap()),
        }
    }
}
