//! The common part of the targets: read bytes as a trace of given formats; bytes as patches of an image. A panic is a finding, an error
//! is not.

mod patched;

use std::io::Write;

pub use patched::Patched;

use emmclab_record::open_trace;
use emmclab_trace::ReadOptions;

/// Reads `data` in each of the formats, strictly and leniently, to its end.
pub fn read_as(formats: &[&str], data: &[u8]) {
    let formats: Vec<_> = formats.iter().map(|format| Some(*format)).collect();
    read_each(&formats, data);
}

/// Reads `data` as what it looks like, or has it refused by its name.
pub fn read_as_found(data: &[u8]) {
    read_each(&[None], data);
}

fn read_each(formats: &[Option<&str>], data: &[u8]) {
    let Ok(mut file) = tempfile::NamedTempFile::new_in("/dev/shm").or_else(|_| tempfile::NamedTempFile::new()) else {
        return;
    };
    if file.write_all(data).is_err() {
        return;
    }
    for format in formats {
        for lenient in [false, true] {
            let options = ReadOptions { format: format.map(str::to_owned), lenient, ..ReadOptions::default() };
            if let Ok(mut reader) = open_trace(file.path(), &options) {
                while let Ok(Some(batch)) = reader.next_batch() {
                    std::hint::black_box(batch.iter().map(|request| request.bytes().0).max());
                    std::hint::black_box((0..batch.len()).map(|row| batch.notes(row).len()).max());
                }
                std::hint::black_box(reader.ledger());
            }
        }
    }
}
