//! The log of a run: every command at the ports of a device with its data, what the device programmed and when, and what was
//! reported to the workload as safe. All times are of one clock.
//!
//! # Format
//!
//! `EMMCRASH`, a little-endian `u32` of the version, then blocks. A block has a head of four `u32`: its stored bytes, its bytes when
//! decompressed, the CRC-32C of the stored bytes, and a CRC-32C of the three that begins with that of the head before it, so that no
//! block can be lost, moved or of another log. A zstd frame follows. The first block holds [`CrashLogHeader`] as JSON, each later one
//! whole [`CrashLogRecord`]s in the encoding of postcard 1. The last head ends the log: it has no stored bytes, and the number of blocks in
//! place of their checksum. A log without it was cut short, and can be read up to its last whole block.

pub mod dm_log_writes;
mod header;
mod reader;
mod record;
mod writer;

pub use header::{CrashLogHeader, DeviceFacts};
pub use reader::{CrashLogReader, CrashLogRecords};
pub use record::{CommandPort, CrashLogRecord};
pub use writer::CrashLogWriter;

const MARK: &[u8; 8] = b"EMMCRASH";
const VERSION: u32 = 1;
/// Largest block in bytes; no record is larger.
const MOST_BLOCK: u32 = 1 << 27;
/// Size of the head of a block in bytes.
const HEAD: usize = 16;

/// The heads of a log, in order.
struct LogBlockHeads {
    /// Number of blocks so far.
    blocks: u32,
    /// The checksum of the last head; at first, of the bytes before the first one.
    sum: u32,
}

impl LogBlockHeads {
    fn new() -> Self {
        Self { blocks: 0, sum: crc32c::crc32c_append(crc32c::crc32c(MARK), &VERSION.to_le_bytes()) }
    }

    /// The checksum of the next head, from its other numbers: it depends on all heads before.
    fn sum_with(&self, numbers: [u32; 3]) -> u32 {
        numbers.iter().fold(self.sum, |sum, number| crc32c::crc32c_append(sum, &number.to_le_bytes()))
    }

    /// Adds a head; returns its bytes.
    fn add(&mut self, numbers: [u32; 3]) -> [u8; HEAD] {
        self.sum = self.sum_with(numbers);
        self.blocks += 1;
        let [stored, raw, crc] = numbers;
        let mut bytes = [0; HEAD];
        for (place, number) in bytes.chunks_exact_mut(4).zip([stored, raw, crc, self.sum]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }
}
