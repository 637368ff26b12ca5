//! The log of a run: every command at the ports of a device with its data, what the device programmed and when, and what was
//! reported to the workload as safe. All times are of one clock.
//!
//! # Format
//!
//! `EMMCRASH`, a little-endian `u32` of the version, then blocks. A block is three `u32`: its stored bytes, its bytes when
//! decompressed, and the CRC-32C of the stored bytes; then a zstd frame. The first block holds [`LogHeader`] as JSON, each later one
//! whole [`Record`]s in the encoding of postcard 1. A file that ends in the middle of a block is whole up to that block.

pub mod dm;
mod header;
mod reader;
mod record;
mod writer;

pub use header::{DeviceFacts, LogHeader};
pub use reader::{LogReader, Records};
pub use record::{Port, Record};
pub use writer::LogWriter;

const MARK: &[u8; 8] = b"EMMCRASH";
const VERSION: u32 = 1;
/// Largest block in bytes; no record is larger.
const MOST_BLOCK: u32 = 1 << 27;
